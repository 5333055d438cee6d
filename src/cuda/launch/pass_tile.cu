#include "cuda/kernels/pass_tile.cuh"

#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/pass.hpp"

namespace monge::cuda {
namespace {

/// Passes of solves are made for many problems at once too.
template <class T, ScoreForm kForm, Pass kPass>
Kernel<PassArguments> tile() {
  Kernel<PassArguments> kernel{pass_tile<T, kForm, kPass, One<PassArguments>>, nullptr};
  if constexpr (kPass == Pass::softmin || kPass == Pass::moments)
    kernel.many = pass_tile<T, kForm, kPass, Many<PassArguments>>;
  return kernel;
}

template <ScoreForm kForm>
Kernel<PassArguments> double_kernel(Pass pass) {
  switch (pass) {
    case Pass::softmin:
      return tile<double, kForm, Pass::softmin>();
    case Pass::moments:
      return tile<double, kForm, Pass::moments>();
    case Pass::product:
      return tile<double, kForm, Pass::product>();
    case Pass::entries:
      return tile<double, kForm, Pass::entries>();
    case Pass::logits:
      return tile<double, kForm, Pass::logits>();
    case Pass::hadamard:
      return tile<double, ScoreForm::products, Pass::hadamard>();
    case Pass::values:
      return tile<double, ScoreForm::products, Pass::values>();
  }
  return {};
}

/// In float for what the faster kernels lack: moments, entries and logits from differences, and stored scores.
Kernel<PassArguments> float_kernel(Pass pass, ScoreForm form) {
  if (form == ScoreForm::stored) {
    switch (pass) {
      case Pass::softmin:
        return tile<float, ScoreForm::stored, Pass::softmin>();
      case Pass::moments:
        return tile<float, ScoreForm::stored, Pass::moments>();
      case Pass::product:
        return tile<float, ScoreForm::stored, Pass::product>();
      case Pass::logits:
        return tile<float, ScoreForm::stored, Pass::logits>();
      default:
        return tile<float, ScoreForm::stored, Pass::entries>();
    }
  }
  if (pass == Pass::logits) return tile<float, ScoreForm::differences, Pass::logits>();
  if (pass == Pass::entries) return tile<float, ScoreForm::differences, Pass::entries>();
  return form == ScoreForm::differences ? tile<float, ScoreForm::differences, Pass::moments>()
                                        : tile<float, ScoreForm::products, Pass::moments>();
}

Kernel<PassArguments> kernel_for(Pass pass, ScoreForm form, DataType scalar) {
  if (scalar == DataType::float32) return float_kernel(pass, form);
  switch (form) {
    case ScoreForm::differences:
      return double_kernel<ScoreForm::differences>(pass);
    case ScoreForm::products:
      return double_kernel<ScoreForm::products>(pass);
    case ScoreForm::stored:
      return double_kernel<ScoreForm::stored>(pass);
  }
  return {};
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
