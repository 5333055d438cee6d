#include "core/validation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <monge/error.hpp>

namespace monge {
namespace {

constexpr std::string_view kUnknown = "unknown";  // What name() gives for a value outside its enumeration.

template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(ErrorCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...));
}

void require_reachable(char const* field, Device memory, Device context) {
  require(memory.type == DeviceType::cpu || memory == context, "{}: lies on {}; must be in host memory or on {}", field,
          to_string(memory), to_string(context));
}

void require_real(char const* field, DataType type) {
  require(type == DataType::float32 || type == DataType::float64, "{}: is {}; must be float32 or float64", field,
          name(type));
}

std::vector<double> checked_weights(char const* field, Backend const& backend, VectorView view, std::int64_t size,
                                    char const* points) {
  require(view.size() == size, "{}: has {} entries; must have {}, one for each row of {}", field, view.size(), size,
          points);
  validate_vector(field, view, size, backend.device());
  std::vector<double> weights = backend.read(view);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    require(std::isfinite(weights[i]) && weights[i] >= 0, "{}: entry {} is {}; weights must be finite and >= 0", field,
            i, weights[i]);
  }
  return weights;
}

double compensated_sum(std::vector<double> const& weights) {
  double total = 0, carry = 0;  // Kahan: totals are compared to 1e-6, and there may be 1e8 of them
  for (double const weight : weights) {
    double const term = weight - carry;
    double const next = total + term;
    if (!std::isfinite(next)) return next;
    carry = (next - total) - term;
    total = next;
  }
  return total;
}

double total_of(char const* field, std::vector<double> const& weights) {
  double const total = compensated_sum(weights);
  require(total > 0 && std::isfinite(total), "{}: the total is {}; must be positive and finite", field, total);
  return total;
}

}  // namespace

void validate(SolveOptions const& options) {
  require(std::isfinite(options.eps) && options.eps > 0, "eps: is {}; must be finite and > 0", options.eps);
  require(std::isfinite(options.tolerance) && options.tolerance >= 0, "tolerance: is {}; must be finite and >= 0",
          options.tolerance);
  require(options.iterations >= 1, "iterations: is {}; must be >= 1", options.iterations);
  require(options.annealing > 0 && options.annealing <= 1, "annealing: is {}; must be in (0, 1]", options.annealing);
  require(name(options.schedule) != kUnknown, "schedule: is {}; must be overrelaxed, alternating or symmetric",
          static_cast<int>(options.schedule));
  require(name(options.precision) != kUnknown, "precision: is {}; must be auto, float32, tf32 or float64",
          static_cast<int>(options.precision));
  require(options.check_every >= 1, "check_every: is {}; must be >= 1", options.check_every);
  require(options.cache_bytes >= 0, "cache_bytes: is {}; must be >= 0", options.cache_bytes);
  require(options.f.empty() == options.g.empty(), "{}: is missing; a warm start needs both f and g",
          options.f.empty() ? "f" : "g");
}

void validate(PointCloud const& geometry, Device context) {
  require(std::isfinite(geometry.scale) && geometry.scale > 0, "scale: is {}; must be finite and > 0", geometry.scale);
  require(geometry.x.rows() > 0 && geometry.x.columns() > 0,
          "x: is {} x {}; must have at least one point and dimension", geometry.x.rows(), geometry.x.columns());
  require(geometry.y.rows() > 0 && geometry.y.columns() > 0,
          "y: is {} x {}; must have at least one point and dimension", geometry.y.rows(), geometry.y.columns());
  require(geometry.x.columns() == geometry.y.columns(), "y: has {} columns; must have {}, the dimension of x",
          geometry.y.columns(), geometry.x.columns());
  validate_matrix("x", geometry.x, geometry.x.rows(), geometry.x.columns(), context);
  validate_matrix("y", geometry.y, geometry.y.rows(), geometry.y.columns(), context);
}

void validate_matrix(char const* field, MatrixView view, std::int64_t rows, std::int64_t columns, Device context) {
  require_reachable(field, view.device(), context);
  require_real(field, view.type());
  require(view.rows() == rows && view.columns() == columns, "{}: is {} x {}; must be {} x {}", field, view.rows(),
          view.columns(), rows, columns);
  require(view.data() != nullptr || rows == 0 || columns == 0, "{}: is a null pointer; must point to {} x {} values",
          field, rows, columns);
  require(view.row_stride() >= columns, "{}: has row stride {}; must be at least its {} columns", field,
          view.row_stride(), columns);
  // Rows are padded and copied as float64 inside, so this bound keeps every byte count in 63 bits.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 64;
  require(rows == 0 || view.row_stride() <= kMost / rows,
          "{}: is {} x {} with row stride {}; the number of bytes must fit in 63 bits", field, rows, columns,
          view.row_stride());
}

void validate_vector(char const* field, VectorView view, std::int64_t size, Device context) {
  require_reachable(field, view.device(), context);
  require_real(field, view.type());
  require(view.size() == size, "{}: has {} entries; must have {}", field, view.size(), size);
  require(view.data() != nullptr || size == 0, "{}: is a null pointer; must point to {} values", field, size);
  require(view.stride() >= 1, "{}: has stride {}; must be >= 1", field, view.stride());
}

void validate_potential(char const* field, Backend const& backend, VectorView view, std::int64_t size) {
  validate_vector(field, view, size, backend.device());
  std::vector<double> const values = backend.read(view);
  for (std::size_t i = 0; i < values.size(); ++i)
    require(std::isfinite(values[i]), "{}: entry {} is {}; potentials must be finite", field, i, values[i]);
}

Weights validated_weights(Backend const& backend, VectorView a, VectorView b, std::int64_t n, std::int64_t m,
                          double tolerance) {
  Weights weights{{}, {}, 1.0};
  double total_a = 1, total_b = 1;
  if (!a.empty()) {
    weights.a = checked_weights("a", backend, a, n, "x");
    total_a = total_of("a", weights.a);
  }
  if (!b.empty()) {
    weights.b = checked_weights("b", backend, b, m, "y");
    total_b = total_of("b", weights.b);
  }
  if (a.empty()) {
    total_a = b.empty() ? 1 : total_b;
    weights.a.assign(static_cast<std::size_t>(n), total_a / static_cast<double>(n));
  }
  if (b.empty()) {
    total_b = total_a;
    weights.b.assign(static_cast<std::size_t>(m), total_b / static_cast<double>(m));
  }
  // No plan has both marginals when the totals differ, so the difference is a floor of the marginal error: it has to be
  // well below the tolerance. (Weights normalised in float32 agree to about 1e-7.)
  double const allowed = tolerance > 0 ? std::min(1e-6, tolerance / 2) : 1e-6;
  require(std::abs(total_a - total_b) <= allowed * total_a,
          "b: the total is {:.17g}; must equal the total of a, {:.17g}, to {:.1e} relative at this tolerance", total_b,
          total_a, allowed);
  weights.mass = total_a;
  return weights;
}

}  // namespace monge
