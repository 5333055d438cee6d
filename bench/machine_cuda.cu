#include "cuda_limits.cuh"
#include "machine.hpp"

namespace monge::bench {

Machine cuda_machine() {
  Context const context = Context::cuda();
  cuda::Stream const stream(cudaStreamNonBlocking);
  int const units = devices().at(1).units;
  std::size_t const bytes = std::size_t{1} << 31;
  void* memory = nullptr;
  MONGE_CUDA_TRY(cudaMalloc(&memory, bytes));
  MONGE_CUDA_TRY(cudaMemset(memory, 1, bytes));
  Machine machine{
      .context = context,
      .provenance = provenance(0),
      .copy =
          [](std::vector<double> const& values) {
            double* there = nullptr;
            MONGE_CUDA_TRY(cudaMalloc(&there, values.size() * sizeof(double)));
            std::shared_ptr<double const> const owner(there, [](double const* p) { cudaFree(const_cast<double*>(p)); });
            MONGE_CUDA_TRY(cudaMemcpy(there, values.data(), values.size() * sizeof(double), cudaMemcpyHostToDevice));
            return owner;
          },
      .read_rate = read_rate(stream.get(), units, memory, static_cast<float*>(memory), bytes),
      .exp_rate = double_exp2_rate(stream.get(), units, static_cast<double*>(memory)),
  };
  MONGE_CUDA_TRY(cudaFree(memory));
  return machine;
}

}  // namespace monge::bench
