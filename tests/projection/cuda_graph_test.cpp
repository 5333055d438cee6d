// Projections recorded into a CUDA graph by a context's first calls. Built where there is a CUDA toolkit.
#include <cmath>
#include <memory>

#include "oracle/backend_test.hpp"
#include "oracle/cuda_check.hpp"

namespace monge::oracle {
namespace {

struct DeviceFree {
  void operator()(float* memory) const { cudaFree(memory); }
};
using DeviceFloats = std::unique_ptr<float, DeviceFree>;

DeviceFloats on_device(std::int64_t count, double phase) {
  std::vector<float> values(count);
  for (std::int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(std::sin(phase + 0.7 * static_cast<double>(i)));
  float* memory = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&memory), values.size() * sizeof(float)));
  check(cudaMemcpy(memory, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
  return DeviceFloats(memory);
}

std::vector<float> values_of(DeviceFloats const& memory, std::int64_t count) {
  std::vector<float> values(count);
  check(cudaMemcpy(values.data(), memory.get(), values.size() * sizeof(float), cudaMemcpyDeviceToHost));
  return values;
}

constexpr Device kDevice{DeviceType::cuda, 0};

/// The gradients that need memory of the context: for sums over tokens, or for scalings in global memory.
struct Gradients {
  static constexpr std::int64_t kTokens = 300, kBatch = 3;
  static constexpr int kSize = 70;
  DeviceFloats mixes = on_device(24 * kTokens, 0), parameters = on_device(27, 1), d_maps = on_device(24 * kTokens, 2);
  DeviceFloats d_mixes = on_device(24 * kTokens, 3), d_parameters = on_device(27, 4);
  DeviceFloats logits = on_device(kBatch * kSize * kSize, 5), d_out = on_device(kBatch * kSize * kSize, 6);
  DeviceFloats d_logits = on_device(kBatch * kSize * kSize, 7);

  void enqueue(Context const& context, int iterations) const {
    float* const d = d_maps.get();
    mhc_mapping_backward(context, {mixes.get(), kTokens, 24, kContiguous, kDevice}, {parameters.get(), 3, 1, kDevice},
                         {parameters.get() + 3, 24, 1, kDevice}, {d, kTokens, 4, kContiguous, kDevice},
                         {d + 4 * kTokens, kTokens, 4, kContiguous, kDevice},
                         {d + 8 * kTokens, kTokens, 4, 4, kContiguous, kContiguous, kDevice},
                         {d_mixes.get(), kTokens, 24, kContiguous, kDevice}, {d_parameters.get(), 3, 1, kDevice},
                         {d_parameters.get() + 3, 24, 1, kDevice});
    ProjectionOptions options;
    options.iterations = iterations;
    project_backward(context, {logits.get(), kBatch, kSize, kSize, kContiguous, kContiguous, kDevice},
                     {d_out.get(), kBatch, kSize, kSize, kContiguous, kContiguous, kDevice},
                     {d_logits.get(), kBatch, kSize, kSize, kContiguous, kContiguous, kDevice}, options);
  }
  std::vector<std::vector<float>> values() const {
    return {values_of(d_mixes, 24 * kTokens), values_of(d_parameters, 27), values_of(d_logits, kBatch * kSize * kSize)};
  }
};

class ProjectionGraph : public testing::Test {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
};

TEST_F(ProjectionGraph, cuda_records_first_calls_and_replays_after_larger_ones) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Gradients const eager, recorded;
  eager.enqueue(Context::cuda({.stream = stream}), 5);
  check(cudaStreamSynchronize(stream));

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  {
    Context const context = Context::cuda({.stream = stream});
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    recorded.enqueue(context, 5);
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&executable, graph, 0));
    Gradients const larger;
    larger.enqueue(context, 200);
    for (int replay = 0; replay < 2; ++replay) check(cudaGraphLaunch(executable, stream));
    check(cudaStreamSynchronize(stream));
  }
  EXPECT_EQ(recorded.values(), eager.values());
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace monge::oracle
