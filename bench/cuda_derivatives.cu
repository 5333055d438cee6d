// Times of derivatives on a CUDA device, beside the half-step of the same run. Prints JSON.
//
//   cuda_derivatives [--quick]
//
// n = m points of the normal distribution in d dimensions, float32, all memory on the device. A forward is a solve of
// so many sweeps without a certificate; a gradient is that by x from a plan that nothing was asked of before, so it
// takes the pass that finds log-sum-exps, too. A divergence with gradients by x and y stands beside a solve, both with
// certificates; `divergence_limit` is a multiple of the solve. A Hessian product takes 20 steps of conjugate gradients
// and the product that evaluates the residual; `first` is that of a fresh plan. Limits: `hvp_limit_ms`, and
// `gradient_limit` as a multiple of the forward. Memory is what a solve with gradients and a Hessian product has taken
// from the device, beyond the points and the results.
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include <monge/monge.hpp>

#include "cuda_limits.cuh"
#include "device_points.cuh"
#include "seam/backend.hpp"

namespace {

using namespace monge;
using bench::DevicePoints;
using bench::median_ms;
using cuda::Stream;

constexpr int kSteps = 20;

double half_step_us(Backend const& backend, cudaStream_t stream, PointCloud const& clouds, double eps) {
  std::vector<double> const weight(static_cast<std::size_t>(clouds.x.rows()), 1.0 / clouds.x.rows());
  auto const entropic = backend.entropic_operator(clouds, {weight, weight}, {Precision::float32, 0});
  return 1000 * median_ms(stream, 10, [&] { entropic->sweep({.eps = eps}, 10); }) / 20;
}

MutableMatrixView writable(MatrixView view) {
  return {const_cast<void*>(view.data()), view.type(), view.rows(), view.columns(), view.row_stride(), view.device()};
}

std::size_t taken() {
  std::size_t free = 0, total = 0;
  MONGE_CUDA_TRY(cudaMemGetInfo(&free, &total));
  return total - free;
}

void print_case(Context const& context, cudaStream_t stream, int n, int d, int sweeps) {
  DevicePoints const points(2 * n, d, 1), directions(n, d, 2), results(n, d, 3);
  PointCloud const clouds{points.view(0, n), points.view(n, n)};
  double const eps = 0.1 * d;
  std::size_t const before = taken();
  double const half_step = half_step_us(backend_of(context), stream, clouds, eps);

  SolveOptions const options{.eps = eps,
                             .tolerance = 0,
                             .iterations = sweeps,
                             .schedule = Schedule::alternating,
                             .annealing = 1,
                             .precision = Precision::float32,
                             .check_every = sweeps,
                             .certificate = false};
  MutableMatrixView const out = writable(results.view(0, n));
  auto const forward = [&] { return solve(context, clouds, options); };
  double const forward_ms = median_ms(stream, 5, [&] { forward(); });
  double const both_ms = median_ms(stream, 5, [&] { forward().gradients({.x = out}, {.error_iterations = 0}); });
  double const estimated_ms = median_ms(stream, 5, [&] { forward().gradients({.x = out}); });

  SolveOptions certified = options;
  certified.certificate = true;
  double const solve_ms = median_ms(stream, 5, [&] { solve(context, clouds, certified); });
  double const divergence_ms = median_ms(
      stream, 5, [&] { sinkhorn_divergence(context, clouds, {}, {}, certified).gradients({.x = out, .y = out}); });

  LinearOptions const linear{.tolerance = 0, .iterations = kSteps};
  auto const product = [&](Plan const& plan) {
    return plan.hessian_product({.x = directions.view(0, n)}, {.x = out}, linear);
  };
  Plan const plan = forward();
  plan.gradients({.x = out}, {.error_iterations = 0});
  double const first_ms = median_ms(stream, 1, [&] { product(forward()); }) - forward_ms;
  LinearReport report;
  double const hvp_ms = median_ms(stream, 5, [&] { report = product(plan); });
  double const without_steps_ms = median_ms(stream, 5, [&] {
    plan.hessian_product({.x = directions.view(0, n)}, {.x = out}, {.tolerance = 0, .iterations = 0});
  });
  std::printf(
      "\n    {\"n\": %d, \"d\": %d, \"half_step_us\": %.1f, \"forward_sweeps\": %d, \"forward_ms\": %.3f, "
      "\"forward_and_gradient_ms\": %.3f, \"gradient_ratio\": %.3f, \"gradient_limit\": 1.25, "
      "\"with_estimate_ms\": %.3f, \"solve_ms\": %.3f, \"divergence_and_gradients_ms\": %.3f, "
      "\"divergence_ratio\": %.3f, \"divergence_limit\": 2.3, \"hvp_steps\": %d, \"hvp_ms\": %.3f, "
      "\"hvp_without_steps_ms\": %.3f, "
      "\"hvp_first_ms\": %.3f, \"hvp_limit_ms\": %s, \"residual\": %.2e, \"memory_mb\": %.0f}",
      n, d, half_step, sweeps, forward_ms, both_ms, both_ms / forward_ms, estimated_ms, solve_ms, divergence_ms,
      divergence_ms / solve_ms, report.iterations, hvp_ms, without_steps_ms, first_ms,
      n == 10000 && d == 64 ? "5" : "null", report.residual, static_cast<double>(taken() - before) * 1e-6);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  bool const quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  Stream const stream(cudaStreamNonBlocking);
  Context const context = Context::cuda({.stream = stream.get()});
  std::printf("{\n  %s,\n  \"derivatives\": [", bench::provenance(0).c_str());
  print_case(context, stream.get(), 10000, 64, 10);
  std::printf(",");
  print_case(context, stream.get(), 10000, 64, 100);
  if (!quick) {
    for (auto const [n, d] : {std::pair{10000, 3}, {2000, 64}, {50000, 64}}) {
      std::printf(",");
      print_case(context, stream.get(), n, d, 100);
    }
  }
  std::printf("\n  ]\n}\n");
  return 0;
}
