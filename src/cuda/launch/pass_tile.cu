#include "cuda/kernels/pass_tile.cuh"

#include "cuda/launch/chained.hpp"
#include "cuda/launch/pass.hpp"

namespace monge::cuda {
namespace {

using Kernel = void (*)(PassArguments);

template <ScoreForm kForm>
Kernel double_kernel(Pass pass) {
  switch (pass) {
    case Pass::softmin:
      return pass_tile<double, kForm, Pass::softmin>;
    case Pass::moments:
      return pass_tile<double, kForm, Pass::moments>;
    case Pass::product:
      return pass_tile<double, kForm, Pass::product>;
    case Pass::entries:
      return pass_tile<double, kForm, Pass::entries>;
    case Pass::hadamard:
      return pass_tile<double, ScoreForm::products, Pass::hadamard>;
    case Pass::values:
      return pass_tile<double, ScoreForm::products, Pass::values>;
  }
  return nullptr;
}

/// In float for what the faster kernels lack: moments, entries from differences, and stored scores.
Kernel float_kernel(Pass pass, ScoreForm form) {
  if (form == ScoreForm::stored) {
    switch (pass) {
      case Pass::softmin:
        return pass_tile<float, ScoreForm::stored, Pass::softmin>;
      case Pass::moments:
        return pass_tile<float, ScoreForm::stored, Pass::moments>;
      case Pass::product:
        return pass_tile<float, ScoreForm::stored, Pass::product>;
      default:
        return pass_tile<float, ScoreForm::stored, Pass::entries>;
    }
  }
  if (pass == Pass::entries) return pass_tile<float, ScoreForm::differences, Pass::entries>;
  return form == ScoreForm::differences ? pass_tile<float, ScoreForm::differences, Pass::moments>
                                        : pass_tile<float, ScoreForm::products, Pass::moments>;
}

Kernel kernel_for(Pass pass, ScoreForm form, DataType scalar) {
  if (scalar == DataType::float32) return float_kernel(pass, form);
  switch (form) {
    case ScoreForm::differences:
      return double_kernel<ScoreForm::differences>(pass);
    case ScoreForm::products:
      return double_kernel<ScoreForm::products>(pass);
    case ScoreForm::stored:
      return double_kernel<ScoreForm::stored>(pass);
  }
  return nullptr;
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
