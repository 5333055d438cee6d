// The functions of each tile size, for matrices of up to Size x Size; each size is a translation unit of its own.
#pragma once
#include "cuda/projection/launch/launch.hpp"

namespace monge::cuda {

#define MONGE_DECLARE_SIZE(Size)                                                                                  \
  void project_tiles_##Size(ProjectionArguments const&, SumTargets const&, ProjectionMode, bool aligned,          \
                            cudaStream_t);                                                                        \
  void project_backward_tiles_##Size(ProjectionArguments const&, SumTargets const&, ProjectionMode, bool aligned, \
                                     int multiprocessors, cudaStream_t);                                          \
  std::int64_t backward_history_##Size(ProjectionArguments const&, ProjectionMode, int multiprocessors);
MONGE_DECLARE_SIZE(4)
MONGE_DECLARE_SIZE(8)
MONGE_DECLARE_SIZE(16)
MONGE_DECLARE_SIZE(32)
MONGE_DECLARE_SIZE(64)
MONGE_DECLARE_SIZE(128)
#undef MONGE_DECLARE_SIZE

}  // namespace monge::cuda
