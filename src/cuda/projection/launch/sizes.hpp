// The functions of each tile size, for matrices of up to size x size; each size is a translation unit of its own.
#pragma once
#include "cuda/projection/device/arguments.hpp"

namespace monge::cuda {

struct TileFunctions {
  int size;
  void (*forward)(ProjectionArguments const&, SumTargets const&, ProjectionMode, bool aligned, cudaStream_t);
  /// Aligned matrices have their history in shared memory.
  void (*backward)(ProjectionArguments const&, SumTargets const&, ProjectionMode, bool aligned, int multiprocessors,
                   cudaStream_t);
  /// Floats of global memory that the history takes; 0: it is in shared memory.
  std::int64_t (*history)(ProjectionArguments const&, ProjectionMode, int multiprocessors);
};
extern TileFunctions const kTile4, kTile8, kTile16, kTile32, kTile64, kTile128;

}  // namespace monge::cuda
