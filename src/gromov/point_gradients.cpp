#include <tuple>
#include <vector>

#include "core/strided.hpp"
#include "geometry/validation.hpp"
#include "gromov/point_problem.hpp"

namespace monge {
namespace {

/// The images of one side's points, norms and features, from which derivatives of the other side are made.
struct Images {
  DenseMatrix points, features;  // P y, P t
  DenseVector norms;             // P Y
};

Images images_of(Gromov const& result, GromovSide const& of, std::int64_t size, bool transposed) {
  std::int64_t const d = of.points.cols(), r = of.features.cols();
  DenseMatrix values(of.points.rows(), 1 + d + r);
  values << of.norms, of.points, of.features;
  DenseMatrix images = DenseMatrix::Zero(size, 1 + d + r);
  if (result.plan) {
    transposed ? result.plan->apply_transpose(view_of(values), view_of(images))
               : result.plan->apply(view_of(values), view_of(images));
  } else {
    for_each_entry(*result.exact, [&](std::int64_t i, std::int64_t j, double mass) {
      images.row(transposed ? j : i) += mass * values.row(transposed ? i : j);
    });
  }
  return {images.middleCols(1, d), images.rightCols(r), images.col(0)};
}

/// The derivatives by one side, whose cross moment with the other one is `cross`.
struct SideGradients {
  PointProblem const& problem;
  GromovSide const &own, &other;
  Images const& images;
  DenseMatrix const& cross;

  DenseVector third() const { return own.points.transpose() * own.weights.cwiseProduct(own.norms); }
  DenseVector mixed() const { return own.points.transpose() * images.norms; }

  DenseMatrix by_points() const {
    DenseVector const shift = mixed() - third();
    DenseVector const factor = problem.total() * own.weights.cwiseProduct(own.norms) +
                               (own.norm - other.norm) * own.weights - problem.total() * images.norms;
    DenseMatrix result = factor.asDiagonal() * own.points + 2 * own.weights.asDiagonal() * own.points * own.moment -
                         2 * images.points * cross.transpose();
    result += own.weights * shift.transpose();
    return 8 * problem.alpha() * result;
  }

  DenseMatrix by_features() const {
    DenseVector const offset = own.centre_of_features - other.centre_of_features;
    DenseMatrix result = own.weights.asDiagonal() * own.features - images.features;
    result += own.weights * offset.transpose();
    return 2 * (1 - problem.alpha()) * result;
  }

  /// The part of the potential of each point that the costs of the last step leave out.
  DenseVector potential() const {
    double const alpha = problem.alpha(), total = problem.total();
    DenseVector const x = own.norms;
    DenseVector square = total * x.cwiseAbs2() + 2 * own.norm * x +
                         4 * (own.points * own.moment).cwiseProduct(own.points).rowwise().sum() -
                         4 * own.points * third();
    square.array() += own.square;
    DenseVector result = alpha * (2 * square - 4 * other.norm * x + 8 * own.points * mixed());
    if (own.features.cols() > 0)
      result += (1 - alpha) * (own.features.rowwise().squaredNorm() +
                               2 * own.features * (own.centre_of_features - other.centre_of_features));
    return result;
  }
};

}  // namespace

void PointProblem::check_gradients(GromovGradients const& out) const {
  GromovSide const &x = source_, &y = target_;
  Device const host;
  auto const check = [&](char const* field, MutableMatrixView view, DenseMatrix const& like) {
    if (view.data() != nullptr) validate_matrix(field, view, like.rows(), like.cols(), host);
  };
  check("x", out.x, x.points);
  check("y", out.y, y.points);
  check("s", out.s, x.features);
  check("t", out.t, y.features);
  for (auto const& [field, view, size] : {std::tuple{"a", out.a, a_.size()}, {"b", out.b, b_.size()}})
    if (view.data() != nullptr) validate_vector(field, view, size, host);
}

void PointProblem::gradients(Gromov const& result, GromovGradients const& out) const {
  GromovSide const &x = source_, &y = target_;
  check_gradients(out);
  Images const of_x = images_of(result, y, x.points.rows(), false), of_y = images_of(result, x, y.points.rows(), true);
  DenseMatrix const cross = x.points.transpose() * of_x.points, turned = cross.transpose();
  SideGradients const source{*this, x, y, of_x, cross}, target{*this, y, x, of_y, turned};
  if (out.x.data() != nullptr) write(source.by_points(), out.x);
  if (out.y.data() != nullptr) write(target.by_points(), out.y);
  if (out.s.data() != nullptr) write(source.by_features(), out.s);
  if (out.t.data() != nullptr) write(target.by_features(), out.t);
  double const constant =
      result.report.eps * (total_ - 1) + ((1 - alpha_) * offset_ / total_ - 4 * alpha_ * x.norms.dot(of_x.norms)) / 2;
  auto const potential = [&](MutableVectorView to, SideGradients const& side, std::vector<double> const& linear) {
    if (to.data() == nullptr) return;
    DenseVector const rest = side.potential();
    write_vector(to, [&](std::int64_t i) { return linear[to_size(i)] + rest(i) + constant; });
  };
  potential(out.a, source, result.plan ? result.plan->f() : result.exact->f);
  potential(out.b, target, result.plan ? result.plan->g() : result.exact->g);
}

}  // namespace monge
