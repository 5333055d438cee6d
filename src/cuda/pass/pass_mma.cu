#include "cuda/launch/occupancy.hpp"
#include "cuda/pass/mma_choice.hpp"
#include "cuda/pass/pass.hpp"
#include "cuda/runtime/check.hpp"

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

/// Room for PassArguments before shared memory that is aligned to 1024 bytes.
constexpr int kArgumentBytes = 1024;
static_assert(sizeof(PassArguments) <= kArgumentBytes);

/// Blocks of a plan that one block of a batch may take: by then starting it costs little.
constexpr int kMostMerged = 8;

Occupancy ask_about(MmaChoice const& choice) {
  if (choice.kernel.many) occupancy_of(choice.kernel.many, choice.threads, choice.shared_bytes);
  return occupancy_of(choice.kernel.one, choice.threads, choice.shared_bytes);
}

}  // namespace

PassPlan plan_mma(PassChoice const& choice, Operand const& rows, Operand const& columns) {
  // A launch for many problems has the arguments in shared memory too.
  int const limit = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kArgumentBytes;
  MmaChoice const wgmma = choose(choice.pass, choice.kernel, kWgmma, rows.half_stride, limit);
  TensorCores const cores = ask_about(wgmma).can_run ? kWgmma : kMma;
  MmaChoice const kernel = choose(choice.pass, choice.kernel, cores, rows.half_stride, limit);
  PassPlan plan;
  plan.pass = choice.pass;
  plan.kernel = choice.kernel;
  plan.variant = cores;
  plan.work = plan_work(rows.padded_size / kernel.rows, kernel.rows, columns.padded_size / kernel.columns,
                        choice.multiprocessors * ask_about(kernel).resident_blocks);
  plan.shared_limit = limit;
  return plan;
}

void launch_mma(PassPlan const& plan, PassArguments const& arguments, Queue const& queue) {
  MmaChoice const choice = choose(plan.pass, plan.kernel, static_cast<TensorCores>(plan.variant),
                                  arguments.rows.half_stride, plan.shared_limit);
  PassArguments filled = arguments;
  filled.chunks = choice.chunks;
  LaunchShape shape{plan.work.grid, choice.threads, choice.shared_bytes};
  // A block that goes from tile to tile overlaps the exponentials of one with the products of the next.
  if (plan.variant == kWgmma) shape.merged = kMostMerged;
  queue.launch(choice.kernel, shape, filled);
}

}  // namespace monge::cuda
