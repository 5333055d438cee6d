#include "cuda/kernels/pass_tile.cuh"

#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/pass.hpp"

namespace monge::cuda {
namespace {

/// Passes of solves are made for many problems at once too.
template <class T, bool kDifference, Pass kPass>
Kernel<PassArguments> tile() {
  Kernel<PassArguments> kernel{pass_tile<T, kDifference, kPass, One<PassArguments>>, nullptr};
  if constexpr (kPass == Pass::softmin || kPass == Pass::moments)
    kernel.many = pass_tile<T, kDifference, kPass, Many<PassArguments>>;
  return kernel;
}

template <bool kDifference>
Kernel<PassArguments> double_kernel(Pass pass) {
  switch (pass) {
    case Pass::softmin:
      return tile<double, kDifference, Pass::softmin>();
    case Pass::moments:
      return tile<double, kDifference, Pass::moments>();
    case Pass::product:
      return tile<double, kDifference, Pass::product>();
    case Pass::entries:
      return tile<double, kDifference, Pass::entries>();
    case Pass::logits:
      return tile<double, kDifference, Pass::logits>();
    case Pass::hadamard:
      return tile<double, false, Pass::hadamard>();
    case Pass::values:
      return tile<double, false, Pass::values>();
  }
  return {};
}

/// In float for what the faster kernels lack: moments, and entries and logits from differences.
Kernel<PassArguments> float_kernel(Pass pass, bool difference) {
  if (pass == Pass::logits) return tile<float, true, Pass::logits>();
  if (pass == Pass::entries) return tile<float, true, Pass::entries>();
  return difference ? tile<float, true, Pass::moments>() : tile<float, false, Pass::moments>();
}

Kernel<PassArguments> kernel_for(Pass pass, ScoreForm form, DataType scalar) {
  bool const difference = form == ScoreForm::differences;
  if (scalar == DataType::float32) return float_kernel(pass, difference);
  return difference ? double_kernel<true>(pass) : double_kernel<false>(pass);
}

}  // namespace

PassPlan plan_tile(PassChoice const& choice, Operand const& rows, Operand const& columns) {
  Kernel<PassArguments> const kernel = kernel_for(choice.pass, choice.form, rows.scalar);
  PassPlan plan;
  plan.pass = choice.pass;
  plan.kernel = ScoreKernel::tile;
  plan.work = plan_work(rows.padded_size / kTileRows, kTileRows, columns.padded_size / kTileColumns,
                        choice.multiprocessors * occupancy_of(kernel.one, kTileThreads, 0).resident_blocks);
  return plan;
}

void launch_tile(PassPlan const& plan, PassArguments const& arguments, Queue const& queue) {
  queue.launch(kernel_for(plan.pass, arguments.form, arguments.rows.scalar), {plan.work.grid, kTileThreads}, arguments);
}

}  // namespace monge::cuda
