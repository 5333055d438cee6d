#include "gromov/gromov_problem.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "core/strided.hpp"
#include "entropic/input.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"

namespace monge {

void validate_features(MatrixView s, MatrixView t, std::int64_t n, std::int64_t m, Device context) {
  require((s.data() == nullptr) == (t.data() == nullptr), "{}: is missing; features need both s and t",
          s.data() == nullptr ? "s" : "t");
  if (s.data() == nullptr) return;
  require(s.columns() > 0, "s: is {} x {}; must have at least one column", s.rows(), s.columns());
  validate_matrix("s", s, n, s.columns(), context);
  validate_matrix("t", t, m, s.columns(), context);
}

namespace {

constexpr double kSameTotals = 1e-6;

}  // namespace

GromovProblem::GromovProblem(Backend const& backend, Shape shape, VectorView a, VectorView b,
                             GromovOptions const& options)
    : marginals_(options.marginals),
      penalty_a_(options.penalty_a),
      penalty_b_(options.penalty_b),
      is_proximal_(options.method == GromovMethod::proximal),
      eps_(is_proximal_ ? 0 : options.eps) {
  using enum GromovMarginals;
  ValidMarginals given = read_marginals(backend, a, b, shape);
  if (options.marginals == balanced)
    given = with_equal_totals(std::move(given), {.tolerance = 0},
                              "; semi-relaxed, partial and unbalanced plans take any totals");
  a_ = Eigen::Map<DenseVector const>(given.a.data(), shape.rows);
  b_ = Eigen::Map<DenseVector const>(given.b.data(), shape.columns);
  double const least = std::min(given.total_a, given.total_b);
  if (options.marginals == partial)
    require(options.mass > 0 && options.mass <= (1 + kSameTotals) * least,
            "mass: is {}; must be > 0 and at most {}, the smaller total of the weights", options.mass, least);
  total_ = options.marginals == partial      ? options.mass
           : options.marginals == unbalanced ? std::sqrt(given.total_a) * std::sqrt(given.total_b)
                                             : given.total_a;
  if (options.marginals == semirelaxed) b_ *= total_ / given.total_b;
  first_a_ = options.marginals == balanced ? a_ : DenseVector(a_ * (total_ / given.total_a));
  first_b_ = options.marginals == balanced ? b_ : DenseVector(b_ * (total_ / b_.sum()));
}

bool GromovProblem::is_whole() const {
  return marginals_ == GromovMarginals::partial && std::max(a_.sum(), b_.sum()) <= (1 + kSameTotals) * total_;
}

DenseMatrix read_finite(char const* field, Backend const& backend, MatrixView view, char const* entries) {
  std::vector<double> const values = backend.read(view);
  DenseMatrix matrix(view.rows(), view.columns());
  auto value = values.begin();
  for (std::int64_t i = 0; i < view.rows(); ++i) {
    for (std::int64_t k = 0; k < view.columns(); ++k) {
      matrix(i, k) = *value++;
      if (!std::isfinite(matrix(i, k))) throw_not_finite(field, i, k, matrix(i, k), entries);
    }
  }
  return matrix;
}

std::optional<DenseMatrix> read_start(Backend const& backend, GromovOptions const& options, std::int64_t rows,
                                      std::int64_t columns) {
  if (options.cross_moment.data() == nullptr) return {};
  validate_matrix("cross_moment", options.cross_moment, rows, columns, backend.device());
  return read_finite("cross_moment", backend, options.cross_moment);
}

double relative_entropy(DenseVector const& p, DenseVector const& weights) {
  auto const term = [](double p, double w) { return p > 0 ? p * (std::log(p) - std::log(w)) : 0.0; };
  return p.binaryExpr(weights, term).sum();
}

void GromovProblem::refuse_weights(GromovGradients const& out) const {
  if (out.a.data() != nullptr || out.b.data() != nullptr)
    throw Error(
        ErrorCode::unsupported,
        fmt::format("gradients: marginals are {}; must be balanced for derivatives by a and b", name(marginals_)));
}

void write(DenseMatrix const& from, MutableMatrixView to) {
  for (std::int64_t i = 0; i < to.rows(); ++i)
    with_data(to, [&](auto* data) {
      using T = std::remove_pointer_t<decltype(data)>;
      for (std::int64_t k = 0; k < to.columns(); ++k) data[i * to.row_stride() + k] = static_cast<T>(from(i, k));
    });
}

}  // namespace monge
