// Squared distances between two point clouds, scale |x_i - y_j|^2, each cloud centred at its own weighted mean.
#pragma once
#include <memory>
#include <vector>

#include <monge/geometry.hpp>

#include "cpu/costs.hpp"

namespace monge::cpu {

template <class T>
class PointCosts final : public Costs<T> {
 public:
  /// The centres are means under the weights a and b. Throws invalid_argument naming a coordinate that is not finite.
  PointCosts(PointCloud const& geometry, std::span<double const> a, std::span<double const> b);

  double bound() const override;
  double factor() const override;
  std::span<double const> norm(Side side) const override { return cloud(side).norm; }
  std::span<double const> shift(Side side) const override { return shift_[static_cast<int>(side)]; }
  ScoreSource<T> scores(Side rows) const override;
  std::unique_ptr<Costs<T> const> part(Side side, std::span<std::int64_t const> points) const override;
  std::shared_ptr<Costs<T> const> at(Side side, MatrixView points) const override;
  CentredPoints<T> const& points(Side side) const override { return cloud(side).points; }
  PointForm point_form() const override { return {-2 * scale_, 2 * scale_}; }

 private:
  struct Cloud {
    CentredPoints<T> points;
    double largest_squared_norm = 0;
    std::vector<double> norm;  // scale |x'_i|^2 of the rounded points; 0 where the score holds it.
  };

  PointCosts(double scale, ScoreForm form, std::shared_ptr<Cloud const> rows, std::shared_ptr<Cloud const> columns);
  static std::shared_ptr<Cloud const> finished(Cloud cloud, double scale, ScoreForm form);
  static std::shared_ptr<Cloud const> packed(char const* field, MatrixView points, std::span<double const> weights,
                                             double scale, ScoreForm form);
  std::vector<double> difference_of_centres() const;
  std::vector<double> shift_of(Side side, MatrixView points) const;
  Cloud const& cloud(Side side) const { return *clouds_[static_cast<int>(side)]; }

  double scale_;
  ScoreForm form_;
  std::shared_ptr<Cloud const> clouds_[2];
  std::vector<double> shift_[2];
};

}  // namespace monge::cpu
