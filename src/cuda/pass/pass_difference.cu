#include "cuda/pass/pass_difference.cuh"

#include "cuda/pass/pass.hpp"

namespace monge::cuda {
namespace {

template <int kDimension>
PassKernel kernel_of(Pass pass) {
  using Policy = DifferencePolicy<kDimension>;
  PassKernel result{.threads = Policy::kThreads, .rows = Policy::kRows, .columns = Policy::kColumns};
  if (pass == Pass::product) {
    result.kernel = {pass_difference<kDimension, Pass::product, One<PassArguments>>, nullptr};
  } else {
    result.kernel = {pass_difference<kDimension, Pass::softmin, One<PassArguments>>,
                     pass_difference<kDimension, Pass::softmin, Many<PassArguments>>};
  }
  return result;
}

}  // namespace

/// Of the smallest instantiated dimension that holds `dimension`.
PassKernel difference_kernel(Pass pass, int dimension) {
  if (dimension <= 1) return kernel_of<1>(pass);
  if (dimension <= 2) return kernel_of<2>(pass);
  if (dimension <= 3) return kernel_of<3>(pass);
  if (dimension <= 4) return kernel_of<4>(pass);
  if (dimension <= 6) return kernel_of<6>(pass);
  return kernel_of<8>(pass);
}

}  // namespace monge::cuda
