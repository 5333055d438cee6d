#include "gromov/starts.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "gromov/branch_and_bound.hpp"
#include "gromov/point_problem.hpp"
#include "plan/sampling.hpp"
#include "seam/backend.hpp"

namespace monge {
namespace {

constexpr std::int64_t kBins = 32;
constexpr int kMostSigns = 3;
constexpr double kFlat = 1e-12;  // Moments of axes without extent, over the largest.

/// Directions and moments, the largest first.
struct PrincipalAxes {
  explicit PrincipalAxes(DenseMatrix const& moment) {
    Eigen::SelfAdjointEigenSolver<DenseMatrix> const found(moment);
    directions = found.eigenvectors().rowwise().reverse();
    moments = found.eigenvalues().reverse().cwiseMax(0.0);
  }
  DenseMatrix directions;  // Columns.
  DenseVector moments;
};

/// The exact plan for |u_i - v_j|^2 + (1 - alpha) M_ij. Its cost is at least the value of the bound.
GromovBound bound_by_plan(Context const& context, PointProblem const& problem, DenseMatrix const& u,
                          DenseMatrix const& v, ExactOptions const& watched) {
  GromovSide const &x = problem.source(), &y = problem.target();
  double const root = std::sqrt(1 - problem.alpha());
  DenseMatrix from(u.rows(), u.cols() + x.features.cols()), to(v.rows(), v.cols() + y.features.cols());
  from << u, root * x.features;
  to << v, root * y.features;
  ExactPlan const plan =
      solve_exact(context, PointCloud{view_of(from), view_of(to)}, view_of(x.weights), view_of(y.weights), watched);
  return {plan.report.dual, problem.value_of(plan).image};
}

/// Thin orthonormal factor of a matrix of normal numbers, p x q, of draws from `number` on.
DenseMatrix random_rotation(std::int64_t p, std::int64_t q, int seed, std::uint64_t number) {
  std::int64_t const most = std::max(p, q), least = std::min(p, q);
  DenseMatrix normal(most, least);
  for (std::int64_t i = 0; i < most; ++i) {
    for (std::int64_t k = 0; k < least; ++k) {
      Draw const uniform = draw(static_cast<std::uint64_t>(seed), number++);
      normal(i, k) = std::sqrt(-2 * std::log(uniform.row)) * std::cos(2 * std::numbers::pi * uniform.column);
    }
  }
  Eigen::HouseholderQR<DenseMatrix> const factors(normal);
  DenseMatrix const q_factor = factors.householderQ() * DenseMatrix::Identity(most, least);
  // The signs make it uniform.
  DenseVector const signs =
      factors.matrixQR().diagonal().head(least).unaryExpr([](double d) { return d < 0 ? -1.0 : 1.0; });
  DenseMatrix const rotation = q_factor * signs.asDiagonal();
  return p >= q ? rotation : DenseMatrix(rotation.transpose());
}

/// The skewness of each principal coordinate, of unknown size.
DenseVector third_moments(GromovSide const& side, PrincipalAxes const& axes) {
  return (side.points * axes.directions).array().cube().matrix().transpose() * side.weights;
}

}  // namespace

bool is_small(GromovProblem const& problem) {
  return std::max(problem.a().size(), problem.b().size()) <= kMostDescribed;
}

void match_sorted(DenseVector const& x, DenseVector const& y, DenseVector const& a, DenseVector const& b,
                  std::function<void(std::int64_t, std::int64_t, double)> const& visit) {
  auto const order = [](DenseVector const& values) {
    std::vector<std::int64_t> indices(to_size(values.size()));
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
    std::sort(indices.begin(), indices.end(), [&](auto i, auto j) { return values(i) < values(j); });
    return indices;
  };
  std::vector<std::int64_t> const rows = order(x), columns = order(y);
  double left_a = a(rows[0]), left_b = b(columns[0]);
  for (std::size_t i = 0, j = 0;;) {
    double const mass = std::min(left_a, left_b);
    visit(rows[i], columns[j], mass);
    left_a -= mass;
    left_b -= mass;
    if (left_a <= 0) {
      if (++i == rows.size()) return;
      left_a = a(rows[i]);
    } else {
      if (++j == columns.size()) return;
      left_b = b(columns[j]);
    }
  }
}

DenseMatrix descriptors(int threads, DenseVector const& weights, double total,
                        std::function<void(std::int64_t, Eigen::Ref<DenseVector>)> const& row) {
  std::int64_t const n = weights.size();
  DenseMatrix result(n, kBins);
  constexpr std::int64_t kPairsOfDistance = 128;  // Pairs of a pass in the time to sort a distance.
  parallel_ranges(useful_threads(threads, n, kPairsOfDistance * n), n, [&](std::int64_t begin, std::int64_t end) {
    DenseVector values(n);
    std::vector<std::pair<double, double>> distances(to_size(n));  // Distances with their masses.
    for (std::int64_t i = begin; i < end; ++i) {
      row(i, values);
      for (std::int64_t k = 0; k < n; ++k) distances[to_size(k)] = {values(k), weights(k)};
      std::sort(distances.begin(), distances.end());
      double const range = total / kBins;
      std::size_t k = 0;
      double left = distances[0].second;
      for (std::int64_t bin = 0; bin < kBins; ++bin) {
        double room = range, sum = 0;
        while (true) {
          double const mass = std::min(room, left);
          sum += mass * distances[k].first;
          room -= mass;
          left -= mass;
          if (room <= 0 || k + 1 == distances.size()) break;
          if (left <= 0) left = distances[++k].second;
        }
        result(i, bin) = sum / std::sqrt(range);
      }
    }
  });
  return result;
}

GromovBound PointProblem::bound(Context const& context, ExactOptions const& watched) const {
  GromovSide const &x = source_, &y = target_;
  DenseVector const of_x = PrincipalAxes(x.moment).moments, of_y = PrincipalAxes(y.moment).moments;
  std::int64_t const least = std::min(of_x.size(), of_y.size());
  double const cross = (of_x.head(least) - of_y.head(least)).squaredNorm() +
                       of_x.tail(of_x.size() - least).squaredNorm() + of_y.tail(of_y.size() - least).squaredNorm();
  double const rest = alpha_ * (2 * std::pow(x.norm - y.norm, 2) + 4 * cross);
  if (alpha_ < 1 && is_small(*this)) {
    double const root = std::sqrt(2 * alpha_ * total_);
    GromovBound bound = bound_by_plan(context, *this, root * x.norms, root * y.norms, watched);
    bound.value += rest + (1 - alpha_) * offset_;
    return bound;
  }
  double sorted = 0;  // min sum_ij P_ij (X_i - Y_j)^2: points on a line move in their order.
  match_sorted(x.norms, y.norms, a_, b_, [&](std::int64_t i, std::int64_t j, double mass) {
    sorted += mass * std::pow(x.norms(i) - y.norms(j), 2);
  });
  return {rest + 2 * alpha_ * total_ * sorted + (1 - alpha_) * offset_, {}};
}

GromovBound PointProblem::descriptor_bound(Context const& context, ExactOptions const& watched) const {
  auto const of = [&](GromovSide const& side) {
    auto const distances = [&](std::int64_t i, Eigen::Ref<DenseVector> out) {
      out = (side.points.rowwise() - side.points.row(i)).rowwise().squaredNorm();
    };
    return DenseMatrix(std::sqrt(alpha_) *
                       descriptors(host_threads(backend_of(context)), side.weights, total_, distances));
  };
  GromovBound bound = bound_by_plan(context, *this, of(source_), of(target_), watched);
  bound.value += (1 - alpha_) * offset_;
  return bound;
}

std::vector<StartingPoint> PointProblem::starts(Context const& context, GromovOptions const& options,
                                                std::optional<DenseMatrix> const& described) const {
  GromovSide const &x = source_, &y = target_;
  std::int64_t const p = x.points.cols(), q = y.points.cols(), least = std::min(p, q);
  std::optional<DenseMatrix> const given = read_start(backend_of(context), options, p, q);
  StartList list(options, given.has_value());
  if (given) list.add(GromovStartKind::given, [&] { return *given; });
  list.add(GromovStartKind::product, [&] { return DenseMatrix(DenseMatrix::Zero(p, q)); });
  if (described) list.add(GromovStartKind::descriptors, [&] { return *described; });
  if (list.is_full()) return list.starts;

  PrincipalAxes const of_x(x.moment), of_y(y.moment);
  DenseVector const size = of_x.moments.head(least).cwiseProduct(of_y.moments.head(least)).cwiseSqrt();
  auto const turned = [&](DenseMatrix const& middle) {
    return DenseMatrix(of_x.directions.leftCols(middle.rows()) * middle *
                       of_y.directions.leftCols(middle.cols()).transpose());
  };
  // Signs of axes without extent make no difference, and those beyond the first few follow from third moments.
  std::int64_t const signs =
      (size.head(std::min<std::int64_t>(least, kMostSigns)).array() > 1e-9 * size.maxCoeff()).count();
  DenseVector skewed = third_moments(x, of_x).head(least).cwiseProduct(third_moments(y, of_y).head(least));
  for (std::int64_t bits = 0; bits < std::int64_t{1} << signs; ++bits) {
    list.add(GromovStartKind::axes, [&] {
      DenseVector diagonal = size;
      for (std::int64_t k = 0; k < least; ++k)
        if (k < signs ? (bits >> k & 1) != 0 : skewed(k) < 0) diagonal(k) = -diagonal(k);
      return turned(diagonal.asDiagonal());
    });
  }
  if (options.starts == 0) return list.starts;
  for (std::uint64_t number = 0; !list.is_full(); number += static_cast<std::uint64_t>(p * q)) {
    list.add(GromovStartKind::random, [&] {
      return turned(of_x.moments.cwiseSqrt().asDiagonal() * random_rotation(p, q, options.seed, number) *
                    of_y.moments.cwiseSqrt().asDiagonal());
    });
  }
  return list.starts;
}

std::optional<ImagePolytope> PointProblem::polytope() const {
  auto const axes = [](DenseMatrix const& moment) {  // Times the roots of their moments.
    PrincipalAxes const found(moment);
    std::int64_t const rank = (found.moments.array() > kFlat * found.moments(0)).count();
    return DenseMatrix(found.directions.leftCols(rank) * found.moments.head(rank).cwiseSqrt().asDiagonal());
  };
  DenseMatrix const u = axes(source_.moment), v = axes(target_.moment);
  std::int64_t const dimensions = u.cols() * v.cols();
  if (dimensions > kMostDimensions)
    throw Error(ErrorCode::unsupported,
                fmt::format("gap: is given for clouds of {} and {} dimensions; branch and bound "
                            "is for dimensions whose product is at most {}",
                            u.cols(), v.cols(), kMostDimensions));
  // A cross moment u Z v^T has |Z| <= 1, by Cauchy's inequality. The sum of |Z_kl| is then at most the sum of the
  // singular values of the signs, whose squares add up to their number.
  double const radius = std::sqrt(static_cast<double>(dimensions * std::min(u.cols(), v.cols())));
  double const factor = 8 * alpha_;
  double const left_out = factor * std::max(source_.norm * target_.norm - u.squaredNorm() * v.squaredNorm(), 0.0);
  ImagePolytope polytope{factor, left_out, DenseMatrix::Zero(u.rows(), v.rows()), {}};
  for (std::int64_t k = 0; k < u.cols(); ++k)
    for (std::int64_t l = 0; l < v.cols(); ++l) polytope.corners.push_back(radius * u.col(k) * v.col(l).transpose());
  return polytope;
}

}  // namespace monge
