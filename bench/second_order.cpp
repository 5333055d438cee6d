// The problems for which there are second-order methods, on one GPU: `second_order matrices` or `second_order points`,
// JSON on stdout, a line each solve.
// - matrices: 6400 x 4800 float64 costs in the memory of the device, the largest 1, eps = 1e-3, to L2 gradients of
//   1e-3, 1e-6 and 1e-8; sinkhorn and auto in precision auto, the others in float64.
// - points: n = m = 50,000 in 20 dimensions, eps = 1e-3 of the largest cost among 2000, to an L1 error of 1e-6. The
//   device memory of the plan is the free memory before the solve, less the free memory after it.
// Seconds are of the fastest of kRuns calls and count from the call. Beside them stands what the machine takes for a
// pass over all pairs: to read float64 costs, where there are any, and for a float64 exponential each.
#include <cuda_runtime_api.h>
#include <monge/monge.hpp>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "machine.hpp"
#include "oracle/synthetic.hpp"

namespace monge::bench {
namespace {

constexpr int kRuns = 3;
constexpr double kEps = 1e-3;

double free_bytes() {
  std::size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<double>(free) : 0;
}

class Table {
 public:
  explicit Table(Machine const& machine) : machine_(machine) {
    std::printf("{\n  %s,\n  \"solves\": [", machine.provenance.c_str());
  }
  ~Table() { std::printf("\n  ]\n}\n"); }

  void add(char const* problem, Geometry const& geometry, std::int64_t n, std::int64_t m, VectorView a, VectorView b,
           SolveOptions const& options) {
    Report best;
    double held = 0;
    for (int run = 0; run < kRuns; ++run) {
      double const before = free_bytes();
      Plan const plan = solve(machine_.context, geometry, a, b, options);
      held = before - free_bytes();
      if (run == 0 || plan.report().seconds.total < best.seconds.total) best = plan.report();
    }
    double const pairs = static_cast<double>(n) * static_cast<double>(m);
    bool const is_read = std::holds_alternative<CostMatrix>(geometry);
    std::printf(
        "%s\n    {\"problem\": \"%s\", \"n\": %lld, \"m\": %lld, \"method\": \"%s\", \"precision\": \"%s\", "
        "\"criterion\": \"%s\", \"tolerance\": %g, \"status\": \"%s\", \"seconds\": %.4g, \"passes\": %d, "
        "\"steps\": %d, \"l1\": %.3g, \"l2\": %.3g, \"held_bytes\": %.4g, \"read_seconds\": %.3g, "
        "\"exp_seconds\": %.3g}",
        separator_, problem, static_cast<long long>(n), static_cast<long long>(m),
        std::string(name(options.method)).c_str(), std::string(name(options.precision)).c_str(),
        std::string(name(options.criterion)).c_str(), options.tolerance, std::string(name(best.status)).c_str(),
        best.seconds.total, best.iterations, best.newton_steps, best.marginal_error, best.gradient_norm, held,
        is_read ? pairs * sizeof(double) / machine_.read_rate : 0.0, pairs / machine_.exp_rate);
    std::fflush(stdout);
    separator_ = ",";
  }

 private:
  Machine const& machine_;
  char const* separator_ = "";
};

void matrices(Machine const& machine, Table& table) {
  constexpr std::int64_t kRows = 6400, kColumns = 4800;
  auto const study = [&](char const* name, oracle::Problem const& problem) {
    std::shared_ptr<double const> const costs = machine.copy(as_matrix(problem).costs());
    CostMatrix const matrix{MatrixView(costs.get(), kRows, kColumns, kColumns, machine.context.device())};
    for (Method const method : {Method::sinkhorn, Method::automatic, Method::newton, Method::splr}) {
      for (double const tolerance : {1e-3, 1e-6, 1e-8}) {
        table.add(name, matrix, kRows, kColumns, problem.a, problem.b,
                  {.eps = kEps,
                   .method = method,
                   .tolerance = tolerance,
                   .criterion = Criterion::gradient,
                   .iterations = 3000});
      }
    }
  };
  study("Synthetic I iid", oracle::gaussian_problem(kRows, kColumns, 0, 1));
  study("Synthetic I diff", oracle::gaussian_problem(kRows, kColumns, 2, 1));
  study("Synthetic II", oracle::mixture_problem(kRows, kColumns));
}

void points(Table& table) {
  constexpr std::int64_t kDimension = 20;
  double const scale = oracle::gaussian_problem(2000, 2000, 0, 1, kDimension).scale;
  constexpr std::int64_t kPoints = 50000;
  oracle::Random random(1);
  std::vector<double> const x = oracle::gaussian_points(kPoints, kDimension, random);
  std::vector<double> const y = oracle::gaussian_points(kPoints, kDimension, random);
  PointCloud clouds{{x.data(), kPoints, kDimension}, {y.data(), kPoints, kDimension}};
  clouds.scale = scale;
  for (Method const method : {Method::sinkhorn, Method::automatic, Method::newton})
    table.add("Synthetic I iid, points", clouds, kPoints, kPoints, {}, {}, {.eps = kEps, .method = method});
}

}  // namespace
}  // namespace monge::bench

int main(int argc, char** argv) {
  using namespace monge::bench;
  std::string_view const chosen = argc == 2 ? argv[1] : "";
  if (chosen != "matrices" && chosen != "points") {
    std::fputs("usage: second_order matrices|points\n", stderr);
    return 2;
  }
  Machine const machine = cuda_machine();
  Table table(machine);
  chosen == "points" ? points(table) : matrices(machine, table);
}
