// The costs of two point clouds, packed: each centred at its own mean, in float or double and, for the tensor cores, as
// two fp16 parts.
#pragma once
#include <memory>

#include <monge/geometry.hpp>

#include "cuda/costs.hpp"
#include "cuda/launch/pack.hpp"

namespace monge::cuda {

/// Where packing leaves what it finds out about the clouds of some problems, two after the other for each.
using FindingsMemory = std::shared_ptr<DeviceArray<CloudFindings> const>;

class PointCosts final : public Costs {
 public:
  /// Starts to pack; finish() has to follow. The weights centre the clouds. The findings go to `first` and the next.
  PointCosts(SharedRuntime runtime, PointCloud const& clouds, PointWeights a, PointWeights b, DataType scalar,
             FindingsMemory const& findings, std::int64_t first, Queue const& queue);
  /// With the findings of x and y, on the host. Throws if a coordinate is not finite.
  void finish(PointCloud const& clouds, CloudFindings const* found);

  PointValues points(Side side) const override;
  PointForm point_form() const override { return {-2 * scale_, 2 * scale_}; }
  std::shared_ptr<Costs const> at(Side side, MatrixView points) const override;
  std::shared_ptr<Costs const> renewed(Geometry const& geometry, PointWeights a, PointWeights b,
                                       bool unshared) const override;
  std::shared_ptr<Costs const> twin(Geometry const& geometry, DataType scalar, Queue const& queue) const override;
  /// The cloud of one side to itself, packed as it is.
  std::shared_ptr<Costs const> self(Side side, Queue const& queue) const;

 private:
  /// What was found out about a cloud, whatever its points are packed in.
  struct Survey {
    DeviceArray<unsigned char> memory;
    FindingsMemory findings_memory;
    double* centre = nullptr;
    CloudFindings* findings = nullptr;
    double* partial_centres = nullptr;
    unsigned long long* first_not_finite = nullptr;
    RowFindings* row_findings = nullptr;
    CloudFindings found{};  // On the host.
  };
  /// A packed cloud, shared with what at() makes; twins share the survey.
  struct Cloud {
    std::shared_ptr<Survey> survey;
    DeviceArray<unsigned char> memory;
    int size = 0;
    Operand operand;
    double* norm = nullptr;
  };
  using Shift = DeviceArray<double>;

  PointCosts(SharedRuntime runtime, double scale, DataType scalar, std::int64_t dimension);
  std::shared_ptr<Survey> make_survey(int size, int dimension, FindingsMemory const& findings, std::int64_t at) const;
  std::shared_ptr<Cloud> make_cloud(std::shared_ptr<Survey> survey, int size, int dimension) const;
  void make_side(Side side, char const* field, MatrixView points, FindingsMemory const& findings, std::int64_t at);
  void pack(PointCloud const& clouds, PointWeights a, PointWeights b, Queue const& queue) const;
  CloudArguments arguments(Side side, MatrixView points, PointWeights weights,
                           DeviceArray<unsigned char>& staging) const;
  /// What was found out about the points of a side; `field` is what errors call them.
  void take_findings(Side side, char const* field, MatrixView points, CloudFindings const& found);
  /// `squared_offset`: |w|^2
  void set_sides(double squared_offset);

  double scale_;
  std::shared_ptr<Cloud> clouds_[2];
  std::shared_ptr<Shift> shifts_[2];
};

}  // namespace monge::cuda
