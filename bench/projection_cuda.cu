// Batched projection on CUDA: time, bytes moved over time, and that as a fraction of the copy rate measured in the same
// run. Prints JSON.
//
//   projection_cuda [--once] [TEXT...]      only the cases whose label starts with one of the texts; --once: one launch
//                                           each, for profilers
//
// Every time is the median over launches of one graph that walks through buffers of together more than 256 MB, so that
// no input is found in the cache (but those of "cached" cases); "launch_us" is the same without a graph. Inputs are
// standard normal logits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "cuda_limits.cuh"

namespace {

__global__ void fill_normal(float* to, std::int64_t count, float spread, unsigned seed) {
  std::int64_t const stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::uint64_t x = (static_cast<std::uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ull + seed;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    float const u = (static_cast<float>(x >> 40) + 0.5f) * 0x1p-24f, v = static_cast<float>(x & 0xffffff) * 0x1p-24f;
    to[i] = spread * sqrtf(-2 * logf(u)) * cospif(2 * v);
  }
}
struct Sample {
  double launch_us, graph_us;
};

/// call(i): launch number i of `count`.
Sample measure(cudaStream_t stream, int count, std::function<void(int)> const& call) {
  auto const all = [&] {
    for (int i = 0; i < count; ++i) call(i);
  };
  double const launches_ms = monge::bench::median_ms(stream, 7, all);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  MONGE_CUDA_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  all();
  MONGE_CUDA_TRY(cudaStreamEndCapture(stream, &graph));
  MONGE_CUDA_TRY(cudaGraphInstantiate(&executable, graph, 0));
  double const graph_ms =
      monge::bench::median_ms(stream, 9, [&] { MONGE_CUDA_TRY(cudaGraphLaunch(executable, stream)); });
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return {1000 * launches_ms / count, 1000 * graph_ms / count};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> only(argv + 1, argv + argc);
  bool const once = !only.empty() && only.front() == "--once";
  if (once) only.erase(only.begin());
  cudaStream_t stream = nullptr;
  MONGE_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  monge::Context const context = monge::Context::cuda({.stream = stream});
  monge::Device const device = context.device();
  int const multiprocessors = monge::devices().back().units;

  std::int64_t const floats = std::int64_t{1} << 28;  // 1 GiB each
  float *logits = nullptr, *gradient = nullptr, *out = nullptr;
  for (float** buffer : {&logits, &gradient, &out}) MONGE_CUDA_TRY(cudaMalloc(buffer, floats * 4));
  fill_normal<<<1024, 256, 0, stream>>>(gradient, floats, 1.0f, 7u);
  MONGE_CUDA_TRY(cudaMemsetAsync(out, 1, floats * 4, stream));
  auto const set_spread = [&](float spread) { fill_normal<<<1024, 256, 0, stream>>>(logits, floats, spread, 1u); };
  set_spread(1);
  monge::bench::CopyRates const copies =
      monge::bench::copy_rates(stream, multiprocessors, gradient, out, static_cast<std::size_t>(floats) * 4);
  Sample const null = measure(stream, 64, [&](int) { monge::bench::limits::nothing<<<1, 32, 0, stream>>>(); });
  std::printf(
      "{\n  %s,\n  \"memcpy_bytes_per_s\": %.4g, \"copy_kernel_bytes_per_s\": %.4g, \"exp2_per_s\": %.4g,\n"
      "  \"null_launch_us\": %.2f, \"null_graph_us\": %.2f,\n  \"cases\": [",
      monge::bench::provenance(device.index).c_str(), copies.memcpy, copies.kernel,
      monge::bench::exp2_rate(stream, multiprocessors, out), null.launch_us, null.graph_us);
  char const* separator = "";
  auto const report = [&](std::string const& label, std::int64_t batch, double bytes, int count,
                          std::function<void(int)> const& call) {
    std::string const name = label + " x " + std::to_string(batch);
    auto const starts = [&](std::string const& text) { return name.rfind(text, 0) == 0; };
    if (!only.empty() && std::none_of(only.begin(), only.end(), starts)) return;
    if (once) return call(0);
    Sample const sample = measure(stream, count, call);
    double const rate = bytes / (std::max(sample.graph_us, 1e-9) * 1e-6);
    std::printf(
        "%s\n    {\"case\": \"%s\", \"batch\": %lld, \"launch_us\": %.2f, \"graph_us\": %.2f, \"gb_per_s\": %.0f, "
        "\"of_copy\": %.3f}",
        separator, label.c_str(), static_cast<long long>(batch), sample.launch_us, sample.graph_us, rate * 1e-9,
        rate / copies.memcpy);
    std::fflush(stdout);
    separator = ",";
  };
  auto const projection = [&](char const* label, int n, std::int64_t batch, monge::ProjectionOptions const& options,
                              bool backward, bool cached = false) {
    std::int64_t const cells = static_cast<std::int64_t>(n) * n;
    batch = std::min(batch, floats / cells);
    std::int64_t const matrices = floats / cells;  // In all buffers.
    int const count = static_cast<int>(std::clamp<std::int64_t>(matrices / batch, 1, 64));
    double const bytes = (backward ? 12.0 : 8.0) * static_cast<double>(cells * batch);
    std::string const name = std::string(label) + (backward ? " backward " : " ") + std::to_string(n);
    report(name, batch, bytes, count, [&](int i) {
      std::int64_t const at = cached ? 0 : i % (matrices / batch) * batch * cells;
      monge::BatchView const in(logits + at, batch, n, n, monge::kContiguous, monge::kContiguous, device),
          g(gradient + at, batch, n, n, monge::kContiguous, monge::kContiguous, device);
      monge::MutableBatchView const to(out + at, batch, n, n, monge::kContiguous, monge::kContiguous, device);
      backward ? monge::project_backward(context, in, g, to, options) : monge::project(context, in, to, options);
    });
  };
  auto preset = [](char const* name, int iterations) {
    monge::ProjectionOptions options = monge::projection_preset(name);
    options.iterations = iterations;
    return options;
  };
  std::int64_t const huge = std::int64_t{1} << 24;
  for (std::int64_t const batch :
       {std::int64_t{1}, std::int64_t{4096}, std::int64_t{65536}, std::int64_t{1} << 20, huge})
    projection("mhc_paper", 4, batch, preset("mhc_paper", 20), false);
  projection("mhc_paper", 4, std::int64_t{1} << 15, preset("mhc_paper", 20), true);
  projection("mhc_paper", 4, huge, preset("mhc_paper", 20), true);
  projection("deepseek", 4, huge, preset("deepseek", 20), true);
  for (char const* name : {"deepseek", "megatron", "blog", "gumbel_sinkhorn"})
    projection(name, 4, huge, preset(name, 20), false);
  {
    projection("blog", 4, 4096, preset("blog", 20), false);
    projection("blog", 4, 65536, preset("blog", 20), false);
    // As the blog measures: the same matrices again and again, from the L2 cache.
    for (char const* name : {"mhc_paper", "blog"})
      projection((std::string(name) + " cached").c_str(), 4, 65536, preset(name, 20), false, true);
    for (int const n : {8, 16, 32}) {
      projection("mhc_paper", n, huge, preset("mhc_paper", 20), false);
      projection("blog", n, huge, preset("blog", 20), false);
      projection("mhc_paper", n, huge, preset("mhc_paper", 20), true);
    }
    projection(
        "permllm", 64, huge,
        [&] {
          auto o = preset("mhc_paper", 5);
          o.order = monge::ProjectionOrder::rows_first;
          return o;
        }(),
        false);
    projection("permllm", 64, huge, preset("mhc_paper", 5), true);
    projection("mhc_paper", 128, 4096, preset("mhc_paper", 5), false);
    projection("mhc_paper", 128, 4096, preset("mhc_paper", 5), true);
    projection("mhc_paper padded", 6, std::int64_t{1} << 20, preset("mhc_paper", 20), false);
    for (int const n : {4, 2, 8}) {
      int const columns = n * (n + 2);
      for (std::int64_t const tokens : {std::int64_t{4096}, std::int64_t{32768}, std::int64_t{1} << 20}) {
        for (bool const backward : {false, true}) {
          int const buffers = static_cast<int>(std::clamp<std::int64_t>((floats - 512) / columns / tokens, 1, 64));
          monge::MhcOptions options;
          float* const parameters = gradient + floats - 512;  // scale, base; their gradients after them
          double const bytes = (backward ? 12.0 : 8.0) * columns * static_cast<double>(tokens);
          std::string const label = n == 4 ? "mhc mapping" : "mhc mapping " + std::to_string(n) + " streams";
          report(label + (backward ? " backward" : ""), tokens, bytes, buffers, [&](int i) {
            float* const mixes = logits + i * tokens * columns;
            float* const g = gradient + i * tokens * columns;
            float* const to = out + i * tokens * columns;
            monge::VectorView const scale(parameters, 3, 1, device), base(parameters + 4, columns, 1, device);
            if (backward) {
              monge::mhc_mapping_backward(
                  context, {mixes, tokens, columns, monge::kContiguous, device}, scale, base,
                  {g, tokens, n, monge::kContiguous, device}, {g + n * tokens, tokens, n, monge::kContiguous, device},
                  {g + 2 * n * tokens, tokens, n, n, monge::kContiguous, monge::kContiguous, device},
                  {to, tokens, columns, monge::kContiguous, device}, {parameters + 256, 3, 1, device},
                  {parameters + 260, columns, 1, device}, options);
            } else {
              monge::mhc_mapping(
                  context, {mixes, tokens, columns, monge::kContiguous, device}, scale, base,
                  {to, tokens, n, monge::kContiguous, device}, {to + n * tokens, tokens, n, monge::kContiguous, device},
                  {to + 2 * n * tokens, tokens, n, n, monge::kContiguous, monge::kContiguous, device}, options);
            }
          });
        }
      }
    }
  }
  set_spread(3);
  projection("mhc_paper spread 3", 4, huge, preset("mhc_paper", 20), false);
  projection("mhc_paper spread 3", 4, huge, preset("mhc_paper", 20), true);
  projection("mhc_paper spread 3", 16, huge, preset("mhc_paper", 20), false);
  set_spread(10);
  projection("mhc_paper spread 10", 4, huge, preset("mhc_paper", 20), false);
  std::printf("\n  ]\n}\n");
  return 0;
}
