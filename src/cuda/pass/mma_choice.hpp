// The choice of the tensor-core kernel for a pass.
#pragma once
#include "cuda/pass/pass.hpp"

namespace monge::cuda {

/// mma_kernel() for one pass. The rows are a single chunk if possible, else resident if they fit in `shared_limit`,
/// else streamed (RowPlace). Each pass is compiled in a file of its own.
template <Pass kPass, int kProducts>
PassKernel choose_mma(Generation generation, int half_stride, int shared_limit);

}  // namespace monge::cuda
