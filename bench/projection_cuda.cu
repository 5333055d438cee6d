// Batched projection on CUDA: time, bytes moved over time, and that as a fraction of the copy rate measured in the same
// run. Prints JSON.
//
//   projection_cuda [--four]      --four: only 4 x 4 forward and backward, for comparing variants
//
// Every time is the median over launches of one graph that walks through buffers of together more than 256 MB, so that
// no input is found in the cache; "launch_us" is the same without a graph. Inputs are standard normal logits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "cuda/runtime/runtime.hpp"

namespace {

using monge::cuda::Event;

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
__global__ void copy_kernel(float4 const* from, float4* to, std::int64_t count) {
  std::int64_t const stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    __stcs(to + i, __ldcs(from + i));
}
__global__ void nothing() {}

double median(std::vector<float> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

struct Timer {
  cudaStream_t stream;
  Event start, stop;
  double us(int repeats, std::function<void()> const& enqueue) {
    std::vector<float> times;
    for (int r = 0; r < repeats + 2; ++r) {
      MONGE_CUDA_TRY(cudaEventRecord(start.get(), stream));
      enqueue();
      MONGE_CUDA_TRY(cudaEventRecord(stop.get(), stream));
      MONGE_CUDA_TRY(cudaEventSynchronize(stop.get()));
      float ms = 0;
      MONGE_CUDA_TRY(cudaEventElapsedTime(&ms, start.get(), stop.get()));
      if (r >= 2) times.push_back(ms);
    }
    return 1000 * median(times);
  }
};

struct Sample {
  double launch_us, graph_us;
};

/// call(i): launch number i of `count`.
Sample measure(Timer& timer, int count, std::function<void(int)> const& call) {
  auto const all = [&] {
    for (int i = 0; i < count; ++i) call(i);
  };
  all();
  MONGE_CUDA_TRY(cudaStreamSynchronize(timer.stream));
  Sample sample;
  sample.launch_us = timer.us(7, all) / count;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  MONGE_CUDA_TRY(cudaStreamBeginCapture(timer.stream, cudaStreamCaptureModeThreadLocal));
  all();
  MONGE_CUDA_TRY(cudaStreamEndCapture(timer.stream, &graph));
  MONGE_CUDA_TRY(cudaGraphInstantiate(&executable, graph, 0));
  sample.graph_us = timer.us(9, [&] { MONGE_CUDA_TRY(cudaGraphLaunch(executable, timer.stream)); }) / count;
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return sample;
}

}  // namespace

int main(int argc, char** argv) {
  bool const four = argc > 1 && std::strcmp(argv[1], "--four") == 0;
  cudaStream_t stream = nullptr;
  MONGE_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  monge::Context const context = monge::Context::cuda(0, stream);
  monge::Device const device = context.device();
  Timer timer{stream};

  std::int64_t const floats = std::int64_t{1} << 28;  // 1 GiB each
  float *logits = nullptr, *gradient = nullptr, *out = nullptr;
  for (float** buffer : {&logits, &gradient, &out}) MONGE_CUDA_TRY(cudaMalloc(buffer, floats * 4));
  fill_normal<<<1024, 256, 0, stream>>>(gradient, floats, 1.0f, 7u);
  MONGE_CUDA_TRY(cudaMemsetAsync(out, 1, floats * 4, stream));
  auto const set_spread = [&](float spread) { fill_normal<<<1024, 256, 0, stream>>>(logits, floats, spread, 1u); };
  set_spread(1);
  double const memcpy_us = timer.us(
      9, [&] { MONGE_CUDA_TRY(cudaMemcpyAsync(out, gradient, floats * 4, cudaMemcpyDeviceToDevice, stream)); });
  double const kernel_us = timer.us(9, [&] {
    copy_kernel<<<132 * 16, 256, 0, stream>>>(reinterpret_cast<float4 const*>(gradient), reinterpret_cast<float4*>(out),
                                              floats / 4);
  });
  double const copy_rate = 8.0 * static_cast<double>(floats) / (std::min(memcpy_us, kernel_us) * 1e-6);
  Sample const null = measure(timer, 64, [&](int) { nothing<<<1, 32, 0, stream>>>(); });
  std::printf(
      "{\n  \"device\": \"%s\",\n  \"copy_bytes_per_s\": %.4g,\n  \"memcpy_us\": %.1f, \"copy_kernel_us\": %.1f,\n"
      "  \"null_launch_us\": %.2f, \"null_graph_us\": %.2f,\n  \"cases\": [",
      monge::devices().back().name.c_str(), copy_rate, memcpy_us, kernel_us, null.launch_us, null.graph_us);
  char const* separator = "";
  auto const report = [&](std::string const& label, std::int64_t batch, double bytes, Sample const& sample) {
    double const rate = bytes / (std::max(sample.graph_us, 1e-9) * 1e-6);
    std::printf(
        "%s\n    {\"case\": \"%s\", \"batch\": %lld, \"launch_us\": %.2f, \"graph_us\": %.2f, \"gb_per_s\": %.0f, "
        "\"of_copy\": %.3f}",
        separator, label.c_str(), static_cast<long long>(batch), sample.launch_us, sample.graph_us, rate * 1e-9,
        rate / copy_rate);
    std::fflush(stdout);
    separator = ",";
  };
  auto const projection = [&](char const* label, int n, std::int64_t batch, monge::ProjectionOptions const& options,
                              bool backward) {
    std::int64_t const cells = static_cast<std::int64_t>(n) * n;
    batch = std::min(batch, floats / cells);
    std::int64_t const matrices = floats / cells;  // In all buffers.
    int const count = static_cast<int>(std::clamp<std::int64_t>(matrices / batch, 1, 64));
    Sample const sample = measure(timer, count, [&](int i) {
      std::int64_t const at = i % (matrices / batch) * batch * cells;
      monge::BatchView const in(logits + at, batch, n, n, -1, -1, device),
          g(gradient + at, batch, n, n, -1, -1, device);
      monge::MutableBatchView const to(out + at, batch, n, n, -1, -1, device);
      backward ? monge::project_backward(context, in, g, to, options) : monge::project(context, in, to, options);
    });
    report(std::string(label) + (backward ? " backward " : " ") + std::to_string(n), batch,
           (backward ? 12.0 : 8.0) * static_cast<double>(cells * batch), sample);
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
  if (!four) {
    projection("blog", 4, 4096, preset("blog", 20), false);
    projection("blog", 4, 65536, preset("blog", 20), false);
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
    for (std::int64_t const tokens : {std::int64_t{4096}, std::int64_t{32768}, std::int64_t{1} << 20}) {
      for (bool const backward : {false, true}) {
        int const buffers = static_cast<int>(std::clamp<std::int64_t>(floats / 32 / tokens, 1, 64));
        monge::MhcOptions options;
        float* const parameters = gradient + floats - 64;  // scale, base; their gradients after them
        Sample const sample = measure(timer, buffers, [&](int i) {
          float* const mixes = logits + i * tokens * 24;
          float* const g = gradient + i * tokens * 24;
          float* const to = out + i * tokens * 24;
          monge::VectorView const scale(parameters, 3, 1, device), base(parameters + 4, 24, 1, device);
          if (backward) {
            monge::mhc_mapping_backward(context, {mixes, tokens, 24, -1, device}, scale, base,
                                        {g, tokens, 4, -1, device}, {g + 4 * tokens, tokens, 4, -1, device},
                                        {g + 8 * tokens, tokens, 4, 4, -1, -1, device}, {to, tokens, 24, -1, device},
                                        {parameters + 32, 3, 1, device}, {parameters + 36, 24, 1, device}, options);
          } else {
            monge::mhc_mapping(context, {mixes, tokens, 24, -1, device}, scale, base, {to, tokens, 4, -1, device},
                               {to + 4 * tokens, tokens, 4, -1, device},
                               {to + 8 * tokens, tokens, 4, 4, -1, -1, device}, options);
          }
        });
        report(backward ? "mhc mapping backward" : "mhc mapping", tokens,
               (backward ? 288.0 : 192.0) * static_cast<double>(tokens), sample);
      }
    }
  }
  set_spread(3);
  projection("mhc_paper spread 3", 4, huge, preset("mhc_paper", 20), false);
  set_spread(10);
  projection("mhc_paper spread 10", 4, huge, preset("mhc_paper", 20), false);
  std::printf("\n  ]\n}\n");
  return 0;
}
