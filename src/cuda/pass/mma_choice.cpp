#include "cuda/pass/mma_choice.hpp"

namespace monge::cuda {

PassKernel mma_kernel(Pass pass, ScoreKernel scores, Generation generation, int half_stride, int shared_limit) {
  switch (pass) {
    case Pass::product:
      return choose_mma<Pass::product, 3>(generation, half_stride, shared_limit);
    case Pass::entries:
      return choose_mma<Pass::entries, 3>(generation, half_stride, shared_limit);
    case Pass::logits:
      return choose_mma<Pass::logits, 3>(generation, half_stride, shared_limit);
    case Pass::hadamard:
      return choose_mma<Pass::hadamard, 3>(generation, half_stride, shared_limit);
    default:
      return scores == ScoreKernel::one_product ? choose_mma<Pass::softmin, 1>(generation, half_stride, shared_limit)
                                                : choose_mma<Pass::softmin, 3>(generation, half_stride, shared_limit);
  }
}

}  // namespace monge::cuda
