// The costs of two point clouds, packed: each centred at its own mean, in float or double and, for the tensor cores, as
// two fp16 parts.
#pragma once
#include <vector>

#include <monge/geometry.hpp>

#include "cuda/costs.hpp"

namespace monge::cuda {

class PointCosts final : public Costs {
 public:
  /// a and b (device memory) are the weights that centre the clouds. Throws if a coordinate is not finite.
  PointCosts(SharedRuntime runtime, PointCloud const& geometry, double const* a, double const* b, DataType scalar);

  PointValues points(Side side) const override;
  std::shared_ptr<Costs const> at(Side side, MatrixView points) const override;

 private:
  /// The caller's points on the device and their centre.
  struct Survey {
    DeviceArray<unsigned char> staging;
    StridedView points;
    int size = 0, dimension = 0;
    std::vector<double> centre;
  };
  /// A packed cloud; shared with the costs that at() makes.
  struct Cloud {
    Operand operand;
    std::vector<double> centre;
    double largest_squared_norm = 0;
    DeviceArray<unsigned char> points, high, low;
    DeviceArray<double> norm, centre_memory;
  };

  PointCosts(SharedRuntime runtime, double scale, DataType scalar, std::int64_t dimension);
  Survey survey(char const* field, MatrixView points, double const* weight) const;
  /// Sets the side's cloud, shift and mean shift; `w` is the difference of the two centres.
  void pack(Side side, Survey survey, std::vector<double> const& w);
  /// A packed cloud's part of this object.
  void set_side(Side side, int size, std::shared_ptr<Cloud const> cloud, DeviceArray<double> shift, double mean_shift);
  void set_bound();

  double scale_;
  std::shared_ptr<Cloud const> clouds_[2];
  DeviceArray<double> shifts_[2];
};

}  // namespace monge::cuda
