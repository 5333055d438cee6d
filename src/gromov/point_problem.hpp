// A Gromov-Wasserstein problem of points: no step has an n x m array (docs/math.md, section 21).
#pragma once
#include <optional>
#include <vector>

#include "gromov/gromov_problem.hpp"

namespace monge {

/// One side: points and features, centred at their weighted means, and moments of the points.
struct GromovSide {
  DenseMatrix points, features;
  DenseVector weights;
  DenseVector centre, centre_of_features;
  DenseVector norms;          // |x_i|^2
  DenseMatrix moment;         // sum_i a_i x_i x_i^T
  double norm = 0;            // sum_i a_i |x_i|^2
  double square = 0;          // sum_i a_i |x_i|^4
  double feature_spread = 0;  // sum_i a_i |s_i|^2
};

class PointProblem : public GromovProblem, public GromovFeatures {
 public:
  /// Reads and checks all arguments.
  PointProblem(Backend const& backend, GromovClouds const& clouds, VectorView a, VectorView b,
               GromovOptions const& options);

  GromovSide const& source() const { return source_; }
  GromovSide const& target() const { return target_; }
  /// |mean s - mean t|^2 sum a, a part of <M, P>.
  double feature_offset() const { return offset_; }

  GromovBound bound(Context const& context, ExactOptions const& watched) const override;
  GromovBound descriptor_bound(Context const& context, ExactOptions const& watched) const override;
  std::vector<StartingPoint> starts(Context const& context, GromovOptions const& options,
                                    std::optional<DenseMatrix> const& described) const override;
  std::optional<ImagePolytope> polytope() const override;

  // The image of a plan is its cross moment.
  void linearise(DenseMatrix const& cross, DenseMatrix& u, DenseMatrix& v) const override;
  double curvature(DenseMatrix const& cross) const override { return 8 * alpha_ * cross.squaredNorm(); }
  double norm(DenseMatrix const& cross) const override { return cross.norm(); }
  DenseMatrix start_of(DenseMatrix const& cross) const override { return cross; }
  DenseMatrix image_of(Plan const& plan) const override;
  GromovValue value_of(Plan const& plan, DenseVector& row, DenseVector& column) const override;
  GromovValue value_of(ExactPlan const& plan) const override;

  void gradients(Gromov const& result, GromovGradients const& out) const override;
  GromovFeatures const* features() const override { return this; }
  void source_features(Backend const& backend, Gromov const& result, MatrixView points, MatrixView features,
                       MutableMatrixView out) const override;

 protected:
  bool puts_cross_at_source() const { return target_.points.cols() <= source_.points.cols(); }
  /// The vectors u of points at this image.
  virtual DenseMatrix features_at_source(DenseMatrix const& points, DenseMatrix const& features,
                                         DenseMatrix const& image) const;
  void check_gradients(GromovGradients const& out) const;
  /// E of a plan with this cross moment, `norms` = sum_ij P_ij (|x_i|^2 - |y_j|^2)^2.
  double quadratic(DenseMatrix const& cross, double norms) const;

  GromovSide source_, target_;  // Their weights are those of the product plan.
  double offset_ = 0;
};

}  // namespace monge
