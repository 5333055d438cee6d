// The costs of a matrix in memory: read in place on the device, or from an unchanged copy there.
//
// Gauge: all shifts are half of the smallest finite cost; norms are 0.
#pragma once
#include <memory>

#include <monge/geometry.hpp>

#include "cuda/geometry/cost_survey.hpp"
#include "cuda/geometry/costs.hpp"

namespace monge::cuda {

class MatrixCosts final : public Costs {
 public:
  /// Starts the survey of the matrix, which goes to `found` (device memory). finish() must follow.
  MatrixCosts(SharedRuntime runtime, CostMatrix const& geometry, PointWeights a, PointWeights b, DataType scalar,
              CostSurvey* found, Queue const& queue);
  /// Throws if a cost is neither finite nor +infinity, or if a point of positive weight has no partner.
  void finish(CostSurvey const& found);

  std::shared_ptr<Costs const> renewed(Geometry const& geometry, PointWeights a, PointWeights b,
                                       bool unshared) const override;
  std::shared_ptr<Costs const> twin(Geometry const& geometry, DataType scalar, Queue const& queue) const override;

 private:
  /// Memory that twins share.
  struct Memory {
    DeviceArray<unsigned char> copy;  // Copy of a matrix in host memory.
    DeviceArray<double> zeros, shift;
    DeviceArray<unsigned char> scratch;  // Scratch memory of the survey.
  };

  MatrixCosts(SharedRuntime runtime, CostMatrix const& geometry, PointWeights a, PointWeights b, DataType scalar,
              std::shared_ptr<Memory> memory, CostSurvey* found, Queue const& queue);
  void set_sides();
  void set_bound();
  /// C_ij, for a message.
  double cost(std::int64_t row, std::int64_t column) const;

  std::shared_ptr<Memory> memory_;
  PointWeights weights_[2];
  double range_ = 0;
};

}  // namespace monge::cuda
