// The costs of two point clouds (geometry/point_cost.hpp), packed: each centred at its mean, in float or double and,
// for the tensor cores, as two fp16 parts.
#pragma once
#include <memory>

#include <monge/geometry.hpp>

#include "cuda/geometry/costs.hpp"
#include "cuda/geometry/pack.hpp"
#include "geometry/point_cost.hpp"

namespace monge::cuda {

/// Device memory for the findings about the clouds of several problems, two for each problem.
using FindingsMemory = std::shared_ptr<DeviceArray<CloudFindings> const>;

class PointCosts final : public Costs {
 public:
  /// Starts packing; finish() must follow. The weights determine the centres. Findings go to `first` and `first` + 1.
  /// `listed`: for passes over listed tiles, whose scores are differences.
  PointCosts(SharedRuntime runtime, PointCloud const& clouds, PointWeights a, PointWeights b, DataType scalar,
             FindingsMemory const& findings, std::int64_t first, Queue const& queue, bool listed = false);
  /// Takes the findings of x and y from the host. Throws if a coordinate is not finite.
  void finish(PointCloud const& clouds, CloudFindings const* found);
  /// After finish(): keeps the float32 scores of points with labels, if they take at most `cache_bytes`. Passes then
  /// read them instead of multiplying a feature for each class.
  void keep_scores(double cache_bytes);

  PointCosts const* of_points() const override { return this; }
  PointValues points(Side side) const;
  /// The coordinates that passes read: points() unless the cost reads directions. Coordinates of labels are left out.
  PointValues features(Side side) const;
  PointCost const& cost() const { return cost_; }
  /// The coordinates of labels, whose products times cost().product are their costs; empty without labels.
  PointValues labels(Side side) const;
  /// The same costs with other points on this side. The other side is shared, except for its shift.
  std::shared_ptr<PointCosts const> at(Side side, MatrixView points, IndexView labels) const;
  /// The same with the points that `owner` has packed for the same cost. packs_like(owner) must hold.
  std::shared_ptr<PointCosts const> at(Side side, PointCosts const& owner) const;
  /// Whether both pack a point in the same way, each cloud about its own centre.
  bool packs_like(PointCosts const& other) const;
  std::shared_ptr<Costs const> renewed(Geometry const& geometry, PointWeights a, PointWeights b,
                                       bool unshared) const override;
  std::shared_ptr<Costs const> twin(Geometry const& geometry, DataType scalar, Queue const& queue) const override;
  /// Whether a packed cloud also serves for the costs of the cloud to itself: it must depend neither on the other
  /// cloud's centre nor on its features.
  bool shares_clouds() const { return cost_.is_invariant() && !cost_.labels; }
  /// The cloud of one side to itself, without packing: its costs if shares_clouds(), otherwise only its points.
  std::shared_ptr<PointCosts const> self(Side side, Queue const& queue) const;

 private:
  /// Findings about a cloud, in any precision.
  struct Survey {
    DeviceArray<unsigned char> memory;
    FindingsMemory findings_memory;
    double* centre = nullptr;
    CloudFindings* findings = nullptr;
    double* partial_centres = nullptr;
    unsigned long long* first_not_finite = nullptr;
    RowFindings* row_findings = nullptr;
    CloudFindings found{};  // A copy on the host.
  };
  /// A packed cloud. The costs from at() share it; twins share the survey.
  struct Cloud {
    std::shared_ptr<Survey> survey;
    DeviceArray<unsigned char> memory;
    int size = 0;
    Operand operand;
    double* norm = nullptr;
  };
  using Shift = DeviceArray<double>;

  /// One side of the caller's clouds.
  struct Points {
    char const* field;
    MatrixView points;
    IndexView labels = {};
  };
  static Points points_of(PointCloud const& clouds, Side side);

  PointCosts(SharedRuntime runtime, PointCost cost, DataType scalar, bool listed);
  std::shared_ptr<Survey> make_survey(int size, FindingsMemory const& findings, std::int64_t at) const;
  std::shared_ptr<Cloud> make_cloud(std::shared_ptr<Survey> survey, int size) const;
  void make_side(Side side, Points const& points, FindingsMemory const& findings, std::int64_t at);
  void pack(PointCloud const& clouds, PointWeights a, PointWeights b, Queue const& queue);
  void move_centre(double const* from, double* to, Queue const& queue) const;
  /// Inputs of the features of a side, kept until the kernels that read them are enqueued.
  struct Staging {
    DeviceArray<unsigned char> points;
    DeviceArray<std::int64_t> labels;
    DeviceArray<double> classes, features;
  };
  StridedView features(Side side, Points const& points, Staging& staging, Queue const& queue) const;
  CloudArguments arguments(Side side, Points const& points, PointWeights weights, Staging& staging,
                           Queue const& queue) const;
  void take_findings(Side side, Points const& points, CloudFindings const& found);
  /// The shift of the points that `from` has on a side, where the other side's centre is `centre`.
  std::shared_ptr<Shift> moved_shift(PointCosts const& from, Side side, double const* centre) const;
  /// `constant` is part of the rows' shift.
  void set_sides(double constant);

  PointCost cost_;
  bool listed_;
  std::shared_ptr<Cloud> clouds_[2];
  std::shared_ptr<Shift> shifts_[2];
  /// Costs on the points themselves; for the cosine only, whose features are directions.
  std::shared_ptr<PointCosts const> undirected_;
  double cache_bytes_ = 0;
  DeviceArray<float> kept_scores_;  // [padded rows][padded columns]; may be empty.
};

}  // namespace monge::cuda
