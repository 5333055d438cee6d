#include "gromov/open_points.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "geometry/validation.hpp"

namespace monge {
namespace {

DenseMatrix product(Plan const& plan, DenseMatrix const& values, bool transposed) {
  DenseMatrix result(transposed ? plan.columns() : plan.rows(), values.cols());
  transposed ? plan.apply_transpose(view_of(values), view_of(result)) : plan.apply(view_of(values), view_of(result));
  return result;
}

DenseMatrix product(ExactPlan const& plan, DenseMatrix const& values, bool transposed) {
  DenseMatrix result = DenseMatrix::Zero(transposed ? plan.columns() : plan.rows(), values.cols());
  for_each_entry(plan, [&](std::int64_t i, std::int64_t j, double mass) {
    result.row(transposed ? j : i) += mass * values.row(transposed ? i : j);
  });
  return result;
}

/// T K, for the matrix K by which |x_i - x_k|^2 - |y_j - y_l|^2 = w_ij^T K w_kl.
DenseMatrix by_metric(DenseMatrix const& second, std::int64_t p) {
  DenseMatrix result = 2 * second;
  result.middleCols(2, p) *= -1;
  result.col(0) = second.col(1);
  result.col(1) = second.col(0);
  return result;
}

/// Second moments, seen from the means of the plan.
struct Centred {
  Centred(DenseMatrix const& image, std::int64_t p, std::int64_t q)
      : second(image.topRows(2 + p + q)),
        mass(second(0, 0)),
        x(second.col(0).segment(2, p) / mass),
        y(second.col(0).tail(q) / mass) {
    auto const move = [&](auto&& rows) {
      rows.row(1) += (x.squaredNorm() - y.squaredNorm()) * rows.row(0) - 2 * x.transpose() * rows.middleRows(2, p) +
                     2 * y.transpose() * rows.bottomRows(q);
      rows.middleRows(2, p) -= x * rows.row(0);
      rows.bottomRows(q) -= y * rows.row(0);
    };
    move(second);
    move(second.transpose());
  }

