#include "cuda/kernels/pass_tile.cuh"

#include "cuda/launch/chained.hpp"
#include "cuda/launch/pass.hpp"

namespace monge::cuda {
namespace {

using Kernel = void (*)(PassArguments);

template <bool kDifference>
Kernel double_kernel(Pass pass) {
  switch (pass) {
    case Pass::softmin:
      return pass_tile<double, kDifference, Pass::softmin>;
    case Pass::moments:
      return pass_tile<double, kDifference, Pass::moments>;
    case Pass::product:
      return pass_tile<double, kDifference, Pass::product>;
    case Pass::entries:
      return pass_tile<double, kDifference, Pass::entries>;
    case Pass::logits:
      return pass_tile<double, kDifference, Pass::logits>;
    case Pass::hadamard:
      return pass_tile<double, false, Pass::hadamard>;
    case Pass::values:
      return pass_tile<double, false, Pass::values>;
  }
  return nullptr;
}

/// In float for what the faster kernels lack: moments, and entries and logits from differences.
Kernel float_kernel(Pass pass, bool difference) {
  if (pass == Pass::logits) return pass_tile<float, true, Pass::logits>;
  if (pass == Pass::entries) return pass_tile<float, true, Pass::entries>;
  return difference ? pass_tile<float, true, Pass::moments> : pass_tile<float, false, Pass::moments>;
}

Kernel kernel_for(Pass pass, ScoreForm form, DataType scalar) {
  bool const difference = form == ScoreForm::differences;
  if (scalar == DataType::float32) return float_kernel(pass, difference);
  return difference ? double_kernel<true>(pass) : double_kernel<false>(pass);
}

}  // namespace

PassPlan plan_tile(PassChoice const& choice, Operand const& rows, Operand const& columns) {
  int resident = 1;
  MONGE_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &resident, kernel_for(choice.pass, choice.form, rows.scalar), kTileThreads, 0));
  PassPlan plan;
  plan.pass = choice.pass;
  plan.kernel = ScoreKernel::tile;
  plan.work = plan_work(rows.padded_size / kTileRows, kTileRows, columns.padded_size / kTileColumns,
                        choice.multiprocessors * resident);
  return plan;
}

void launch_tile(PassPlan const& plan, PassArguments const& arguments, cudaStream_t stream) {
  Kernel const kernel = kernel_for(plan.pass, arguments.form, arguments.rows.scalar);
  launch_chained(kernel, plan.work.grid, kTileThreads, 0, stream, arguments);
}

}  // namespace monge::cuda
