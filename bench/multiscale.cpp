// Solves of many points in few dimensions, x uniform and y = u^1.5 in the cube, by one method:
// `multiscale [cpu|cuda [METHOD [TOLERANCE [RUNS [N D BLUR]...]]]]`, a table on stdout. The cost is |x - y|^2 / 2 and
// eps is blur^2. Each problem is solved RUNS times; the first and the median of the others are whole calls. "cpu s":
// what all threads of the last run took together, which other work of the machine changes little.
#include <fmt/format.h>
#include <monge/monge.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <vector>

#include "core/stopwatch.hpp"
#include "oracle/problem.hpp"
#include "provenance.hpp"

namespace {

using namespace monge;

struct Case {
  std::int64_t n, d;
  double blur;
};

void run(Context const& context, Case const& given, Method method, double tolerance, int runs) {
  oracle::Random random(1);
  std::vector<double> x, y;
  for (std::int64_t k = 0; k < given.n * given.d; ++k) {
    x.push_back(random.uniform());
    y.push_back(std::pow(random.uniform(), 1.5));
  }
  PointCloud const clouds{{x.data(), given.n, given.d}, {y.data(), given.n, given.d}, 0.5};
  SolveOptions options;
  options.eps = given.blur * given.blur;
  options.tolerance = tolerance;
  options.method = method;
  std::vector<double> times;
  Report report;
  double processor = 0;
  for (int k = 0; k < runs; ++k) {
    Stopwatch const watch;
    std::clock_t const before = std::clock();
    report = solve(context, clouds, options).report();
    times.push_back(watch.seconds());
    processor = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  }
  double const first = times.front();
  if (runs > 1) times.erase(times.begin());
  std::nth_element(times.begin(), times.begin() + std::ssize(times) / 2, times.end());
  fmt::print("{}\t{}\t{}\t{}\t{}\t{:.4f}\t{:.4f}\t{:.4f}\t{:.4f}\t{}\t{:.3g}\t{:.3g}\t{:.1f}\t{}\t{:.3f}\n", given.n,
             given.d, given.blur, name(method), tolerance, first, times[times.size() / 2], report.seconds.setup,
             report.seconds.certificate, report.iterations, report.marginal_error, report.left_out,
             1e-6 * static_cast<double>(report.peak_bytes), name(report.status), processor);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  bool const cuda = argc > 1 && std::string_view(argv[1]) == "cuda";
  Context const context = cuda ? Context::cuda() : Context::cpu();
  Method const method = argc > 2 ? from_name<Method>(argv[2]).value() : Method::multiscale;
  double const tolerance = argc > 3 ? std::atof(argv[3]) : 1e-3;
  int const runs = argc > 4 ? std::atoi(argv[4]) : 3;
  std::vector<Case> cases;
  for (int k = 5; k + 2 < argc; k += 3)
    cases.push_back({std::atoll(argv[k]), std::atoll(argv[k + 1]), std::atof(argv[k + 2])});
  if (cases.empty())
    cases = {{100000, 3, 0.1}, {100000, 3, 0.03}, {100000, 3, 0.01}, {100000, 2, 0.03}, {100000, 2, 0.01}};
  fmt::print("# {{{}}}\n", bench::provenance_on(context.device()));
  fmt::print(
      "n\td\tblur\tmethod\ttolerance\tfirst s\tmedian s\tsetup s\tcertificates s\tsweeps\terror\tleft "
      "out\tMB\tstatus\tcpu s\n");
  for (Case const& one : cases) run(context, one, method, tolerance, runs);
}
