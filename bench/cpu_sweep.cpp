// Time of one sweep and of products with the plan on the CPU, n = m = 10,000, beside the limits of the machine:
// `./dev bench`.
#include <benchmark/benchmark.h>
#include <sys/resource.h>
#include <monge/monge.hpp>

#include <random>
#include <string>
#include <vector>

#include "machine_limits.hpp"

namespace {

using namespace monge;

std::vector<float> gaussian_cloud(std::int64_t n, std::int64_t d, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(d)));
  std::vector<float> points(static_cast<std::size_t>(n * d));
  for (float& value : points) value = normal(generator);
  return points;
}

struct Case {
  std::int64_t n, d;
  Schedule schedule;
  Precision precision;
  double cache_bytes;
};

SolveOptions options_of(Case const& c, int iterations) {
  return {.eps = 0.1,
          .tolerance = 0,
          .iterations = iterations,
          .schedule = c.schedule,
          .annealing = 1,
          .precision = c.precision,
          .check_every = 1,
          .certificate = false,
          .cache_bytes = c.cache_bytes};
}

struct Clouds {
  explicit Clouds(Case const& c) : x(gaussian_cloud(c.n, c.d, 1)), y(gaussian_cloud(c.n, c.d, 2)), n(c.n), d(c.d) {}
  Geometry geometry() const { return PointCloud{MatrixView(x.data(), n, d), MatrixView(y.data(), n, d)}; }

  std::vector<float> x, y;
  std::int64_t n, d;
};

/// Costs between 0 and 1, in the type of the arithmetic.
struct Matrix {
  Matrix(Case const& c, bool transposed) : n(c.n), transposed(transposed) {
    bool const wide = c.precision == Precision::float64;
    std::mt19937 generator(1);
    auto const fill = [&](auto& values) {
      values.resize(static_cast<std::size_t>(n * n));
      for (auto& value : values) value = static_cast<float>(generator()) * 0x1p-32f;
    };
    wide ? fill(doubles) : fill(floats);
  }
  Geometry geometry() const {
    MatrixView const view = doubles.empty() ? MatrixView(floats.data(), n, n) : MatrixView(doubles.data(), n, n);
    return CostMatrix{view, transposed};
  }

  std::vector<float> floats;
  std::vector<double> doubles;
  std::int64_t n;
  bool transposed;
};

/// Seconds of `sweeps` further sweeps, set-up and first pass excluded.
double seconds_of_sweeps(Case const& c, Geometry const& geometry, int sweeps) {
  SolveOptions options = options_of(c, sweeps + 2);
  double start = 0, end = 0;
  options.progress = [&](Progress const& progress) {
    if (progress.iteration == 2) start = progress.seconds;
    end = progress.seconds;
    return true;
  };
  solve(Context::cpu(), geometry, options);
  return end - start;
}

void count_pairs(benchmark::State& state, Case const& c) {
  state.counters["pairs_per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(c.n) * static_cast<double>(c.n),
                         benchmark::Counter::kIsRate);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1024.0;
}

template <class Costs, class... More>
void sweep(benchmark::State& state, Case c, More... more) {
  Costs const costs(c, more...);
  for (auto _ : state) state.SetIterationTime(seconds_of_sweeps(c, costs.geometry(), 8) / 8);
  count_pairs(state, c);
}

/// A product with the plan: what `product` does again and again after a first time.
template <class Product>
void plan_product(benchmark::State& state, Case c, Product product) {
  Clouds const clouds(c);
  Plan const plan = solve(Context::cpu(), clouds.geometry(), options_of(c, 3));
  product(plan);
  for (auto _ : state) product(plan);
  count_pairs(state, c);
}

auto multiply_by(std::int64_t n, std::int64_t width) {
  return [n, width, v = gaussian_cloud(n, width, 3),
          out = std::vector<float>(static_cast<std::size_t>(n * width))](Plan const& plan) mutable {
    plan.apply(MatrixView(v.data(), n, width), MutableMatrixView(out.data(), n, width));
  };
}

