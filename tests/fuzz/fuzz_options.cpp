// Any options, weights and tiny clouds or cost matrices are solved or refused with an Error, on one thread and in a few
// sweeps.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include <monge/monge.hpp>

namespace {

using namespace monge;

/// Mostly ordinary, sometimes any bits at all: NaN, infinities, subnormal numbers.
double number(FuzzedDataProvider& bytes) {
  switch (bytes.ConsumeIntegralInRange(0, 7)) {
    case 0:
      return std::bit_cast<double>(bytes.ConsumeIntegral<std::uint64_t>());
    case 1:
      return std::bit_cast<float>(bytes.ConsumeIntegral<std::uint32_t>());
    case 2:
      return bytes.ConsumeFloatingPointInRange(-1e3, 1e3);
    default:
      return bytes.ConsumeProbability<double>();
  }
}

template <class T>
std::vector<T> numbers(FuzzedDataProvider& bytes, std::size_t count) {
  std::vector<T> values(count);
  for (T& value : values) {
    double const drawn = number(bytes);
    // Converting a float64 outside the range of float32 is undefined.
    value =
        std::is_same_v<T, float> && std::isfinite(drawn) && std::abs(drawn) > 3e38 ? T(3e38) : static_cast<T>(drawn);
  }
  return values;
}

void set(FuzzedDataProvider& bytes, double& value) {
  value = number(bytes);
}
void set(FuzzedDataProvider& bytes, int& value) {
  value = std::min(bytes.ConsumeIntegral<int>(), 20);
}
void set(FuzzedDataProvider& bytes, bool& value) {
  value = bytes.ConsumeBool();
}
/// Any of the names, or one past the last, which is refused.
template <class T>
requires std::is_enum_v<T>
void set(FuzzedDataProvider& bytes, T& value) {
  value = T(bytes.ConsumeIntegralInRange<int>(0, std::size(names_of(T{}))));
}

std::vector<double> maybe_vector(FuzzedDataProvider& bytes, std::size_t count) {
  switch (bytes.ConsumeIntegralInRange(0, 3)) {
    case 0:
      return numbers<double>(bytes, count);
    case 1:
      return numbers<double>(bytes, bytes.ConsumeIntegralInRange<std::size_t>(0, 9));
    default:
      return {};
  }
}

template <class T>
void run(FuzzedDataProvider& bytes) {
  std::size_t const n = bytes.ConsumeIntegralInRange(0, 9), m = bytes.ConsumeIntegralInRange(0, 9);
  std::size_t const d = bytes.ConsumeIntegralInRange(0, 4);
  std::size_t const columns = bytes.ConsumeIntegralInRange(0, 15) == 0 ? d + 1 : d;
  SolveOptions options;
  options.eps = 0.1;
  options.iterations = 20;
  visit_solve_options(options, [&](auto const&, auto& value) {
    void const* const later[] = {&options.eps_relative, &options.penalty_a, &options.penalty_b, &options.method,
                                 &options.criterion};
    bool const now = std::find(std::begin(later), std::end(later), static_cast<void const*>(&value)) == std::end(later);
    if (now && bytes.ConsumeBool()) set(bytes, value);
  });
  std::vector<T> const x = numbers<T>(bytes, n * d), y = numbers<T>(bytes, m * columns);
  std::vector<double> const a = maybe_vector(bytes, n), b = maybe_vector(bytes, m);
  std::vector<double> const f = maybe_vector(bytes, n), g = maybe_vector(bytes, m);
  options.f = f;
  options.g = g;
  auto const rows = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  Geometry geometry = PointCloud{
      {x.data(), rows(n), rows(d)}, {y.data(), rows(m), rows(columns)}, bytes.ConsumeBool() ? 1.0 : number(bytes)};
  // Drawn after all else, and false where the bytes have ended: so the corpus keeps its meaning.
  if (bytes.ConsumeBool()) std::swap(options.eps, options.eps_relative);
  bool const matrix = bytes.ConsumeBool(), transposed = bytes.ConsumeBool();
  std::vector<T> const cost = numbers<T>(bytes, matrix ? n * m : 0);
  if (matrix) geometry = CostMatrix{{cost.data(), rows(transposed ? m : n), rows(transposed ? n : m)}, transposed};
  std::size_t const k = bytes.ConsumeIntegralInRange(0, 10);
  if (bytes.ConsumeBool()) set(bytes, options.penalty_a);
  if (bytes.ConsumeBool()) set(bytes, options.penalty_b);
  if (bytes.ConsumeBool()) set(bytes, options.method);
  if (bytes.ConsumeBool()) set(bytes, options.criterion);

  static Context const context = Context::cpu(1);
  try {
    Plan const plan = solve(context, geometry, a, b, options);
    Report const& report = plan.report();
    double const bounded = options.criterion == Criterion::l1         ? report.marginal_error
                           : options.criterion == Criterion::gradient ? report.gradient_norm
                                                                      : std::abs(report.gap);
    double const mass = std::max(report.mass, report.mass_b);
    double const unit =
        options.criterion == Criterion::gap ? std::max(std::abs(report.primal), report.eps * mass) : mass;
    bool const within = bounded <= options.tolerance * unit * (1 + 1e-12);
    if (report.status == Status::converged && report.certified && !within) std::abort();
    // SPLR ends a step that it has begun; Newton's method without a tolerance counts steps.
    bool const may_exceed =
        options.method == Method::splr || (options.method == Method::newton && options.tolerance == 0);
    if (report.iterations > options.iterations && !may_exceed) std::abort();
    std::vector<std::int64_t> indices(n * k);
    std::vector<T> values(n * k), map(n * d);
    if (k > 0) plan.top_k({indices.data(), rows(n), rows(k), rows(k)}, {values.data(), rows(n), rows(k)});
    for (std::int64_t const j : indices) {
      if (j < 0 || j >= rows(m)) std::abort();
    }
    if (!matrix) plan.barycentric_projection({map.data(), rows(n), rows(d)});
  } catch (Error const&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  FuzzedDataProvider bytes(data, size);
  if (bytes.ConsumeBool()) {
    run<float>(bytes);
  } else {
    run<double>(bytes);
  }
  return 0;
}
