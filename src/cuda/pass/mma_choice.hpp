// Which tensor-core kernel makes a pass.
#pragma once
#include "cuda/pass/pass.hpp"

namespace monge::cuda {

/// mma_kernel() for one pass: all coordinates in one chunk if they fit, else rows resident in shared memory if they fit
/// in `shared_limit`, else streamed. Each pass is compiled in a file of its own.
template <Pass kPass, int kProducts>
PassKernel choose_mma(Generation generation, int half_stride, int shared_limit);

extern template PassKernel choose_mma<Pass::softmin, 1>(Generation, int, int);
extern template PassKernel choose_mma<Pass::softmin, 3>(Generation, int, int);
extern template PassKernel choose_mma<Pass::product, 3>(Generation, int, int);
extern template PassKernel choose_mma<Pass::entries, 3>(Generation, int, int);
extern template PassKernel choose_mma<Pass::logits, 3>(Generation, int, int);
extern template PassKernel choose_mma<Pass::hadamard, 3>(Generation, int, int);

}  // namespace monge::cuda
