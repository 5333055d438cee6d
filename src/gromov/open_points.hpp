// A Gromov-Wasserstein problem of points with open marginals (docs/math.md, section 21).
#pragma once
#include "gromov/point_problem.hpp"

namespace monge {

class OpenPointProblem final : public PointProblem, public OpenObjective {
 public:
  OpenPointProblem(Backend const& backend, GromovClouds const& clouds, VectorView a, VectorView b,
                   GromovOptions const& options);

  GromovBound bound(Context const&, ExactOptions const&) const override { return {least_, {}}; }
  GromovBound descriptor_bound(Context const& context, ExactOptions const& watched) const override;
  std::vector<StartingPoint> starts(Context const& context, GromovOptions const& options,
                                    std::optional<DenseMatrix> const& described) const override;

  // The image of a plan is the second moments sum_ij P_ij w w^T of w = (1, |x_i|^2 - |y_j|^2, x_i, y_j), and a row with
  // <M, P> and, of an unbalanced problem, UnbalancedTerms::divergence.
  void linearise(DenseMatrix const& image, DenseMatrix& u, DenseMatrix& v) const override;
  double curvature(DenseMatrix const& image) const override { return -alpha_ * energy(image); }
  double norm(DenseMatrix const& image) const override;
  DenseMatrix start_of(DenseMatrix const& image) const override { return image; }
  DenseMatrix image_of(Plan const& plan) const override;
  GromovValue value_of(Plan const& plan, DenseVector& row, DenseVector& column) const override;
  GromovValue value_of(ExactPlan const& plan) const override;
  OpenObjective const* open() const override { return this; }
  UnbalancedTerms terms_of(DenseMatrix const& image) const override;
  DenseMatrix scaled(DenseMatrix const& image, double factor) const override;
  void add_terms(DenseVector const& r, DenseVector const& c, DenseMatrix& u, DenseMatrix& v) const override;

  void gradients(Gromov const& result, GromovGradients const& out) const override;
  void source_features(Backend const& backend, Gromov const& result, MatrixView points, MatrixView features,
                       MutableMatrixView out) const override;

 private:
  double energy(DenseMatrix const& image) const;  // E
  DenseMatrix cross_moment(DenseMatrix const& image) const;
  /// The parts of w that depend on i alone, and on j alone.
  DenseMatrix source_parts() const;
  DenseMatrix target_parts() const;
  DenseMatrix features_at_source(DenseMatrix const& points, DenseMatrix const& features,
                                 DenseMatrix const& image) const override;
  /// 1, -|y_j|^2, y_j and t_j.
  DenseMatrix target_values() const;
  /// The image of a plan with these marginals, from its product with target_values().
  DenseMatrix image_of(DenseVector const& row, DenseVector const& column, DenseMatrix const& products) const;
  GromovValue value_of_image(DenseMatrix image) const;

  double unit_ = 1;  // A typical distance, by which all features have the unit of its square.
};

}  // namespace monge
