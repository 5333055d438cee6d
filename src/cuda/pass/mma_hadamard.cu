#include "cuda/pass/mma_choice.cuh"

namespace monge::cuda {

template PassKernel choose_mma<Pass::hadamard, 3>(Generation, int, int);

}  // namespace monge::cuda
