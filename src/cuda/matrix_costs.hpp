// The costs of a matrix in memory: read in place on the device, or copied there once, as it is.
//
// Gauge: shift_i is the smallest finite cost for all rows, 0 for columns; norms are 0.
#pragma once
#include <monge/geometry.hpp>

#include "cuda/costs.hpp"
#include "cuda/problem.hpp"

namespace monge::cuda {

class MatrixCosts final : public Costs {
 public:
  /// Throws if a cost is neither finite nor +infinity, or if a point of positive weight has no partner. Waits once.
  MatrixCosts(SharedRuntime runtime, CostMatrix const& geometry, Weights const& a, Weights const& b, DataType scalar);

  PointValues points(Side side) const override;
  std::shared_ptr<Costs const> at(Side side, MatrixView points) const override;

 private:
  void survey(Weights const& a, Weights const& b);
  /// The number at a place of the problem, for a message.
  double cost(int row, int column) const;

  DeviceArray<unsigned char> copy_;  // Of a matrix in host memory.
  DeviceArray<double> zeros_, shift_;
};

}  // namespace monge::cuda