auto multiply_weighted(std::int64_t n, std::int64_t inner) {
  return [n, inner, l = gaussian_cloud(n, inner, 3), r = gaussian_cloud(n, inner, 4), v = gaussian_cloud(n, 1, 5),
          out = std::vector<float>(static_cast<std::size_t>(n))](Plan const& plan) mutable {
    plan.apply_hadamard(MatrixView(l.data(), n, inner), MatrixView(r.data(), n, inner), MatrixView(v.data(), n, 1),
                        MutableMatrixView(out.data(), n, 1));
  };
}

auto multiply_by_gram(std::int64_t n) {
  return [w = std::vector<double>(static_cast<std::size_t>(n), 1.0), v = gaussian_cloud(n, 1, 3),
          out = std::vector<double>(static_cast<std::size_t>(n))](Plan const& plan) mutable {
    plan.apply_gram(w, v, out);
  };
}

/// Twenty steps of conjugate gradients, with what comes before and after them.
auto multiply_by_hessian(std::int64_t n, std::int64_t d) {
  return [n, d, v = gaussian_cloud(n, d, 3),
          out = std::vector<float>(static_cast<std::size_t>(n * d))](Plan const& plan) mutable {
    plan.hessian_product({.x = {v.data(), n, d}}, {.x = {out.data(), n, d}}, {.tolerance = 0, .iterations = 20});
  };
}

template <class Sweep, class... More>
void register_sweep(Case const& c, std::string const& costs, Sweep sweep, More... more) {
  std::string const label = "sweep/" + std::string(name(c.schedule)) + "/" + std::string(name(c.precision)) +
                            "/n=" + std::to_string(c.n) + "/" + costs;
  benchmark::RegisterBenchmark(label.c_str(), sweep, c, more...)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.5);
}

void add(Case const& c, std::string const& suffix) {
  register_sweep(c, "d=" + std::to_string(c.d) + suffix, sweep<Clouds>);
}

void add_matrix(Case const& c, bool transposed) {
  register_sweep(c, transposed ? "matrix/transposed/cached" : "matrix", sweep<Matrix, bool>, transposed);
}

template <class Product>
void add_product(std::string const& what, Case const& c, Product product) {
  std::string const label = "plan/" + what + "/" + std::string(name(c.precision)) + "/n=" + std::to_string(c.n) +
                            "/d=" + std::to_string(c.d) + (c.cache_bytes > 0 ? "/cached" : "");
  benchmark::RegisterBenchmark(label.c_str(), plan_product<Product>, c, product)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.5);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace monge;
  bench::register_limits();
  // Growing memory last: peak_MB is that of the process so far.
  add({50000, 3, Schedule::alternating, Precision::float32, 0}, "");
  add({50000, 64, Schedule::alternating, Precision::float32, 0}, "");
  for (std::int64_t d : {3, 64, 512}) {
    for (Schedule schedule : {Schedule::alternating, Schedule::symmetric, Schedule::overrelaxed})
      add({10000, d, schedule, Precision::float32, 0}, "");
    add({10000, d, Schedule::alternating, Precision::float64, 0}, "");
  }
  for (double const cache_bytes : {0.0, 1073741824.0}) {
    for (std::int64_t d : {3, 64, 512}) {
      Case const c{10000, d, Schedule::alternating, Precision::float32, cache_bytes};
      add_product("vector", c, multiply_by(c.n, 1));
      add_product("64_columns", c, multiply_by(c.n, 64));
      add_product("weighted_by_64", c, multiply_weighted(c.n, 64));
      add_product("gram", c, multiply_by_gram(c.n));
      add_product("hessian", c, multiply_by_hessian(c.n, d));
    }
  }
  for (std::int64_t d : {64, 512}) add({10000, d, Schedule::alternating, Precision::float32, 1 << 30}, "/cached");
  for (Precision const precision : {Precision::float32, Precision::float64}) {
    for (Schedule schedule : {Schedule::alternating, Schedule::symmetric, Schedule::overrelaxed})
      add_matrix({10000, 0, schedule, precision, 0}, false);
    add_matrix({10000, 0, Schedule::alternating, precision, 1 << 30}, true);
  }
  return bench::run(argc, argv);
}