  DenseMatrix second;
  double mass;
  DenseVector x, y;
};

}  // namespace

OpenPointProblem::OpenPointProblem(Backend const& backend, GromovClouds const& clouds, VectorView a, VectorView b,
                                   GromovOptions const& options)
    : PointProblem(backend, clouds, a, b, options) {
  if (target_.features.cols() > 0) {
    DenseVector const shift = target_.centre_of_features - source_.centre_of_features;
    target_.features.rowwise() += shift.transpose();
    target_.centre_of_features = source_.centre_of_features;
  }
  offset_ = 0;
  constant_ = 0;
  concave_ = false;
  // Points of a weight of nearly nothing may be far away, and semi-relaxed plans may go there.
  constexpr double kLeast = 1e-16;
  auto const farthest = [](DenseVector const& norms, DenseVector const& weights) {
    return (weights.array() > 0).select(norms, 0.0).maxCoeff();
  };
  double const size = std::max((source_.norm + target_.norm) / total_,
                               kLeast * std::max(farthest(source_.norms, a_), farthest(target_.norms, b_)));
  if (size > 0) unit_ = std::sqrt(size);
  largest_ = total_ * size * size;
  image_name_ = "moments";
}

GromovBound OpenPointProblem::descriptor_bound(Context const& context, ExactOptions const& watched) const {
  return {least_, cross_moment(*PointProblem::descriptor_bound(context, watched).start)};
}

std::vector<StartingPoint> OpenPointProblem::starts(Context const& context, GromovOptions const& options,
                                                    std::optional<DenseMatrix> const& described) const {
  std::int64_t const p = source_.points.cols(), q = target_.points.cols(), d = 2 + p + q;
  GromovOptions by_cross_moments = options;
  std::optional<DenseMatrix> image_given;
  DenseMatrix given;
  if (options.cross_moment.rows() == d + 1 && options.cross_moment.columns() == d) {
    image_given = read_start(backend_of(context), options, d + 1, d);
    require((*image_given)(0, 0) > 0, "cross_moment: has a mass of {:.3g}; must be > 0", (*image_given)(0, 0));
    given = cross_moment(*image_given);
    by_cross_moments.cross_moment = view_of(given);
  }
  std::vector<StartingPoint> starts = PointProblem::starts(context, by_cross_moments, described);
  // The image of the product plan, but for the cross moment.
  DenseMatrix const mean = first_b_.transpose() * target_values() / total_;
  DenseMatrix product = image_of(first_a_, first_b_, first_a_ * mean);
  if (is_unbalanced()) {
    double const of_a = std::log(total_ / a_.sum()), of_b = std::log(total_ / b_.sum());
    product(d, 1) = total_ * ((penalty_a_ + eps_) * of_a + (penalty_b_ + eps_) * of_b - eps_ * std::log(total_));
  }
  for (StartingPoint& start : starts) {
    bool const has_image = start.kind == GromovStartKind::given && image_given;
    DenseMatrix image = has_image ? *image_given : product;
    if (!has_image) {
      image.block(2, 2 + p, p, q) += start.image;
      image.block(2 + p, 2, q, p) += start.image.transpose();
    }
    if (has_image || start.kind == GromovStartKind::product) start.value = terms_of(image).value;
    start.image = std::move(image);
  }
  return starts;
}

DenseMatrix OpenPointProblem::source_parts() const {
  DenseMatrix parts = DenseMatrix::Zero(a_.size(), 2 + source_.points.cols() + target_.points.cols());
  parts.col(0).setOnes();
  parts.col(1) = source_.norms;
  parts.middleCols(2, source_.points.cols()) = source_.points;
  return parts;
}

DenseMatrix OpenPointProblem::target_parts() const {
  DenseMatrix parts = DenseMatrix::Zero(b_.size(), 2 + source_.points.cols() + target_.points.cols());
  parts.col(1) = -target_.norms;
  parts.rightCols(target_.points.cols()) = target_.points;
  return parts;
}

DenseMatrix OpenPointProblem::target_values() const {
  DenseMatrix values(b_.size(), 2 + target_.points.cols() + target_.features.cols());
  values << DenseVector::Ones(b_.size()), -target_.norms, target_.points, target_.features;
  return values;
}

DenseMatrix OpenPointProblem::image_of(DenseVector const& row, DenseVector const& column,
                                       DenseMatrix const& products) const {
  std::int64_t const p = source_.points.cols(), q = target_.points.cols(), d = 2 + p + q;
  DenseMatrix const of_x = source_parts(), of_y = target_parts();
  DenseMatrix mixed = DenseMatrix::Zero(d, d);
  mixed.col(1) = of_x.transpose() * products.col(1);
  mixed.rightCols(q) = of_x.transpose() * products.middleCols(2, q);
  DenseMatrix image = DenseMatrix::Zero(d + 1, d);
  image.topRows(d) = of_x.transpose() * row.asDiagonal() * of_x + of_y.transpose() * column.asDiagonal() * of_y +
                     mixed + mixed.transpose();
  DenseMatrix const &s = source_.features, &t = target_.features;
  image(d, 0) = row.dot(s.rowwise().squaredNorm()) + column.dot(t.rowwise().squaredNorm()) -
                2 * s.cwiseProduct(products.rightCols(s.cols())).sum();
  return image;
}

DenseMatrix OpenPointProblem::features_at_source(DenseMatrix const& points, DenseMatrix const& features,
                                                 DenseMatrix const& image) const {
  std::int64_t const p = source_.points.cols(), q = target_.points.cols(), k = std::min(p, q);
  Centred const at(image, p, q);
  DenseMatrix const x = points.rowwise() - at.x.transpose();
  DenseVector const norms = x.rowwise().squaredNorm(), third = at.second.row(1).segment(2, p);
  DenseMatrix const moved = x * at.second.block(2, 2, p, p);
  DenseVector own = 2 * alpha_ *
                    (2 * at.second(0, 1) * norms + at.mass * norms.cwiseAbs2() - 4 * x * third +
                     4 * moved.cwiseProduct(x).rowwise().sum());
  own += (1 - alpha_) * features.rowwise().squaredNorm();
  own.array() += 2 * alpha_ * at.second(1, 1);
  if (is_unbalanced() && !is_proximal_) own.array() += image(2 + p + q, 1);
  DenseMatrix u(x.rows(), 3 + k + features.cols());
  u.col(0) = 4 * alpha_ * at.mass * norms;
  if (puts_cross_at_source()) {
    u.middleCols(1, k) = 16 * alpha_ / unit_ * (x * at.second.block(2, 2 + p, p, q));
  } else {
    u.middleCols(1, k) = unit_ * x;
  }
  u.col(1 + k) = -own / (unit_ * unit_);
  u.col(2 + k).setConstant(unit_ * unit_);
  u.rightCols(features.cols()) = 2 * (1 - alpha_) * features;
  if (is_unbalanced()) u /= at.mass;
  return u;
}

void OpenPointProblem::linearise(DenseMatrix const& image, DenseMatrix& u, DenseMatrix& v) const {
  std::int64_t const p = source_.points.cols(), q = target_.points.cols(), k = std::min(p, q);
  u = features_at_source(source_.points, source_.features, image);
  Centred const at(image, p, q);
  DenseMatrix const y = target_.points.rowwise() - at.y.transpose();
  DenseVector const norms = y.rowwise().squaredNorm(), third = at.second.row(1).tail(q);
  DenseMatrix const moved = y * at.second.bottomRightCorner(q, q);
  DenseVector own = 2 * alpha_ *
                    (-2 * at.second(0, 1) * norms + at.mass * norms.cwiseAbs2() + 4 * y * third +
                     4 * moved.cwiseProduct(y).rowwise().sum());
  own += (1 - alpha_) * target_.features.rowwise().squaredNorm();
  v.resize(y.rows(), u.cols());
  v.col(0) = norms;
  if (puts_cross_at_source()) {
    v.middleCols(1, k) = unit_ * y;
  } else {
    v.middleCols(1, k) = 16 * alpha_ / unit_ * (y * at.second.block(2 + p, 2, q, p));
  }
  v.col(1 + k).setConstant(unit_ * unit_);
  v.col(2 + k) = -own / (unit_ * unit_);
  v.rightCols(target_.features.cols()) = target_.features;
}

double OpenPointProblem::energy(DenseMatrix const& image) const {
  DenseMatrix const turned = by_metric(image.topRows(image.cols()), source_.points.cols());
  return turned.cwiseProduct(turned.transpose()).sum();
}

double OpenPointProblem::norm(DenseMatrix const& image) const {
  DenseVector units = DenseVector::Constant(image.cols(), unit_);  // Those of E.
  units(0) = unit_ * unit_;
  units(1) = 1;
  return (units.asDiagonal() * image.topRows(image.cols()) * units.asDiagonal()).stableNorm();
}

DenseMatrix OpenPointProblem::cross_moment(DenseMatrix const& image) const {
  std::int64_t const p = source_.points.cols();
  return image.block(2, 2 + p, p, target_.points.cols());
}

DenseMatrix OpenPointProblem::image_of(Plan const& plan) const {
  DenseVector row, column;
  DenseMatrix image = value_of(plan, row, column).image;
  if (is_unbalanced()) {
    auto const sum = [](DenseVector const& weights, std::vector<double> const& values) {
      double sum = 0;
      for (std::int64_t i = 0; i < weights.size(); ++i) sum += weights(i) > 0 ? weights(i) * values[to_size(i)] : 0;
      return sum;
    };
    double& divergence = image(image.cols(), 1);
    divergence = penalty_a_ * relative_entropy(row, a_) + penalty_b_ * relative_entropy(column, b_);
    if (eps_ > 0) divergence += sum(row, plan.f()) + sum(column, plan.g()) - plan.transport_cost();
  }
  return image;
}

GromovValue OpenPointProblem::value_of_image(DenseMatrix image) const {
  GromovValue value;
  value.quadratic = std::max(energy(image), 0.0);
  value.linear = std::max(image(image.cols(), 0), 0.0);
  value.image = std::move(image);
  return value;
}

GromovValue OpenPointProblem::value_of(Plan const& plan, DenseVector& row, DenseVector& column) const {
  DenseMatrix products = product(plan, target_values(), false);
  row = products.col(0);
  DenseMatrix keep = DenseMatrix::Ones(a_.size(), 1);
  if (marginals_ == GromovMarginals::semirelaxed)
    keep = a_.binaryExpr(row, [](double weight, double mass) { return mass > 0 ? weight / mass : 1.0; });
  column = product(plan, keep, true);
  products = keep.col(0).asDiagonal() * products;
  return value_of_image(image_of(products.col(0), column, products));
}

GromovValue OpenPointProblem::value_of(ExactPlan const& plan) const {
  DenseMatrix const products = product(plan, target_values(), false);
  return value_of_image(image_of(products.col(0), product(plan, DenseMatrix::Ones(a_.size(), 1), true), products));
}

UnbalancedTerms OpenPointProblem::terms_of(DenseMatrix const& image) const {
  std::int64_t const d = image.cols();
  return {image(0, 0), alpha_ * energy(image) + (1 - alpha_) * image(d, 0), image(d, 1)};
}

DenseMatrix OpenPointProblem::scaled(DenseMatrix const& image, double factor) const {
  DenseMatrix result = factor * image;
  result(image.cols(), 1) += (penalty_a_ + penalty_b_ + eps_) * std::log(factor) * result(0, 0);
  return result;
}

void OpenPointProblem::add_terms(DenseVector const& r, DenseVector const& c, DenseMatrix& u, DenseMatrix& v) const {
  std::int64_t const first = 1 + std::min(source_.points.cols(), target_.points.cols());
  u.col(first) -= r / (unit_ * unit_);
  v.col(first + 1) -= c / u(0, first + 1);
}

void OpenPointProblem::source_features(Backend const& backend, Gromov const& result, MatrixView points,
                                       MatrixView features, MutableMatrixView out) const {
  if (is_unbalanced() && is_proximal_)
    throw Error(ErrorCode::unsupported,
                "source_features: the method is proximal and marginals are unbalanced; must be alternating");
  PointProblem::source_features(backend, result, points, features, out);
}

void OpenPointProblem::gradients(Gromov const& result, GromovGradients const& out) const {
  GromovSide const &x = source_, &y = target_;
  std::int64_t const p = x.points.cols(), q = y.points.cols(), r = x.features.cols();
  check_gradients(out);
  refuse_weights(out);
  auto const products = [&](DenseMatrix const& values, bool transposed) {
    return result.plan ? product(*result.plan, values, transposed) : product(*result.exact, values, transposed);
  };
  auto const values_of = [](DenseMatrix const& parts, DenseMatrix const& features) {
    DenseMatrix values(parts.rows(), 1 + parts.cols() + features.cols());
    values << DenseVector::Ones(parts.rows()), parts, features;
    return values;
  };
  DenseMatrix const of_x = source_parts(), of_y = target_parts();
  DenseMatrix const to_x = products(values_of(of_y, y.features), false),
                    to_y = products(values_of(of_x, x.features), true);
  // sum_j P_ij w_ij and sum_i P_ij w_ij; E = tr(T K T K), for T the second moments of w.
  DenseMatrix const by_x = to_x.col(0).asDiagonal() * of_x + to_x.middleCols(1, 2 + p + q),
                    by_y = to_y.col(0).asDiagonal() * of_y + to_y.middleCols(1, 2 + p + q);
  DenseMatrix const second = of_x.transpose() * by_x + of_y.transpose() * by_y;
  DenseMatrix const metric = by_metric(by_metric(second, p).transpose(), p);  // K T K
  DenseMatrix const slope_x = by_x * metric, slope_y = by_y * metric;
  auto const by_features = [&](DenseMatrix const& own, DenseMatrix const& images) {
    DenseMatrix const moved = images.col(0).asDiagonal() * own;
    return DenseMatrix(2 * (1 - alpha_) * (moved - images.rightCols(r)));
  };
  if (out.x.data() != nullptr) {
    DenseMatrix const radial = 2 * slope_x.col(1).asDiagonal() * x.points;
    write(4 * alpha_ * (radial + slope_x.middleCols(2, p)), out.x);
  }
  if (out.y.data() != nullptr) {
    DenseMatrix const radial = 2 * slope_y.col(1).asDiagonal() * y.points;
    write(4 * alpha_ * (slope_y.rightCols(q) - radial), out.y);
  }
  if (out.s.data() != nullptr) write(by_features(x.features, to_x), out.s);
  if (out.t.data() != nullptr) write(by_features(y.features, to_y), out.t);
}

}  // namespace monge
