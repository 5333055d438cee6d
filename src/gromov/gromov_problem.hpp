// A Gromov-Wasserstein problem of points: what its objective and its steps are made of (docs/math.md, section 21).
#pragma once
#include <vector>

#include <monge/gromov.hpp>

#include "gromov/matrix.hpp"
#include "seam/backend.hpp"

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

/// What the objective needs of a plan with the marginals a and b.
struct PlanMoments {
  DenseMatrix cross;    // sum_ij P_ij x_i y_j^T
  double norms = 0;     // sum_ij P_ij (|x_i|^2 - |y_j|^2)^2
  double features = 0;  // sum_ij P_ij |s_i - t_j|^2, of the given features
};

/// The values of a matrix, which must be finite.
DenseMatrix read_finite(char const* field, Backend const& backend, MatrixView view);

class GromovProblem {
 public:
  /// Reads and checks all arguments.
  GromovProblem(Context const& context, GromovClouds const& clouds, VectorView a, VectorView b,
                GromovOptions const& options);

  GromovSide const& source() const { return source_; }
  GromovSide const& target() const { return target_; }
  double alpha() const { return alpha_; }
  double total() const { return total_; }
  /// |mean s - mean t|^2 sum a, a part of <M, P>.
  double feature_offset() const { return offset_; }
  /// The largest norm that a cross moment may have.
  double largest_cross() const;

  /// The features u, v of the cost C_ij = -<u_i, v_j> whose linear problem is the objective's, linearised at a plan
  /// with the cross moment A, but for terms of i or of j alone.
  void linearise(DenseMatrix const& cross, DenseMatrix& u, DenseMatrix& v) const;
  /// u of new points, with their features.
  DenseMatrix source_features(DenseMatrix points, DenseMatrix features, DenseMatrix const& cross) const;
  /// c of value(P) = c + <C, P> + 8 alpha (|A|^2 - |A - G|^2), for P with the marginals a and b and the cross moment G.
  /// The largest of its terms, so the size of rounding.
  double constant() const { return constant_; }

  double quadratic(PlanMoments const& moments) const;
  double value(PlanMoments const& moments) const {
    return alpha_ * quadratic(moments) + (1 - alpha_) * moments.features;
  }

  /// The moments of P after its rows and columns were moved to the marginals a and b. Writes P 1 and P^T 1 of P as it
  /// is.
  PlanMoments moments_of(Plan const& plan, DenseVector& row, DenseVector& column) const;
  PlanMoments moments_of(ExactPlan const& plan) const;
  /// The cross moment of P as it is, in the precision of its products.
  DenseMatrix cross_of(Plan const& plan) const;

 private:
  bool puts_cross_at_source() const { return target_.points.cols() <= source_.points.cols(); }
  DenseMatrix features_at_source(DenseMatrix const& points, DenseMatrix const& features,
                                 DenseMatrix const& cross) const;

  GromovSide source_, target_;
  double alpha_ = 1, total_ = 1, constant_ = 0;
  double offset_ = 0;
};

}  // namespace monge
