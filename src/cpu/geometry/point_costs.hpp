// The costs of two point clouds (geometry/point_cost.hpp), each centred at its weighted mean; for distances, both at
// the mean of x.
#pragma once
#include <memory>
#include <vector>

#include <monge/geometry.hpp>

#include "cpu/geometry/point_labels.hpp"
#include "cpu/pass/costs.hpp"
#include "geometry/point_cost.hpp"

namespace monge::cpu {

template <class T>
class PointCosts final : public Costs<T> {
 public:
  /// Centres are means with weights a and b. Throws invalid_argument for an invalid point, label or cost.
  PointCosts(PointCloud const& geometry, std::span<double const> a, std::span<double const> b);

  double factor() const override;
  std::span<double const> norm(Side side) const override { return cloud(side).norm; }
  std::span<double const> shift(Side side) const override { return shift_[static_cast<int>(side)]; }
  ScoreSource<T> scores(Side rows) const override;
  std::shared_ptr<Costs<Other<T>> const> twin(Geometry const& geometry) const override;
  std::unique_ptr<Costs<T> const> part(Side side, std::span<std::int64_t const> points) const override;
  PointCosts const* of_points() const override { return this; }
  /// The costs with other points on `side`. Both shifts may change. To keep the user's potential of a side, add the old
  /// shift to the operator's and subtract the new one.
  std::shared_ptr<PointCosts const> at(Side side, MatrixView points, IndexView labels) const;
  PointValues<T> points(Side side) const;
  /// The features of the points (geometry/point_cost.hpp): points() unless the cost reads directions.
  PointValues<T> features(Side side) const { return {&cloud(side).packed, cloud(side).centre}; }
  PointCost const& cost() const { return cost_; }
  /// Null without labels.
  PointLabels const* labels() const { return labels_.get(); }
  /// The labels of one side; empty where there are none.
  std::span<std::int64_t const> labels(Side side) const {
    return labels_ ? std::span(labels_->of[static_cast<int>(side)]) : std::span<std::int64_t const>();
  }
  /// The costs of a cloud to itself, which `geometry` holds twice. Both sides have the same shift and one packed cloud.
  /// The packed cloud is that of `like` on `side` if possible.
  static std::shared_ptr<PointCosts const> self(PointCloud const& geometry, std::span<double const> a,
                                                PointCosts const& like, Side side);

 private:
  template <class>
  friend class PointCosts;
  /// A cloud whose coordinates are features (cpu/geometry/features.hpp).
  struct Cloud {
    PackedPoints<T> packed;
    std::vector<double> centre;
    double mean_square = 0;  // Mean squared distance to the centre; only for costs with `square`.
    double largest_squared_norm = 0, largest_squared_norm_of_mass = 0;  // All points; those with weight.
    std::vector<double> norm;  // square |x'_i|^2 of the packed points; 0 if the score contains it.
  };

  PointCosts(std::int64_t n, std::int64_t m, PointCost cost);
  PointCosts(PointCosts const& like, std::shared_ptr<Cloud const> rows, std::shared_ptr<Cloud const> columns);
  /// Without weights all points have weight.
  std::shared_ptr<Cloud> packed(MatrixView features, std::vector<double> const& centre, double mean_square = 0,
                                std::span<double const> weights = {}) const;
  /// The points themselves, for the cosine only.
  std::shared_ptr<Cloud const> undirected(MatrixView points, std::vector<double> const& centre) const;
  std::shared_ptr<Cloud> measured(Cloud cloud, std::span<double const> weights = {}) const;
  void set_bounds();
  std::vector<double> shift_of(Side side, MatrixView features) const;
  void use_labels(std::shared_ptr<PointLabels const> labels);
  /// Adds the labels' part to shifts and mean.
  void add_labels(PointCloud const& geometry, std::span<double const> a, std::span<double const> b);
  void add_label_shifts(Side side);
  /// The constant in the rows' shift.
  double constant() const;
  Cloud const& cloud(Side side) const { return *clouds_[static_cast<int>(side)]; }

  PointCost cost_;
  ScoreForm form_;
  std::shared_ptr<Cloud const> clouds_[2];
  std::vector<double> shift_[2];
  std::shared_ptr<Cloud const> undirected_[2];  // Clouds of the cosine only, whose features are directions.
  std::shared_ptr<PointLabels const> labels_;   // Null without labels.
  PackedLabels<T> packed_labels_[2];
  std::shared_ptr<std::vector<T> const> label_scores_[2];  // Tables for stripes whose rows are points of the side.
};

}  // namespace monge::cpu
