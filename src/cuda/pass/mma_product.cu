#include "cuda/pass/mma_choice.cuh"

namespace monge::cuda {

template MmaChoice choose_mma<Pass::product, 3>(TensorCores, int, int);

}  // namespace monge::cuda
