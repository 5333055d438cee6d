#include "cuda/pass/mma_choice.cuh"

namespace monge::cuda {

template MmaChoice choose_mma<Pass::entries, 3>(TensorCores, int, int);

}  // namespace monge::cuda
