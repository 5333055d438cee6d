// What an iteration of splitting takes on a CUDA device, beside the copy rate of the same run: costs of two clouds of
// points in the plane, uniform weights. Microseconds of an iteration, of pairs from a graph ("us") and of single ones
// ("single_us", 12 bytes an entry), and the share of the copy rate at 10 bytes an entry. What iterations leave is
// checked against a float64 evaluation. Prints JSON, a line a case.
//
//   splitting_cuda [largest n]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "cuda/regularized/splitting_operator.hpp"
#include "cuda_limits.cuh"

namespace {

using namespace monge;

/// Squared distances of points on two spirals.
__global__ void make_costs(int n, float* out) {
  std::int64_t const k = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (k >= static_cast<std::int64_t>(n) * n) return;
  float const s = static_cast<float>(k / n) / static_cast<float>(n),
              t = static_cast<float>(k % n) / static_cast<float>(n);
  float const x = s * cosf(97 * s) - (0.4f + 1.3f * t * cosf(61 * t)), y = s * sinf(97 * s) - t * sinf(61 * t);
  out[k] = x * x + y * y;
}

struct Case {
  char const* name;
  double quadratic, group_lasso;
  int groups;
  double hypentropy = 0;
};

struct Timing {
  double us, single_us;
  double residual, of_evaluation;  // Residual of an iteration and of a float64 evaluation of its X, over |(p, q)|_2.
  bool right;
};

/// Whether what the iterations say of X is what a float64 evaluation finds.
void check(cuda::SplittingOperator& splitting, Precision precision, Timing& timing) {
  SplittingResidual const found = splitting.residual();
  RegularizedValues const values = splitting.evaluate();
  double const rounding = precision == Precision::float32 ? 1e-5 : 1e-13;
  double const shares = std::sqrt(2 / static_cast<double>(splitting.rows()));
  timing.residual = std::sqrt(found.row_squares + found.column_squares) / shares;
  timing.of_evaluation = std::sqrt(values.residual_squares) / shares;
  std::vector<double> marginal(static_cast<std::size_t>(splitting.rows()), std::numeric_limits<double>::quiet_NaN());
  splitting.marginal(Side::rows, marginal);
  double mass = 0;
  for (double const of_row : marginal) mass += of_row;
  timing.right = std::abs(timing.residual - timing.of_evaluation) <= rounding &&
                 std::abs(mass - values.transported_mass) <= 1e-12 && values.nonzeros > 0;
}

Timing run(std::shared_ptr<cuda::Runtime const> const& runtime, float const* costs, int n, Case const& one,
           Precision precision) {
  CostMatrix const matrix{MatrixView(costs, n, n, n, {DeviceType::cuda, runtime->index()})};
  Geometry const geometry = matrix;
  std::vector<double> const shares(static_cast<std::size_t>(n), 1.0 / n);
  RegularizerTerms terms;
  terms.quadratic = one.quadratic * 2 * n;
  terms.group_lasso = one.group_lasso;
  terms.hypentropy = one.hypentropy;
  terms.hypentropy_width = 1e-3 / n;
  if (one.group_lasso > 0) {
    for (int i = 0; i < n; ++i) terms.groups.push_back(static_cast<std::int64_t>(i) * one.groups / n);
    terms.group_weights.assign(static_cast<std::size_t>(one.groups), 1.0);
  }
  cudaStream_t const stream = runtime->stream();
  RegularizedInput const input{geometry, shares, shares, 1, terms};
  auto const read = std::make_shared<cuda::RegularizedCosts>(runtime, input);
  do read->survey(stream);
  while (read->finish_survey());
  cuda::SplittingOperator splitting(read, precision, stream);
  splitting.start(2.0 / (2 * n));
  constexpr int kCount = 40;
  splitting.iterate(2 * kCount);
  Timing timing;
  timing.us = 1e3 / kCount * bench::median_ms(stream, 7, [&] { splitting.iterate(kCount); });
  timing.single_us = 1e3 / kCount * bench::median_ms(stream, 3, [&] {
                       for (int k = 0; k < kCount; ++k) splitting.iterate(1);
                     });
  check(splitting, precision, timing);
  return timing;
}

}  // namespace

int main(int argc, char** argv) {
  int const largest = argc > 1 ? std::atoi(argv[1]) : 10240;
  auto const runtime = std::make_shared<cuda::Runtime const>(CudaOptions{});
  constexpr std::int64_t kCopied = std::int64_t{1} << 30;
  double rate = 0;
  {
    cuda::DeviceArray<unsigned char> const from(runtime, kCopied), to(runtime, kCopied);
    MONGE_CUDA_TRY(cudaMemset(from.data(), 1, kCopied));
    rate = bench::copy_rates(runtime->stream(), runtime->multiprocessors(), from.data(), to.data(), kCopied).kernel;
  }
  std::printf("{\n  %s,\n  \"copy_rate\": %.4g,\n  \"cases\": [", bench::provenance(0).c_str(), rate);
  char const* separator = "";
  bool right = true;
  for (int const n : {1000, 1024, 2500, 4096, 5000, 10240}) {
    if (n > largest) continue;
    std::int64_t const entries = static_cast<std::int64_t>(n) * n;
    cuda::DeviceArray<float> const costs(runtime, entries);
    make_costs<<<static_cast<unsigned>((entries - 1) / 256 + 1), 256, 0, runtime->stream()>>>(n, costs.data());
    MONGE_CUDA_TRY(cudaGetLastError());
    for (Precision const precision : {Precision::float32, Precision::float64}) {
      for (Case const& one : {Case{"none", 0, 0, 0}, Case{"quadratic", 1e-3, 0, 0}, Case{"group_lasso", 0, 1e-3, 2},
                              Case{"group_lasso", 0, 1e-3, 16}, Case{"group_lasso", 0, 1e-3, 64},
                              Case{"hypentropy", 0, 0, 0, 0.01}, Case{"group_lasso_hypentropy", 0, 1e-3, 16, 0.01}}) {
        Timing const timing = run(runtime, costs.data(), n, one, precision);
        double const width = precision == Precision::float32 ? 1 : 2;
        double const floor_us = 1e6 * 10 * width * static_cast<double>(entries) / rate;
        std::printf(
            "%s\n    {\"n\": %d, \"h\": \"%s\", \"groups\": %d, \"precision\": \"%s\", \"us\": %.2f, "
            "\"single_us\": %.2f, \"of_copy_rate\": %.3f, \"residual\": %.9g, \"of_evaluation\": %.9g, "
            "\"right\": %s}",
            separator, n, one.name, one.groups, precision == Precision::float32 ? "float32" : "float64", timing.us,
            timing.single_us, floor_us / timing.us, timing.residual, timing.of_evaluation,
            timing.right ? "true" : "false");
        std::fflush(stdout);
        separator = ",";
        right = right && timing.right;
      }
    }
  }
  std::printf("\n  ]\n}\n");
  return right ? 0 : 1;
}
