// The costs of two point clouds, packed: each centred at its own mean, in float or double and, for the tensor cores, as
// two fp16 parts.
#pragma once
#include <initializer_list>
#include <memory>

#include <monge/geometry.hpp>

#include "cuda/costs.hpp"
#include "cuda/launch/pack.hpp"

namespace monge::cuda {

class PointCosts final : public Costs {
 public:
  /// The weights centre the clouds. Throws if a coordinate is not finite.
  PointCosts(SharedRuntime runtime, PointCloud const& clouds, PointWeights a, PointWeights b, DataType scalar);

  PointValues points(Side side) const override;
  std::shared_ptr<Costs const> at(Side side, MatrixView points) const override;
  std::shared_ptr<Costs const> twin(Geometry const& geometry, DataType scalar) const override;

 private:
  /// What was found out about a cloud, whatever its points are packed in.
  struct Survey {
    DeviceArray<unsigned char> memory;
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
  std::shared_ptr<Survey> make_survey(int size, int dimension) const;
  std::shared_ptr<Cloud> make_cloud(std::shared_ptr<Survey> survey, int size, int dimension) const;
  void make_side(Side side, char const* field, MatrixView points);
  CloudArguments arguments(Side side, MatrixView points, PointWeights weights,
                           DeviceArray<unsigned char>& staging) const;
  void pack(PointCloud const& clouds, PointWeights a, PointWeights b);
  /// A cloud that has just been surveyed, and what its errors call it.
  struct Surveyed {
    Side side;
    char const* field;
    MatrixView points;
  };
  /// Waits, once for all, and throws if a coordinate is not finite.
  void read_findings(std::initializer_list<Surveyed> clouds);
  /// `squared_offset`: |w|^2
  void set_sides(double squared_offset);

  double scale_;
  std::shared_ptr<Cloud> clouds_[2];
  std::shared_ptr<Shift> shifts_[2];
};

}  // namespace monge::cuda
