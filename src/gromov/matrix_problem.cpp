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
  constexpr std::int64_t kProductsOfPair = 4;  // Products of numbers in the time of a pair of a pass.
  DenseMatrix result(left.rows(), right.cols());
  int const useful = useful_threads(threads, left.rows(), left.cols() * right.cols() / kProductsOfPair);
  parallel_ranges(useful, left.rows(), [&](std::int64_t begin, std::int64_t end) {
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

/// The rows of a square matrix.
std::int64_t valid_size(char const* field, MatrixView view, Device context) {
  require(view.rows() > 0 && view.rows() == view.columns(), "{}: is {} x {}; must be square, of at least one row",
          field, view.rows(), view.columns());
  validate_matrix(field, view, view.rows(), view.columns(), context);
  return view.rows();
}

/// Added to both entries of the loss kl.
constexpr double kAddedToEntries = 1e-18;

/// The loss kl.
constexpr auto kKlLoss = [](double c, double d) { return (c > 0 ? c * std::log(c / d) : 0.0) - c + d; };

DenseMatrix squared_distances(DenseMatrix const& s, DenseMatrix const& t) {
  DenseMatrix result(s.rows(), t.rows());
  for (std::int64_t i = 0; i < s.rows(); ++i)
    result.row(i) = (t.rowwise() - s.row(i)).rowwise().squaredNorm().transpose();
  return result;
}

/// Classical scaling: the points (n x 3 at most) whose squared distances, times the sign, are near a symmetric matrix
/// but for terms of rows and of columns. A sign of 0 becomes the one that suits the matrix.
DenseMatrix scaled_points(int threads, DenseMatrix const& matrix, DenseVector const& weights, double& sign) {
  constexpr std::int64_t kAxes = 3, kColumns = 8, kIterations = 20;  // More columns converge in fewer iterations.
  DenseVector const roots = weights.cwiseSqrt();
  double const total = weights.sum();
  auto const moved = [&](DenseMatrix const& v) {  // -1/2 of the centred matrix, times sqrt(w) v.
    DenseMatrix const sources = roots.asDiagonal() * v;
    DenseMatrix images = product(threads, matrix, sources - weights / total * sources.colwise().sum()) / -2;
    images.rowwise() -= (weights.transpose() * images / total).eval();
    return images;
  };
  DenseMatrix axes(matrix.rows(), std::min(kColumns, matrix.rows()));
  std::uint64_t number = 0;
  for (double& entry : axes.reshaped()) entry = draw(0, number++).row - 0.5;
  for (std::int64_t k = 0; k < kIterations; ++k)
    axes = Eigen::HouseholderQR<DenseMatrix>(roots.asDiagonal() * moved(axes)).householderQ() *
           DenseMatrix::Identity(axes.rows(), axes.cols());
  DenseMatrix const images = moved(axes);
  Eigen::SelfAdjointEigenSolver<DenseMatrix> const found(axes.transpose() * roots.asDiagonal() * images);
  DenseVector const& moments = found.eigenvalues();
  double const largest = moments.cwiseAbs().maxCoeff();
  if (sign == 0) sign = moments.maxCoeff() < largest ? -1 : 1;
  auto const scale = [&](double moment) { return sign * moment > 1e-9 * largest ? 1 / std::sqrt(sign * moment) : 0.0; };
  DenseMatrix const points = images * found.eigenvectors() * moments.unaryExpr(scale).asDiagonal();
  std::int64_t const most = std::min(kAxes, points.cols());
  return sign > 0 ? points.rightCols(most) : points.leftCols(most);
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
                          GromovLoss loss, bool is_target)
    : matrix(read_finite(field, backend, view, "entries")), is_log(loss == GromovLoss::kl && is_target) {
  double const total = weights.sum(), largest = matrix.cwiseAbs().maxCoeff() * total;
  require(std::isfinite(4 * largest * largest),
          "{}: has entries of up to {:.3g}; the square, times that of the mass, must be finite", field,
          matrix.cwiseAbs().maxCoeff());
  if (loss == GromovLoss::kl) {
    Eigen::Index i = 0, k = 0;
    double const least = matrix.minCoeff(&i, &k);
    require(least >= 0, "{}: row {}, column {} is {}; entries must be >= 0 for the loss kl", field, i, k, least);
    matrix.array() += kAddedToEntries;
  }
  symmetric = matrix == matrix.transpose();
  if (is_log) matrix = matrix.array().log() / 2;
  mean = weights.dot(matrix * weights) / total / total;
  matrix.array() -= mean;
  if (is_log) mean = std::exp(2 * mean);
}

DenseMatrix MatrixProblem::Side::entries() const {
  return is_log ? DenseMatrix(mean * (2 * matrix.array()).exp()) : DenseMatrix(matrix.array() + mean);
}

MatrixProblem::MatrixProblem(Backend const& backend, GromovMatrices const& matrices, VectorView a, VectorView b,
                             GromovOptions const& options)
    : GromovProblem(backend,
                    {valid_size("source", matrices.source, backend.device()),
                     valid_size("target", matrices.target, backend.device()), 0},
                    a, b, options),
      loss_(matrices.loss) {
  source_.emplace("source", backend, matrices.source, first_a_, loss_, false);
  target_.emplace("target", backend, matrices.target, first_b_, loss_, true);
  std::int64_t const n = a_.size(), m = b_.size();
  threads_ = host_threads(backend);
  concave_ = false;
  image_name_ = "plan";
  largest_ = std::min(a_.norm(), b_.norm());
  double const mean = source_->mean, scale = target_->mean, difference = mean - scale;
  if (loss_ == GromovLoss::kl) {
    source_->own = source_->matrix.unaryExpr([&](double c) { return kKlLoss(c + mean, scale); });
    target_->own = target_->matrix.unaryExpr([&](double d) { return scale * std::expm1(2 * d) - 2 * mean * d; });
  } else {
    source_->own = source_->matrix.unaryExpr([&](double c) { return c * (c + 2 * difference); });
    target_->own = target_->matrix.unaryExpr([&](double d) { return std::pow(d - difference, 2); });
  }
  of_product_ = (first_a_.dot(source_->slopes(first_a_)) + first_b_.dot(target_->slopes(first_b_))) / 2;
  validate_features(matrices.s, matrices.t, n, m, backend.device());
  bool const has_features = matrices.s.data() != nullptr;
  if (matrices.cost.data() != nullptr) {
    require(!has_features, "cost: is given beside features; must be empty, or s and t");
    validate_matrix("cost", matrices.cost, n, m, backend.device());
    cost_ = read_finite("cost", backend, matrices.cost, "entries");
  } else if (has_features) {
    s_ = read_finite("s", backend, matrices.s);
    t_ = read_finite("t", backend, matrices.t);
    cost_ = squared_distances(s_, t_);
  }
  if (is_fused()) {
    alpha_ = options.alpha;
    least_ = (1 - alpha_) * total_ * cost_.minCoeff();
    size_ = (1 - alpha_) * total_ * cost_.cwiseAbs().maxCoeff();
  }
  constant_ = alpha_ * of_product_;
  size_ += constant_ + (loss_ == GromovLoss::kl ? alpha_ * mean * total_ * total_ : 0.0);
}

GromovBound MatrixProblem::bound(Context const&, ExactOptions const&) const {
  double const one = source_->mean, other = target_->mean;
  if (loss_ == GromovLoss::kl) {  // By Jensen's inequality.
    double const mean = b_.dot(target_->entries() * b_) / total_ / total_;
    return {alpha_ * total_ * total_ * kKlLoss(one, mean) + least_, {}};
  }
  // The norms of the centred matrices differ by no more than the matrices.
  auto const norm = [](Side const& side, DenseVector const& weights) {
    return std::sqrt(weights.dot(side.matrix.cwiseAbs2() * weights));
  };
  return {
      alpha_ * (std::pow((one - other) * total_, 2) + std::pow(norm(*source_, a_) - norm(*target_, b_), 2)) + least_,
      {}};
}

GromovBound MatrixProblem::descriptor_bound(Context const& context, ExactOptions const& watched) const {
  // Rows alone bound E, as columns do.
  auto const of = [&](Side const& side, DenseVector const& weights) {
    DenseMatrix const entries = side.entries();
    auto const row = [&](std::int64_t i, Eigen::Ref<DenseVector> out) { out = entries.row(i); };
    auto const column = [&](std::int64_t i, Eigen::Ref<DenseVector> out) { out = entries.col(i); };
    DenseMatrix of_rows = descriptors(threads_, weights, total_, row);
    if (is_symmetric()) return of_rows;
    DenseMatrix both(of_rows.rows(), 2 * of_rows.cols());
    both << of_rows, descriptors(threads_, weights, total_, column);
    return DenseMatrix(std::sqrt(0.5) * both);
  };
  DenseMatrix const u = of(*source_, first_a_), v = of(*target_, first_b_);
  DenseMatrix cost(u.rows(), v.rows());
  double const root = std::sqrt(total_ / static_cast<double>(u.cols()));  // A descriptor is a mean, times this root.
  parallel_for(useful_threads(threads_, u.rows() * v.rows(), u.cols()), u.rows(), [&](std::int64_t i) {
    if (loss_ == GromovLoss::kl) {
      for (std::int64_t j = 0; j < v.rows(); ++j)
        cost(i, j) = alpha_ * root * u.row(i).binaryExpr(v.row(j), kKlLoss).sum();
    } else {
      cost.row(i) = alpha_ * (v.rowwise() - u.row(i)).rowwise().squaredNorm().transpose();
    }
    if (is_fused()) cost.row(i) += (1 - alpha_) * cost_.row(i);
  });
  ExactPlan const plan = solve_exact(context, CostMatrix{view_of(cost)}, view_of(first_a_), view_of(first_b_), watched);
  return {plan.report.dual, dense(plan)};
}

std::vector<StartingPoint> MatrixProblem::starts(Context const& context, GromovOptions const& options,
                                                 std::optional<DenseMatrix> const& described) const {
  std::optional<DenseMatrix> given = read_start(backend_of(context), options, a_.size(), b_.size());
  StartList list(options, given.has_value());
  if (given) {
    require((given->array() >= 0).all(), "cross_moment: has an entry of {:.3g}; a plan must be >= 0",
            given->minCoeff());
    make_feasible(*given);
    list.add(GromovStartKind::given, [&] { return image_of(*given); });
  }
  list.add(GromovStartKind::product, [&] { return image_of(DenseMatrix(first_a_ * (first_b_ / total_).transpose())); });
  if (described) list.add(GromovStartKind::descriptors, [&] { return image_of(*described); });
  if (described && is_symmetric() && !list.is_full()) {
    double sign = 0;
    DenseMatrix const x = scaled_points(threads_, source_->matrix, first_a_, sign),
                      y = scaled_points(threads_, target_->matrix, first_b_, sign);
    Gromov const nearest =
        solve_gromov(context, GromovClouds{view_of(x), view_of(y)}, view_of(first_a_), view_of(first_b_), {});
    list.add(GromovStartKind::axes, [&] { return image_of(dense(*nearest.exact)); });
  }
  for (std::uint64_t number = 0; options.starts > 0 && !list.is_full(); number += to_size(a_.size() + b_.size()))
    list.add(GromovStartKind::random, [&] { return image_of(random_plan(first_a_, first_b_, options.seed, number)); });
  for (StartingPoint& start : list.starts) {
    start.value = value(value_of(start.image));
    start.is_plan = true;
  }
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
  value.quadratic = std::max(of_product_ - 2 * product, 0.0);
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
  for (auto const& [field, view, like] : {std::tuple{"s", out.s, &s_}, {"t", out.t, &t_}})
    if (view.data() != nullptr) validate_matrix(field, view, like->rows(), like->cols(), Device{});
  for (auto const& [field, view, size] : {std::tuple{"a", out.a, n}, {"b", out.b, m}})
    if (view.data() != nullptr) validate_vector(field, view, size, Device{});

  DenseMatrix const plan = result.plan ? dense(*result.plan) : dense(*result.exact);
  DenseVector const row = plan.rowwise().sum(), column = plan.colwise().sum().transpose();
  // The loss of two entries is f + f' - 2 v v'. By one entry `own` is the derivative of f, and `factor` that of v. The
  // sum of the other factor v' over the plan is `image`.
  auto const by_matrix = [&](MutableMatrixView to, DenseMatrix const& at, DenseVector const& mass,
                             DenseMatrix const& image, auto const& own, auto const& factor) {
    if (to.data() == nullptr) return;
    DenseMatrix const masses = mass * mass.transpose();
    write(alpha_ * (at.unaryExpr(own).cwiseProduct(masses) - 2 * at.unaryExpr(factor).cwiseProduct(image)), to);
  };
  auto const moved = [&](auto const& by, DenseMatrix const& matrix) {
    return product(threads_, product(threads_, by, matrix), by.transpose());
  };
  DenseMatrix const of_target = moved(plan, d), of_source = moved(plan.transpose(), c);
  double const mean = source_->mean, scale = target_->mean;
  auto const one = [](double) { return 1.0; };
  if (loss_ == GromovLoss::kl) {
    by_matrix(
        out.x, source_->entries(), row, of_target, [&](double c) { return std::log(c / scale); }, one);
    by_matrix(
        out.y, target_->entries(), column, of_source, [&](double d) { return 1 - mean / d; },
        [](double d) { return 0.5 / d; });
  } else {
    by_matrix(
        out.x, source_->entries(), row, of_target, [&](double c) { return 2 * (c - scale); }, one);
    by_matrix(
        out.y, target_->entries(), column, of_source, [&](double d) { return 2 * (d - mean); }, one);
  }
  if (out.s.data() != nullptr) write(2 * (1 - alpha_) * (row.asDiagonal() * s_ - plan * t_), out.s);
  if (out.t.data() != nullptr) write(2 * (1 - alpha_) * (column.asDiagonal() * t_ - plan.transpose() * s_), out.t);
  double const constant = result.report.eps * (total_ - 1);
  auto const potential = [&](MutableVectorView to, std::vector<double> const& linear, DenseVector const& rest) {
    if (to.data() != nullptr)
      write_vector(to, [&](std::int64_t i) { return linear[to_size(i)] + alpha_ * rest(i) + constant; });
  };
  potential(out.a, result.plan ? result.plan->f() : result.exact->f, source_->slopes(a_));
  potential(out.b, result.plan ? result.plan->g() : result.exact->g, target_->slopes(b_));
}

}  // namespace monge
