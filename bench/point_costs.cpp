// A sweep with each cost of points beside one with squared distances, n = m points of d dimensions and 10 to 1000
// classes: `point_costs [cpu|cuda [N [D [SWEEPS]]]]`, a table on stdout. Medians of 5 solves without a tolerance.
#include <fmt/format.h>
#include <monge/monge.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "oracle/problem.hpp"
#include "provenance.hpp"

namespace {

using namespace monge;

double milliseconds_a_sweep(Context const& context, PointCloud const& clouds, SolveOptions const& options) {
  std::array<double, 5> times{};
  for (double& time : times) {
    Report const report = solve(context, clouds, options).report();
    time = 1e3 * report.seconds.sweeps / report.iterations;
  }
  std::sort(times.begin(), times.end());
  return times[2];
}

}  // namespace

int main(int argc, char** argv) {
  auto const argument = [&](int k, int standard) { return argc > k ? std::atoi(argv[k]) : standard; };
  bool const cuda = argc > 1 && std::string_view(argv[1]) == "cuda";
  Context const context = cuda ? Context::cuda() : Context::cpu();
  std::int64_t const n = argument(2, cuda ? 10000 : 2000), d = argument(3, 64);
  oracle::Random random(1);
  std::vector<double> const x = oracle::gaussian_points(n, d, random), y = oracle::gaussian_points(n, d, random, 0.2);
  PointCloud const plain{{x.data(), n, d}, {y.data(), n, d}, 1.0 / static_cast<double>(d)};

  std::vector<std::pair<std::string, PointCloud>> costs;
  for (auto const& [function, name] : kNames<CostFunction>) {
    costs.emplace_back(name, plain);
    costs.back().second.cost_function = function;
    costs.back().second.p = 3;
  }
  constexpr std::int64_t kClasses[] = {10, 100, 1000};
  std::array<std::vector<double>, std::size(kClasses)> tables;
  std::array<std::vector<std::int64_t>, std::size(kClasses)> labels;
  for (std::size_t c = 0; c < std::size(kClasses); ++c) {
    std::int64_t const classes = kClasses[c];
    for (std::int64_t k = 0; k < classes * classes; ++k) tables[c].push_back(random.uniform(0, static_cast<double>(d)));
    for (std::int64_t i = 0; i < n; ++i)
      labels[c].push_back(static_cast<std::int64_t>(random.uniform(0, static_cast<double>(classes))));
    costs.emplace_back(fmt::format("labels, {} classes", classes), plain);
    IndexView const of{labels[c].data(), n};
    costs.back().second.labels = {of, of, {tables[c].data(), classes, classes}, plain.scale};
  }

  fmt::print("# {{{}}}\n", bench::provenance_on(context.device()));
  fmt::print("n\td\tprecision\tcost\tms\tof sqeuclidean\n");
  for (Precision const precision : {Precision::float32, Precision::float64}) {
    SolveOptions const options{.eps = 0.1,
                               .tolerance = 0,
                               .iterations = argument(4, cuda ? 100 : 10),
                               .schedule = Schedule::alternating,
                               .annealing = 1,
                               .precision = precision,
                               .certificate = false};
    double first = 0;
    for (auto const& [name, clouds] : costs) {
      double const time = milliseconds_a_sweep(context, clouds, options);
      if (first == 0) first = time;
      fmt::print("{}\t{}\t{}\t{}\t{:.4f}\t{:.2f}\n", n, d, monge::name(precision), name, time, time / first);
    }
  }
}
