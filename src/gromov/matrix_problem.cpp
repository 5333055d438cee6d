#include "gromov/matrix_problem.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/parallel.hpp"
#include "core/strided.hpp"
#include "entropic/input.hpp"
#include "geometry/validation.hpp"
#include "gromov/starts.hpp"
#include "plan/sampling.hpp"

namespace monge {
namespace {

template <class Left, class Right>
DenseMatrix product(int threads, Left const& left, Right const& right) {
  constexpr std::int64_t kWorthThreads = 1 << 20;  // Products of numbers, some 0.2 ms.
  if (left.rows() * left.cols() * right.cols() < kWorthThreads) threads = 1;
  DenseMatrix result(left.rows(), right.cols());
  parallel_ranges(threads, left.rows(), [&](std::int64_t begin, std::int64_t end) {
    result.middleRows(begin, end - begin).noalias() = left.middleRows(begin, end - begin) * right;
  });
  return result;
}

DenseMatrix dense(Plan const& plan) {
  DenseMatrix result(plan.rows(), plan.columns());
  plan.dense(view_of(result));
  return result;
}

DenseMatrix dense(ExactPlan const& plan) {
  DenseMatrix result = DenseMatrix::Zero(plan.rows(), plan.columns());
  for_each_entry(plan, [&](std::int64_t i, std::int64_t j, double mass) { result(i, j) = mass; });
  return result;
}

void validate_square(char const* field, MatrixView view, Device context) {
  require(view.rows() > 0 && view.rows() == view.columns(), "{}: is {} x {}; must be square, of at least one row",
          field, view.rows(), view.columns());
  validate_matrix(field, view, view.rows(), view.columns(), context);
}

/// The plan between weights that takes rows and columns in a random order.
DenseMatrix random_plan(DenseVector const& a, DenseVector const& b, int seed, std::uint64_t number) {
  DenseVector rows(a.size()), columns(b.size());
  for (double& key : rows) key = draw(static_cast<std::uint64_t>(seed), number++).row;
  for (double& key : columns) key = draw(static_cast<std::uint64_t>(seed), number++).row;
  DenseMatrix plan = DenseMatrix::Zero(a.size(), b.size());
  match_sorted(rows, columns, a, b, [&](std::int64_t i, std::int64_t j, double mass) { plan(i, j) += mass; });
  return plan;
}

}  // namespace

MatrixProblem::Side::Side(char const* field, Backend const& backend, MatrixView view, DenseVector const& weights,
                          double total)
    : matrix(read_finite(field, backend, view, "entries")) {
  double const largest = matrix.cwiseAbs().maxCoeff() * total;
  require(std::isfinite(4 * largest * largest),
          "{}: has entries of up to {:.3g}; the square, times that of the mass, "
          "must be finite",
          field, matrix.cwiseAbs().maxCoeff());
  symmetric = matrix == matrix.transpose();
  mean = weights.dot(matrix * weights) / total / total;
  matrix.array() -= mean;
  sums = matrix * weights + matrix.transpose() * weights;
  squares = matrix.cwiseAbs2() * weights + matrix.cwiseAbs2().transpose() * weights;
  square = weights.dot(squares) / 2;
}

MatrixProblem::MatrixProblem(Backend const& backend, GromovMatrices const& matrices, VectorView a, VectorView b,
                             GromovOptions const& options) {
  validate_square("source", matrices.source, backend.device());
  validate_square("target", matrices.target, backend.device());
  std::int64_t const n = matrices.source.rows(), m = matrices.target.rows();
  ValidMarginals const marginals =
      with_equal_totals(read_marginals(backend, a, b, {n, m, 0}), {.tolerance = 0}, "; totals must be equal");
  a_ = Eigen::Map<DenseVector const>(marginals.a.data(), n);
  b_ = Eigen::Map<DenseVector const>(marginals.b.data(), m);
  total_ = marginals.total_a;
  source_.emplace("source", backend, matrices.source, a_, total_);
  target_.emplace("target", backend, matrices.target, b_, total_);
  threads_ = host_threads(backend);
  concave_ = false;
  image_name_ = "plan";
  largest_ = std::min(a_.norm(), b_.norm());
  if (matrices.cost.data() != nullptr) {
    validate_matrix("cost", matrices.cost, n, m, backend.device());
    cost_ = read_finite("cost", backend, matrices.cost, "entries");
    alpha_ = options.alpha;
    least_ = (1 - alpha_) * total_ * cost_.minCoeff();
    size_ = (1 - alpha_) * total_ * cost_.cwiseAbs().maxCoeff();
  }
  offset_ = std::pow((source_->mean - target_->mean) * total_, 2);
  constant_ = alpha_ * (offset_ + source_->square + target_->square);
  size_ += constant_;
}

GromovBound MatrixProblem::bound(Context const&) const {
  // The norms of the centred matrices differ by no more than the matrices.
  double const difference = std::sqrt(source_->square) - std::sqrt(target_->square);
  return {alpha_ * (offset_ + difference * difference) + least_, {}};
}

GromovBound MatrixProblem::descriptor_bound(Context const& context) const {
  // Rows alone bound E, as columns do.
  auto const of = [&](Side const& side, DenseVector const& weights) {
    auto const row = [&](std::int64_t i, Eigen::Ref<DenseVector> out) { out = side.matrix.row(i).array() + side.mean; };
    auto const column = [&](std::int64_t i, Eigen::Ref<DenseVector> out) {
      out = side.matrix.col(i).array() + side.mean;
    };
    DenseMatrix const of_rows = descriptors(threads_, weights, total_, row);
    if (is_symmetric()) return of_rows;
    DenseMatrix both(of_rows.rows(), 2 * of_rows.cols());
    both << of_rows, descriptors(threads_, weights, total_, column);
    return DenseMatrix(std::sqrt(0.5) * both);
  };
  DenseMatrix const u = of(*source_, a_), v = of(*target_, b_);
  DenseMatrix cost(u.rows(), v.rows());
  parallel_for(threads_, u.rows(), [&](std::int64_t i) {
    cost.row(i) = alpha_ * (v.rowwise() - u.row(i)).rowwise().squaredNorm().transpose();
    if (is_fused()) cost.row(i) += (1 - alpha_) * cost_.row(i);
  });
  ExactPlan const plan = solve_exact(context, CostMatrix{view_of(cost)}, view_of(a_), view_of(b_));
  return {plan.report.dual, dense(plan)};
}

std::vector<StartingPoint> MatrixProblem::starts(Backend const& backend, GromovOptions const& options,
                                                 std::optional<DenseMatrix> const& described) const {
  std::optional<DenseMatrix> given = read_start(backend, options, a_.size(), b_.size());
  StartList list(options, given.has_value());
  if (given) {
    require((given->array() >= 0).all(), "cross_moment: has an entry of {:.3g}; a plan must be >= 0",
            given->minCoeff());
    make_feasible(*given);
    list.add(GromovStartKind::given, [&] { return image_of(*given); });
  }
  list.add(GromovStartKind::product, [&] { return image_of(DenseMatrix(a_ * (b_ / total_).transpose())); });
  if (described) list.add(GromovStartKind::descriptors, [&] { return image_of(*described); });
  for (std::uint64_t number = 0; options.starts > 0 && !list.is_full(); number += to_size(a_.size() + b_.size()))
    list.add(GromovStartKind::random, [&] { return image_of(random_plan(a_, b_, options.seed, number)); });
  for (StartingPoint& start : list.starts) start.value = value(value_of(start.image));
  return std::move(list.starts);
}

void MatrixProblem::linearise(DenseMatrix const& image, DenseMatrix& u, DenseMatrix& v) const {
  u = -4 * alpha_ * image.rightCols(b_.size());
  if (is_fused()) u += (1 - alpha_) * cost_;
  v.resize(0, 0);
}

double MatrixProblem::curvature(DenseMatrix const& image) const {
  std::int64_t const m = b_.size();
  return 2 * alpha_ * image.leftCols(m).cwiseProduct(image.rightCols(m)).sum();
}

DenseMatrix MatrixProblem::image_of(DenseMatrix const& plan) const {
  DenseMatrix const &c = source_->matrix, &d = target_->matrix;
  DenseMatrix image(plan.rows(), 2 * plan.cols());
  image.leftCols(plan.cols()) = plan;
  auto half = image.rightCols(plan.cols());
  half = product(threads_, product(threads_, c, plan), d.transpose());
  if (!is_symmetric()) half = (half + product(threads_, product(threads_, c.transpose(), plan), d)) / 2;
  return image;
}

DenseMatrix MatrixProblem::image_of(Plan const& plan) const {
  return image_of(dense(plan));
}

GromovValue MatrixProblem::value_of(DenseMatrix image) const {
  std::int64_t const m = b_.size();
  double const product = image.leftCols(m).cwiseProduct(image.rightCols(m)).sum();
  GromovValue value;
  value.quadratic = offset_ + std::max(source_->square + target_->square - 2 * product, 0.0);
  if (is_fused()) value.linear = image.leftCols(m).cwiseProduct(cost_).sum();
  value.image = std::move(image);
  return value;
}

GromovValue MatrixProblem::value_of(Plan const& plan, DenseVector& row, DenseVector& column) const {
  DenseMatrix entries = dense(plan);
  row = entries.rowwise().sum();
  column = entries.colwise().sum().transpose();
  make_feasible(entries);
  return value_of(image_of(entries));
}

GromovValue MatrixProblem::value_of(ExactPlan const& plan) const {
  return value_of(image_of(dense(plan)));
}

void MatrixProblem::make_feasible(DenseMatrix& plan) const {
  DenseVector const keep = a_.binaryExpr(plan.rowwise().sum(), factor_to);
  plan = keep.asDiagonal() * plan;
  DenseVector const cut = b_.binaryExpr(plan.colwise().sum().transpose(), factor_to);
  plan = plan * cut.asDiagonal();
  DenseVector const lack = (a_ - plan.rowwise().sum()).cwiseMax(0.0);
  DenseVector const short_of = (b_ - plan.colwise().sum().transpose()).cwiseMax(0.0);
  if (double const missing = short_of.sum(); missing > 0) plan += lack * (short_of / missing).transpose();
}

void MatrixProblem::gradients(Gromov const& result, GromovGradients const& out) const {
  DenseMatrix const &c = source_->matrix, &d = target_->matrix;
  std::int64_t const n = a_.size(), m = b_.size();
  for (auto const& [field, view, size] : {std::tuple{"x", out.x, n}, {"y", out.y, m}})
    if (view.data() != nullptr) validate_matrix(field, view, size, size, Device{});
  for (auto const& [field, view] : {std::pair{"s", out.s}, {"t", out.t}})
    require(view.data() == nullptr, "{}: is given; must be empty, since the problem has no features", field);
  for (auto const& [field, view, size] : {std::tuple{"a", out.a, n}, {"b", out.b, m}})
    if (view.data() != nullptr) validate_vector(field, view, size, Device{});

  DenseMatrix const plan = result.plan ? dense(*result.plan) : dense(*result.exact);
  DenseVector const row = plan.rowwise().sum(), column = plan.colwise().sum().transpose();
  double const shift = target_->mean - source_->mean;  // Both matrices less the mean of the source: c, and d + shift.
  auto const by_matrix = [&](MutableMatrixView to, DenseMatrix const& own, double difference, DenseVector const& mass,
                             DenseMatrix const& image) {
    if (to.data() == nullptr) return;
    DenseMatrix const squares = (own.array() + difference).matrix().cwiseProduct(mass * mass.transpose());
    write(2 * alpha_ * (squares - image), to);
  };
  auto const moved = [&](auto const& by, DenseMatrix const& matrix) {
    return product(threads_, product(threads_, by, matrix), by.transpose());
  };
  by_matrix(out.x, c, -shift, row, moved(plan, d));
  by_matrix(out.y, d, shift, column, moved(plan.transpose(), c));
  double const constant = result.report.eps * (total_ - 1);
  auto const potential = [&](MutableVectorView to, std::vector<double> const& linear, DenseVector const& rest) {
    if (to.data() != nullptr)
      write_vector(to, [&](std::int64_t i) { return linear[to_size(i)] + alpha_ * rest(i) + constant; });
  };
  potential(out.a, result.plan ? result.plan->f() : result.exact->f, source_->squares - 2 * shift * source_->sums);
  potential(out.b, result.plan ? result.plan->g() : result.exact->g,
            (target_->squares + 2 * shift * target_->sums).array() + 2 * shift * shift * total_);
}

void MatrixProblem::source_features(Backend const&, Gromov const&, MatrixView, MatrixView, MutableMatrixView) const {
  throw Error(ErrorCode::unsupported, "source_features: the problem is of matrices; must be of points");
}

}  // namespace monge
