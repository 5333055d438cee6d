#include "cuda/pass/pass_tile.cuh"

#include "cuda/pass/pass.hpp"

namespace monge::cuda {
namespace {

/// Whether the kernel is compiled. In float, faster kernels take most passes over differences and products.
template <class T, ScoreForm kForm>
constexpr bool is_made(Pass pass) {
  if (pass == Pass::hadamard) return sizeof(T) == 8 && kForm == ScoreForm::products;
  if (sizeof(T) == 8) return true;
  return kForm == ScoreForm::differences ? has_stores(pass) : kForm != ScoreForm::products;
}

/// Sets `kernel` if `pass` is kPass. Passes of sweeps and evaluations are compiled for many problems, too.
template <class T, ScoreForm kForm, Pass kPass>
void offer(Pass pass, Kernel<PassArguments>& kernel) {
  if constexpr (is_made<T, kForm>(kPass)) {
    if (pass != kPass) return;
    kernel.one = pass_tile<T, kForm, kPass, One<PassArguments>>;
    if constexpr (kPass == Pass::softmin) kernel.many = pass_tile<T, kForm, kPass, Many<PassArguments>>;
  }
}

template <class T, ScoreForm kForm, Pass... kPasses>
PassKernel kernel_among(Pass pass, int dimension) {
  PassKernel result{.threads = kTileThreads,
                    .shared_bytes = TileScores<T, kForm>::shared_bytes(dimension),
                    .rows = kTileRows,
                    .columns = kTileColumns};
  (offer<T, kForm, kPasses>(pass, result.kernel), ...);
  return result;
}

template <class T, ScoreForm kForm>
PassKernel kernel_of(Pass pass, int dimension) {
  return kernel_among<T, kForm, Pass::softmin, Pass::product, Pass::entries, Pass::logits, Pass::hadamard>(pass,
                                                                                                           dimension);
}

template <class T>
PassKernel kernel_of(Pass pass, ScoreForm form, int dimension) {
  switch (form) {
    case ScoreForm::differences:
      return kernel_of<T, ScoreForm::differences>(pass, dimension);
    case ScoreForm::distances:
      return kernel_of<T, ScoreForm::distances>(pass, dimension);
    case ScoreForm::products:
      return kernel_of<T, ScoreForm::products>(pass, dimension);
    case ScoreForm::stored:
      return kernel_of<T, ScoreForm::stored>(pass, dimension);
  }
  return {};
}

}  // namespace

PassKernel tile_kernel(Pass pass, ScoreForm form, DataType scalar, int dimension) {
  return scalar == DataType::float32 ? kernel_of<float>(pass, form, dimension)
                                     : kernel_of<double>(pass, form, dimension);
}

}  // namespace monge::cuda
