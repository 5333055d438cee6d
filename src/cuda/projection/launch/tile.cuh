// Launches of one tile layout; each size is a translation unit of its own, to compile in parallel.
#pragma once
#include <algorithm>

#include "cuda/launch/queue.hpp"
#include "cuda/projection/kernels/ratio_backward.cuh"
#include "cuda/projection/kernels/tile.cuh"
#include "cuda/projection/launch/sizes.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {

/// Bytes of shared memory that one block may have. The blocks of a multiprocessor share kSharedOfBlock bytes more, and
/// each of them takes kSharedOfBlock beside its own.
inline int shared_of_processor() {
  return device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}
inline constexpr int kSharedOfBlock = 1024;

template <class Kernel>
void allow_shared(Kernel kernel, int bytes) {
  if (bytes > 48 * 1024)
    MONGE_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

/// The largest block with which every multiprocessor still gets work.
inline int threads_for(std::int64_t warps, int most) {
  std::int64_t const multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
  return std::min(most, warps >= multiprocessors * 16 ? 128 : warps >= multiprocessors * 4 ? 64 : 32);
}

template <class L, ProjectionMode kMode, bool kAligned>
void launch_forward(ProjectionArguments const& arguments, SumTargets const& marginals, cudaStream_t stream) {
  std::int64_t const teams = (arguments.batch + L::kPerTeam - 1) / L::kPerTeam;
  int const threads = L::kWarps > 1 ? L::kThreads : threads_for(teams, kForwardThreads<L>);
  int const bytes = threads / L::kThreads * kTileBytes<L>;
  auto const kernel = project_tile_kernel<L, kMode, kAligned>;
  allow_shared(kernel, bytes);
  std::int64_t const blocks = (teams + threads / L::kThreads - 1) / (threads / L::kThreads);
  launch_chained(kernel, static_cast<int>(blocks), threads, bytes, stream, arguments, MarginalsOf<kMode>(marginals));
}

/// The persistent grid of a gradient.
struct BackwardShape {
  int teams, blocks;            // Teams of a block; blocks of the grid.
  std::int64_t history_chunks;  // Chunks of 16 bytes in the history of a team.
  int team_chunks;              // Chunks of 16 bytes in the shared memory of a team.
  bool global_history;
  int bytes() const { return teams * team_chunks * 16; }
};
template <class L, ProjectionMode kMode>
BackwardShape backward_shape(ProjectionArguments const& arguments, int multiprocessors) {
  using History = TileHistory<L, true, kKeepsBoth<L, kMode>>;
  constexpr int kMost = kBackwardThreads<L> / L::kThreads;  // Teams that a multiprocessor has registers for.
  BackwardShape shape{};
  shape.history_chunks = History::chunks(arguments);
  int const shared = shared_of_processor();
  constexpr std::int64_t staging = kTileBytes<L> / 16;
  std::int64_t const chunks = std::max(shape.history_chunks, staging);
  shape.global_history = chunks * 16 + kExchangeBytes<L> > shared;
  shape.team_chunks = static_cast<int>(shape.global_history ? staging : chunks);
  int most = 0, resident = 1;
  for (int teams = L::kWarps > 1 ? 1 : kMost; teams >= 1; --teams) {
    std::int64_t const bytes = std::int64_t{16} * teams * shape.team_chunks + kExchangeBytes<L>;
    if (bytes > shared) continue;
    int const blocks = std::min(kMost / teams, static_cast<int>((shared + kSharedOfBlock) / (bytes + kSharedOfBlock)));
    if (blocks * teams <= most) continue;
    most = blocks * teams;
    resident = blocks;
    shape.teams = teams;
  }
  std::int64_t const wanted = (arguments.batch + L::kPerTeam - 1) / L::kPerTeam;
  if (wanted < static_cast<std::int64_t>(shape.teams) * multiprocessors)  // Few matrices: smaller blocks, one each.
    shape.teams = static_cast<int>((wanted + multiprocessors - 1) / multiprocessors);
  shape.blocks = static_cast<int>(std::min<std::int64_t>((wanted + shape.teams - 1) / shape.teams,
                                                         static_cast<std::int64_t>(resident) * multiprocessors));
  return shape;
}

/// Whether project_backward_ratio_kernel does the call. It is faster if each warp has several tiles.
template <class L>
bool is_ratio_backward(ProjectionArguments const& arguments, BackwardShape const& shape) {
  auto const direct = [](BatchArguments const& view) { return view.contiguous && view.type == DataType::float32; };
  return arguments.reducible && arguments.pairs >= 2 &&
         arguments.batch > std::int64_t{shape.blocks} * shape.teams * L::kPerTeam && direct(arguments.logits) &&
         direct(arguments.gradient) && direct(arguments.result);
}

template <class L, ProjectionMode kMode, bool kAligned>
void launch_backward(ProjectionArguments arguments, SumTargets const& marginals, int multiprocessors,
                     cudaStream_t stream) {
  BackwardShape const shape = backward_shape<L, kMode>(arguments, multiprocessors);
  arguments.history_chunks = shape.history_chunks;
  arguments.team_chunks = shape.team_chunks;
  auto const launch = [&](auto kernel, auto const&... more) {
    allow_shared(kernel, shape.bytes());
    launch_chained(kernel, shape.blocks, L::kThreads * shape.teams, shape.bytes(), stream, arguments, more...);
  };
  if constexpr (L::N == 4 && kMode == ProjectionMode::plain && kAligned) {
    if (is_ratio_backward<L>(arguments, shape))
      return arguments.columns_first ? launch(project_backward_ratio_kernel<L, true>)
                                     : launch(project_backward_ratio_kernel<L, false>);
  }
  launch(project_backward_tile_kernel<L, kMode, kAligned>, MarginalsOf<kMode>(marginals));
}

template <class L, ProjectionMode kMode>
std::int64_t history_floats(ProjectionArguments const& arguments, int multiprocessors) {
  BackwardShape const shape = backward_shape<L, kMode>(arguments, multiprocessors);
  if (!shape.global_history) return 0;
  return shape.history_chunks * 4 * shape.teams * shape.blocks;
}

/// Calls launch.operator()<kMode, kAligned>() for the kernel that serves `mode` and `aligned`; not all combinations are
/// compiled. Unaligned matrices use general steps for guarded ones. Aligned matrices use the unaligned kernel for
/// general steps unless kAll, and for the log domain unless a lane has a matrix to itself.
template <class L, bool kAll, class Launch>
void with_kernel(ProjectionMode mode, bool aligned, Launch&& launch) {
  using enum ProjectionMode;
  if (aligned && mode == plain) return launch.template operator()<plain, true>();
  if (aligned && mode == guarded) return launch.template operator()<guarded, true>();
  if constexpr (kAll) {
    if (aligned && mode == general) return launch.template operator()<general, true>();
  }
  if constexpr (L::kLanes == 1) {
    if (aligned && mode == log_domain) return launch.template operator()<log_domain, true>();
  }
  if (mode == log_domain) return launch.template operator()<log_domain, false>();
  if (mode == plain) return launch.template operator()<plain, false>();
  launch.template operator()<general, false>();
}

template <class Forward, class Backward, bool kAll = false>
constexpr TileFunctions tile_functions() {
  return {Forward::N,
          [](ProjectionArguments const& arguments, SumTargets const& marginals, ProjectionMode mode, bool aligned,
             cudaStream_t stream) {
            with_kernel<Forward, kAll>(mode, aligned, [&]<ProjectionMode kMode, bool kAligned>() {
              launch_forward<Forward, kMode, kAligned>(arguments, marginals, stream);
            });
          },
          [](ProjectionArguments const& arguments, SumTargets const& marginals, ProjectionMode mode, bool aligned,
             int multiprocessors, cudaStream_t stream) {
            with_kernel<Backward, kAll>(mode, aligned, [&]<ProjectionMode kMode, bool kAligned>() {
              launch_backward<Backward, kMode, kAligned>(arguments, marginals, multiprocessors, stream);
            });
          },
          [](ProjectionArguments const& arguments, ProjectionMode mode, int multiprocessors) {
            return mode == ProjectionMode::plain
                       ? history_floats<Backward, ProjectionMode::plain>(arguments, multiprocessors)
                       : history_floats<Backward, ProjectionMode::general>(arguments, multiprocessors);
          }};
}

}  // namespace monge::cuda
