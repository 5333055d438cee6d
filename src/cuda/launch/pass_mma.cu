#include "cuda/launch/chained.hpp"
#include "cuda/launch/mma_choice.hpp"
#include "cuda/launch/pass.hpp"

namespace monge::cuda {
namespace {

MmaChoice choose(Pass pass, ScoreKernel kernel, TensorCores cores, int half_stride, int shared_limit) {
  switch (pass) {
    case Pass::product:
      return choose_mma<Pass::product, 3>(cores, half_stride, shared_limit);
    case Pass::entries:
      return choose_mma<Pass::entries, 3>(cores, half_stride, shared_limit);
    case Pass::logits:
      return choose_mma<Pass::logits, 3>(cores, half_stride, shared_limit);
    case Pass::hadamard:
      return choose_mma<Pass::hadamard, 3>(cores, half_stride, shared_limit);
    default:
      return kernel == ScoreKernel::one_product ? choose_mma<Pass::softmin, 1>(cores, half_stride, shared_limit)
                                                : choose_mma<Pass::softmin, 3>(cores, half_stride, shared_limit);
  }
}

}  // namespace

bool has_body(void const* kernel, int threads) {
  cudaFuncAttributes attributes;
  MONGE_CUDA_TRY(cudaFuncGetAttributes(&attributes, kernel));
  return attributes.maxThreadsPerBlock >= threads;
}

PassPlan plan_mma(PassChoice const& choice, Operand const& rows, Operand const& columns) {
  int const limit = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  MmaChoice const wgmma = choose(choice.pass, choice.kernel, kWgmma, rows.half_stride, limit);
  TensorCores const cores = has_body(reinterpret_cast<void const*>(wgmma.kernel), wgmma.threads) ? kWgmma : kMma;
  MmaChoice const kernel = choose(choice.pass, choice.kernel, cores, rows.half_stride, limit);
  MONGE_CUDA_TRY(cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kernel.shared_bytes));
  int resident = 1;
  MONGE_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel.kernel, kernel.threads,
                                                               static_cast<std::size_t>(kernel.shared_bytes)));
  PassPlan plan;
  plan.pass = choice.pass;
  plan.kernel = choice.kernel;
  plan.variant = cores;
  plan.work = plan_work(rows.padded_size / kernel.rows, kernel.rows, columns.padded_size / kernel.columns,
                        choice.multiprocessors * resident);
  plan.shared_limit = limit;
  return plan;
}

void launch_mma(PassPlan const& plan, PassArguments const& arguments, cudaStream_t stream) {
  MmaChoice const choice = choose(plan.pass, plan.kernel, static_cast<TensorCores>(plan.variant),
                                  arguments.rows.half_stride, plan.shared_limit);
  launch_chained(choice.kernel, plan.work.grid, choice.threads, choice.shared_bytes, stream, arguments, choice.chunks);
}

}  // namespace monge::cuda
