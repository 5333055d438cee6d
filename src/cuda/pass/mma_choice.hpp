// Which tensor-core kernel makes a pass, and what it needs.
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

/// The generations of tensor cores that there are kernels for; values of PassPlan::variant.
enum TensorCores { kMma, kWgmma };

/// The kernel, its threads and shared memory, and the number of chunks of coordinates, for one pair of operands.
struct MmaChoice {
  Kernel<PassArguments> kernel;
  int threads;
  int shared_bytes;
  int chunks;
  int rows;
  int columns;
};

/// For operands of `half_stride` coordinates: all in one chunk if they fit, else rows resident in shared memory if they
/// fit in `shared_limit`, else streamed. Each pass is compiled in a file of its own.
template <Pass kPass, int kProducts>
MmaChoice choose_mma(TensorCores cores, int half_stride, int shared_limit);

extern template MmaChoice choose_mma<Pass::softmin, 1>(TensorCores, int, int);
extern template MmaChoice choose_mma<Pass::softmin, 3>(TensorCores, int, int);
extern template MmaChoice choose_mma<Pass::product, 3>(TensorCores, int, int);
extern template MmaChoice choose_mma<Pass::entries, 3>(TensorCores, int, int);
extern template MmaChoice choose_mma<Pass::logits, 3>(TensorCores, int, int);
extern template MmaChoice choose_mma<Pass::hadamard, 3>(TensorCores, int, int);

}  // namespace monge::cuda
