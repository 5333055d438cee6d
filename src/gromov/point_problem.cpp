#include "gromov/point_problem.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/numbers.hpp"
#include "entropic/input.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"
#include "gromov/gromov_state.hpp"

namespace monge {
namespace {

/// The weighted mean, which is taken from each row.
DenseVector centre(char const* field, DenseMatrix& points, DenseVector const& weights) {
  std::vector<double> const mean = centre_of(field, view_of(points), {weights.data(), to_size(weights.size())});
  DenseVector centre = Eigen::Map<DenseVector const>(mean.data(), points.cols());
  points.rowwise() -= centre.transpose();
  return centre;
}

/// `points` has been read with the other side's, whose dimension may differ.
GromovSide side_of(Backend const& backend, char const* field, MatrixView points, char const* feature_field,
                   MatrixView features, DenseVector const& weights) {
  GromovSide side;
  side.points = read_finite(field, backend, points);
  side.weights = weights;
  side.centre = centre(field, side.points, side.weights);
  side.norms = side.points.rowwise().squaredNorm();
  for (std::int64_t i = 0; i < side.norms.size(); ++i)
    require(std::isfinite(side.norms(i) * side.norms(i)),
            "{}: row {} lies {:.3g} from the mean; the fourth power of distances must be finite", field, i,
            side.points.row(i).norm());
  side.norm = side.weights.dot(side.norms);
  side.square = side.weights.dot(side.norms.cwiseAbs2());
  side.moment = side.points.transpose() * side.weights.asDiagonal() * side.points;
  side.features = DenseMatrix(side.points.rows(), 0);
  if (features.columns() > 0) {
    side.features = read_finite(feature_field, backend, features);
    side.centre_of_features = centre(feature_field, side.features, side.weights);
    side.feature_spread = side.weights.dot(side.features.rowwise().squaredNorm());
  }
  return side;
}

GromovClouds const& valid(GromovClouds const& clouds, Device context) {
  auto const points = [&](char const* field, MatrixView view) {
    require(view.rows() > 0 && view.columns() > 0, "{}: is {} x {}; must have at least one point and dimension", field,
            view.rows(), view.columns());
    validate_matrix(field, view, view.rows(), view.columns(), context);
  };
  points("x", clouds.x);
  points("y", clouds.y);
  validate_features(clouds.s, clouds.t, clouds.x.rows(), clouds.y.rows(), context);
  return clouds;
}

/// The sum of (X_i - Y_j)^2 under P from <P, X Y^T>, with the marginals a and b.
double squared_difference(GromovSide const& x, GromovSide const& y, double product) {
  return std::max(x.square + y.square - 2 * product, 0.0);
}

}  // namespace

PointProblem::PointProblem(Backend const& backend, GromovClouds const& clouds, VectorView a, VectorView b,
                           GromovOptions const& options)
    : GromovProblem(backend, {valid(clouds, backend.device()).x.rows(), clouds.y.rows(), clouds.x.columns()}, a, b,
                    options) {
  source_ = side_of(backend, "x", clouds.x, "s", clouds.s, first_a_);
  target_ = side_of(backend, "y", clouds.y, "t", clouds.t, first_b_);
  bool const fused = source_.features.cols() > 0;
  alpha_ = fused ? options.alpha : 1;
  if (fused) offset_ = (source_.centre_of_features - target_.centre_of_features).squaredNorm() * total_;
  constant_ = alpha_ * (2 * total_ * (source_.square + target_.square) + 2 * std::pow(source_.norm - target_.norm, 2) +
                        4 * (source_.moment.squaredNorm() + target_.moment.squaredNorm())) +
              (1 - alpha_) * (source_.feature_spread + target_.feature_spread + offset_);
  require(std::isfinite(constant_), "x, y: the objective is up to {}; must be finite, so scale points or weights",
          constant_);
  size_ = constant_;  // All of its terms are positive, and the others are no larger.
  largest_ = std::sqrt(source_.norm * target_.norm);
}

DenseMatrix PointProblem::features_at_source(DenseMatrix const& points, DenseMatrix const& features,
                                             DenseMatrix const& cross) const {
  DenseMatrix u(points.rows(), 1 + std::min(cross.rows(), cross.cols()) + features.cols());
  u.col(0) = 4 * alpha_ * total_ * points.rowwise().squaredNorm();
  auto middle = u.middleCols(1, std::min(cross.rows(), cross.cols()));
  if (puts_cross_at_source()) {
    middle = 16 * alpha_ * (points * cross);
  } else {
    middle = points;
  }
  u.rightCols(features.cols()) = 2 * (1 - alpha_) * features;
  return u;
}

void PointProblem::linearise(DenseMatrix const& cross, DenseMatrix& u, DenseMatrix& v) const {
  GromovSide const &x = source_, &y = target_;
  u = features_at_source(x.points, x.features, cross);
  v.resize(y.points.rows(), u.cols());
  DenseMatrix const middle =
      puts_cross_at_source() ? y.points : DenseMatrix(16 * alpha_ * (y.points * cross.transpose()));
  v << y.norms, middle, y.features;
}

double PointProblem::quadratic(DenseMatrix const& cross, double norms) const {
  double const rest = source_.moment.squaredNorm() + target_.moment.squaredNorm() - 2 * cross.squaredNorm();
  return 2 * total_ * norms + 2 * std::pow(source_.norm - target_.norm, 2) + 4 * std::max(rest, 0.0);
}

GromovValue PointProblem::value_of(Plan const& plan, DenseVector& row, DenseVector& column) const {
  GromovSide const &x = source_, &y = target_;
  std::int64_t const n = plan.rows(), m = plan.columns(), q = y.points.cols(), r = x.features.cols();
  // diag(keep) P diag(cut) has marginals of at most a and b; the rest, rank one, brings them there.
  row.resize(n);
  column.resize(m);
  plan.marginals(view_of(row), view_of(column));
  DenseMatrix const keep = x.weights.binaryExpr(row, factor_to);
  DenseMatrix kept(m, 1);
  plan.apply_transpose(view_of(keep), view_of(kept));
  DenseVector const cut = y.weights.binaryExpr(kept.col(0), factor_to);
  DenseMatrix values(m, 2 + q + r);
  values << cut, cut.asDiagonal() * y.norms, cut.asDiagonal() * y.points, cut.asDiagonal() * y.features;
  DenseMatrix images(n, 2 + q + r);
  plan.apply(view_of(values), view_of(images));
  images = keep.col(0).asDiagonal() * images;
  DenseVector const lack = (x.weights - images.col(0)).cwiseMax(0.0);
  DenseVector const short_of = (y.weights - cut.cwiseProduct(kept.col(0))).cwiseMax(0.0);
  if (double const missing = short_of.sum(); missing > 0) {
    DenseMatrix mean(1, 2 + q + r);
    mean << missing, short_of.dot(y.norms), short_of.transpose() * y.points, short_of.transpose() * y.features;
    images += lack * (mean / missing);
  }
  GromovValue value;
  value.image = x.points.transpose() * images.middleCols(2, q);
  value.quadratic = quadratic(value.image, squared_difference(x, y, x.norms.dot(images.col(1))));
  double const product = x.features.cwiseProduct(images.rightCols(r)).sum();
  value.linear = std::max(x.feature_spread + y.feature_spread - 2 * product, 0.0) + offset_;
  return value;
}

GromovValue PointProblem::value_of(ExactPlan const& plan) const {
  GromovSide const &x = source_, &y = target_;
  GromovValue value;
  double norms = 0;
  DenseMatrix images = DenseMatrix::Zero(x.points.rows(), y.points.cols());
  for_each_entry(plan, [&](std::int64_t i, std::int64_t j, double mass) {
    images.row(i) += mass * y.points.row(j);
    norms += mass * std::pow(x.norms(i) - y.norms(j), 2);
    value.linear += mass * (x.features.row(i) - y.features.row(j)).squaredNorm();
  });
  value.image = x.points.transpose() * images;
  value.quadratic = quadratic(value.image, norms);
  value.linear += offset_;
  return value;
}

void PointProblem::source_features(Backend const& backend, Gromov const& result, MatrixView points, MatrixView features,
                                   MutableMatrixView out) const {
  std::int64_t const p = source_.points.cols(), r = source_.features.cols();
  validate_matrix("points", points, points.rows(), p, backend.device());
  validate_matrix("features", features, r > 0 ? points.rows() : features.rows(), r, backend.device());
  validate_matrix("out", out, points.rows(), std::ssize(result.u) / source_.points.rows(), Device{});
  DenseMatrix from = read_finite("points", backend, points), with = read_finite("features", backend, features);
  from.rowwise() -= source_.centre.transpose();
  if (r > 0) {
    with.rowwise() -= source_.centre_of_features.transpose();
  } else {
    with.resize(from.rows(), 0);
  }
  write(features_at_source(from, with, result.state->used), out);
}

DenseMatrix PointProblem::image_of(Plan const& plan) const {
  GromovSide const &x = source_, &y = target_;
  if (puts_cross_at_source()) {
    DenseMatrix images(plan.rows(), y.points.cols());
    plan.apply(view_of(y.points), view_of(images));
    return x.points.transpose() * images;
  }
  DenseMatrix images(plan.columns(), x.points.cols());
  plan.apply_transpose(view_of(x.points), view_of(images));
  return images.transpose() * y.points;
}

}  // namespace monge
