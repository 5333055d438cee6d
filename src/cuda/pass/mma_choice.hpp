// Which tensor-core kernel makes a pass.
#pragma once
#include "cuda/pass/pass.hpp"

namespace monge::cuda {

/// mma_kernel() for one pass: all coordinates in one chunk if they fit, else rows resident in shared memory if they fit
/// in `shared_limit`, else streamed. Each pass is compiled in a file of its own.
template <Pass kPass, int kProducts>
PassKernel choose_mma(Generation generation, int half_stride, int shared_limit);

}  // namespace monge::cuda
