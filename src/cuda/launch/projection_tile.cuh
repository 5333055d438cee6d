// Launches of one tile layout; each size is a translation unit of its own, to compile in parallel.
#pragma once
#include "cuda/kernels/projection_tile.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {

inline int attribute_of_device(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  MONGE_CUDA_TRY(cudaGetDevice(&device));
  MONGE_CUDA_TRY(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

/// Shared memory that one block, or the blocks of one multiprocessor together, can have; 1 KiB of each is reserved.
inline int shared_of_processor() {
  return attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}
inline constexpr int kSharedOfBlock = 1024;

template <class Kernel>
void allow_shared(Kernel kernel, int bytes) {
  if (bytes > 48 * 1024)
    MONGE_CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

/// The most threads a block, of 32 to 128, that still give every multiprocessor work.
inline int threads_for(std::int64_t warps) {
  std::int64_t const multiprocessors = attribute_of_device(cudaDevAttrMultiProcessorCount);
  return warps >= multiprocessors * 16 ? 128 : warps >= multiprocessors * 4 ? 64 : 32;
}

template <class L, ProjectionMode kMode, bool kAligned>
void launch_forward(ProjectionArguments const& arguments, ProjectionMarginals const& marginals, cudaStream_t stream) {
  std::int64_t const warps = (arguments.batch + L::kPerWarp - 1) / L::kPerWarp;
  int const threads = threads_for(warps);
  int const bytes = kAligned ? threads / 32 * kTileBytes<L> : 0;
  if constexpr (L::N == 4 && kMode == ProjectionMode::plain && kAligned) {
    auto const contiguous = [](BatchArguments const& view) {
      return view.format == ElementFormat::float32 && view.batch_stride == 16 && view.row_stride == 4;
    };
    bool const exact_exp = !arguments.start_positive && !arguments.start_softmax &&
                           !(arguments.start_shifted && arguments.columns_first) && arguments.matrix_epsilon == 0;
    if (exact_exp && contiguous(arguments.logits) && contiguous(arguments.result)) {
      std::int64_t const whole = (warps + threads / 32 - 1) / (threads / 32);
      project_contiguous_four_kernel<L><<<static_cast<unsigned>(whole), threads, bytes, stream>>>(arguments);
      MONGE_CUDA_TRY(cudaGetLastError());
      return;
    }
  }
  auto const kernel = project_tile_kernel<L, kMode, kAligned>;
  allow_shared(kernel, bytes);
  std::int64_t const blocks = (warps + threads / 32 - 1) / (threads / 32);
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(arguments, MarginalsOf<kMode>(marginals));
  MONGE_CUDA_TRY(cudaGetLastError());
}

struct BackwardShape {
  int threads, bytes;
  bool global_history;
};
template <class L>
BackwardShape backward_shape(int pairs, bool aligned) {
  BackwardShape best{32, aligned ? kTileBytes<L> : 0, true};
  int most = 0;
  for (int threads : {128, 64, 32}) {
    std::int64_t const bytes =
        static_cast<std::int64_t>(threads) * 4 * (L::R + L::C) * pairs + (aligned ? threads / 32 * kTileBytes<L> : 0);
    if (bytes + kSharedOfBlock > shared_of_processor()) continue;
    int const resident = static_cast<int>(shared_of_processor() / (bytes + kSharedOfBlock)) * threads;
    if (resident <= most) continue;
    most = resident;
    best = {threads, static_cast<int>(bytes), false};
  }
  return best;
}
inline constexpr int kGlobalHistoryBlocks = 16;  // A multiprocessor, of 32 threads.

template <class L, ProjectionMode kMode, bool kAligned>
void launch_backward(ProjectionArguments const& arguments, ProjectionMarginals const& marginals, int multiprocessors,
                     cudaStream_t stream) {
  BackwardShape const shape = backward_shape<L>(arguments.pairs, kAligned);
  std::int64_t const per_block = shape.threads / 32 * L::kPerWarp;
  std::int64_t blocks = (arguments.batch + per_block - 1) / per_block;
  int const resident =
      shape.global_history
          ? kGlobalHistoryBlocks
          : std::max(1, std::min(2048 / shape.threads, shared_of_processor() / (shape.bytes + kSharedOfBlock)));
  blocks = std::min<std::int64_t>(blocks, static_cast<std::int64_t>(resident) * multiprocessors);
  auto const launch = [&](auto kernel) {
    allow_shared(kernel, shape.bytes);
    kernel<<<static_cast<unsigned>(blocks), shape.threads, shape.bytes, stream>>>(arguments,
                                                                                  MarginalsOf<kMode>(marginals));
    MONGE_CUDA_TRY(cudaGetLastError());
  };
  if (shape.global_history) {
    launch(project_backward_tile_kernel<L, kMode, kAligned, false>);
  } else {
    launch(project_backward_tile_kernel<L, kMode, kAligned, true>);
  }
}

template <class L>
std::int64_t history_floats(int pairs, bool aligned, int multiprocessors) {
  if (!backward_shape<L>(pairs, aligned).global_history) return 0;
  return static_cast<std::int64_t>(kGlobalHistoryBlocks) * multiprocessors * 32 * pairs * (L::R + L::C);
}

/// kAll: the general arithmetic also for aligned matrices, where it is worth its code.
template <class L, bool kAll>
void forward_of(ProjectionArguments const& arguments, ProjectionMarginals const& marginals, ProjectionMode mode,
                bool aligned, cudaStream_t stream) {
  if (aligned && mode == ProjectionMode::plain)
    return launch_forward<L, ProjectionMode::plain, true>(arguments, marginals, stream);
  if (aligned && mode == ProjectionMode::guarded)
    return launch_forward<L, ProjectionMode::guarded, true>(arguments, marginals, stream);
  if constexpr (kAll) {
    if (aligned && mode == ProjectionMode::general)
      return launch_forward<L, ProjectionMode::general, true>(arguments, marginals, stream);
  }
  if (mode == ProjectionMode::log_domain)
    return launch_forward<L, ProjectionMode::log_domain, false>(arguments, marginals, stream);
  launch_forward<L, ProjectionMode::general, false>(arguments, marginals, stream);
}
template <class L, bool kAll>
void backward_of(ProjectionArguments const& arguments, ProjectionMarginals const& marginals, ProjectionMode mode,
                 bool aligned, int multiprocessors, cudaStream_t stream) {
  if (aligned && mode == ProjectionMode::plain)
    return launch_backward<L, ProjectionMode::plain, true>(arguments, marginals, multiprocessors, stream);
  if (aligned && mode == ProjectionMode::guarded)
    return launch_backward<L, ProjectionMode::guarded, true>(arguments, marginals, multiprocessors, stream);
  if constexpr (kAll) {
    if (aligned && mode == ProjectionMode::general)
      return launch_backward<L, ProjectionMode::general, true>(arguments, marginals, multiprocessors, stream);
  }
  if (mode == ProjectionMode::log_domain)
    return launch_backward<L, ProjectionMode::log_domain, false>(arguments, marginals, multiprocessors, stream);
  launch_backward<L, ProjectionMode::general, false>(arguments, marginals, multiprocessors, stream);
}

/// Whether the kernel that forward_of and backward_of take reads 16-byte pieces.
template <bool kAll>
constexpr bool takes_aligned(ProjectionMode mode, bool aligned) {
  return aligned && (mode == ProjectionMode::plain || mode == ProjectionMode::guarded ||
                     (kAll && mode == ProjectionMode::general));
}

/// The functions of one size, which projection.cpp's table lists.
#define MONGE_PROJECTION_SIZE(Size, Forward, Backward, All)                                                         \
  void project_tiles_##Size(ProjectionArguments const& arguments, ProjectionMarginals const& marginals,             \
                            ProjectionMode mode, bool aligned, cudaStream_t stream) {                               \
    forward_of<Forward, All>(arguments, marginals, mode, aligned, stream);                                          \
  }                                                                                                                 \
  void project_backward_tiles_##Size(ProjectionArguments const& arguments, ProjectionMarginals const& marginals,    \
                                     ProjectionMode mode, bool aligned, int multiprocessors, cudaStream_t stream) { \
    backward_of<Backward, All>(arguments, marginals, mode, aligned, multiprocessors, stream);                       \
  }                                                                                                                 \
  std::int64_t backward_history_##Size(int pairs, ProjectionMode mode, bool aligned, int multiprocessors) {         \
    return history_floats<Backward>(pairs, takes_aligned<All>(mode, aligned), multiprocessors);                     \
  }

}  // namespace monge::cuda
