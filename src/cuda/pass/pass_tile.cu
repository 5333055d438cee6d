#include "cuda/pass/pass_tile.cuh"

#include "cuda/launch/occupancy.hpp"
#include "cuda/pass/pass.hpp"

namespace monge::cuda {
namespace {

struct TileChoice {
  Kernel<PassArguments> kernel;
  int shared_bytes;
};

/// Passes of solves are made for many problems at once too.
template <class T, ScoreForm kForm, Pass kPass>
TileChoice tile(int dimension) {
  Kernel<PassArguments> kernel{pass_tile<T, kForm, kPass, One<PassArguments>>, nullptr};
  if constexpr (kPass == Pass::softmin || kPass == Pass::moments)
    kernel.many = pass_tile<T, kForm, kPass, Many<PassArguments>>;
  return {kernel, TileScores<T, kForm>::shared_bytes(dimension)};
}

template <ScoreForm kForm>
TileChoice choose_double(Pass pass, int dimension) {
  switch (pass) {
    case Pass::softmin:
      return tile<double, kForm, Pass::softmin>(dimension);
    case Pass::moments:
      return tile<double, kForm, Pass::moments>(dimension);
    case Pass::product:
      return tile<double, kForm, Pass::product>(dimension);
    case Pass::entries:
      return tile<double, kForm, Pass::entries>(dimension);
    case Pass::logits:
      return tile<double, kForm, Pass::logits>(dimension);
    case Pass::hadamard:
      return tile<double, ScoreForm::products, Pass::hadamard>(dimension);
    case Pass::values:
      return tile<double, ScoreForm::products, Pass::values>(dimension);
  }
  return {};
}

/// The scores that no faster kernel has.
template <ScoreForm kForm>
TileChoice choose_float(Pass pass, int dimension) {
  switch (pass) {
    case Pass::softmin:
      return tile<float, kForm, Pass::softmin>(dimension);
    case Pass::moments:
      return tile<float, kForm, Pass::moments>(dimension);
    case Pass::product:
      return tile<float, kForm, Pass::product>(dimension);
    case Pass::logits:
      return tile<float, kForm, Pass::logits>(dimension);
    default:
      return tile<float, kForm, Pass::entries>(dimension);
  }
}

/// In float for what the faster kernels lack: moments, entries and logits from differences, and all of other scores.
TileChoice choose_float(Pass pass, ScoreForm form, int dimension) {
  if (form == ScoreForm::stored) return choose_float<ScoreForm::stored>(pass, dimension);
  if (form == ScoreForm::distances) return choose_float<ScoreForm::distances>(pass, dimension);
  if (pass == Pass::logits) return tile<float, ScoreForm::differences, Pass::logits>(dimension);
  if (pass == Pass::entries) return tile<float, ScoreForm::differences, Pass::entries>(dimension);
  return form == ScoreForm::differences ? tile<float, ScoreForm::differences, Pass::moments>(dimension)
                                        : tile<float, ScoreForm::products, Pass::moments>(dimension);
}

TileChoice choose(Pass pass, ScoreForm form, Operand const& rows) {
  int const dimension = rows.dimension;
  if (rows.scalar == DataType::float32) return choose_float(pass, form, dimension);
  switch (form) {
    case ScoreForm::differences:
      return choose_double<ScoreForm::differences>(pass, dimension);
    case ScoreForm::distances:
      return choose_double<ScoreForm::distances>(pass, dimension);
    case ScoreForm::products:
      return choose_double<ScoreForm::products>(pass, dimension);
    case ScoreForm::stored:
      return choose_double<ScoreForm::stored>(pass, dimension);
  }
  return {};
}

}  // namespace

PassPlan plan_tile(PassChoice const& choice, Operand const& rows, Operand const& columns) {
  TileChoice const tile = choose(choice.pass, choice.form, rows);
  auto const resident_blocks = [&](auto kernel) {
    return occupancy_of(kernel, kTileThreads, tile.shared_bytes).resident_blocks;
  };
  if (tile.kernel.many) resident_blocks(tile.kernel.many);
  PassPlan plan;
  plan.pass = choice.pass;
  plan.kernel = ScoreKernel::tile;
  plan.work = plan_work(rows.padded_size / kTileRows, kTileRows, columns.padded_size / kTileColumns,
                        choice.multiprocessors * resident_blocks(tile.kernel.one));
  return plan;
}

void launch_tile(PassPlan const& plan, PassArguments const& arguments, Queue const& queue) {
  TileChoice const tile = choose(plan.pass, arguments.form, arguments.rows);
  queue.launch(tile.kernel, {plan.work.grid, kTileThreads, tile.shared_bytes}, arguments);
}

}  // namespace monge::cuda
