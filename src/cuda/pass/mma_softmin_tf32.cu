#include "cuda/pass/mma_choice.cuh"

namespace monge::cuda {

template PassKernel choose_mma<Pass::softmin, 1>(Generation, int, int);

}  // namespace monge::cuda
