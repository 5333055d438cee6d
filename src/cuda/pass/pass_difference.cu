#include "cuda/pass/pass_difference.cuh"

#include "cuda/pass/pass.hpp"

namespace monge::cuda {
namespace {

template <int kDimension, ScoreForm kForm>
PassKernel kernel_of(Pass pass) {
  using Policy = DifferencePolicy<kDimension>;
  PassKernel result{.threads = Policy::kThreads, .rows = Policy::kRows, .columns = Policy::kColumns};
  if (pass == Pass::product) {
    result.kernel = {pass_difference<kDimension, kForm, Pass::product, One<PassArguments>>, nullptr};
  } else {
    result.kernel = {pass_difference<kDimension, kForm, Pass::softmin, One<PassArguments>>,
                     pass_difference<kDimension, kForm, Pass::softmin, Many<PassArguments>>};
  }
  return result;
}

/// The kernel with the smallest compiled dimension that is at least `dimension`.
template <ScoreForm kForm>
PassKernel kernel_for(Pass pass, int dimension) {
  if (dimension <= 1) return kernel_of<1, kForm>(pass);
  if (dimension <= 2) return kernel_of<2, kForm>(pass);
  if (dimension <= 3) return kernel_of<3, kForm>(pass);
  if (dimension <= 4) return kernel_of<4, kForm>(pass);
  if (dimension <= 6) return kernel_of<6, kForm>(pass);
  return kernel_of<8, kForm>(pass);
}

}  // namespace

PassKernel difference_kernel(Pass pass, ScoreForm form, int dimension) {
  return form == ScoreForm::distances ? kernel_for<ScoreForm::distances>(pass, dimension)
                                      : kernel_for<ScoreForm::differences>(pass, dimension);
}

}  // namespace monge::cuda
