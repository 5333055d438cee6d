#include "cuda/pass/mma_choice.cuh"

namespace monge::cuda {

template MmaChoice choose_mma<Pass::softmin, 1>(TensorCores, int, int);

}  // namespace monge::cuda
