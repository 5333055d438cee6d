#include <algorithm>

#include "cuda/kernels/projection_mhc.cuh"
#include "cuda/launch/projection_tile.cuh"

namespace monge::cuda {
namespace {

int backward_threads(int pairs) {
  for (int threads : {256, 128, 64, 32}) {
    if (static_cast<std::int64_t>(threads) * 32 * pairs + 2 * kSharedOfBlock <= shared_of_processor()) return threads;
  }
  return 0;  // History in global memory.
}

template <ProjectionMode kMode>
void forward(MhcArguments const& arguments, ProjectionMarginals const& marginals, cudaStream_t stream) {
  std::int64_t const blocks = (arguments.projection.batch + 63) / 64;
  mhc_forward_kernel<kMode><<<static_cast<unsigned>(blocks), 64, 0, stream>>>(arguments, MarginalsOf<kMode>(marginals));
  MONGE_CUDA_TRY(cudaGetLastError());
}

template <ProjectionMode kMode>
void backward(MhcArguments const& arguments, ProjectionMarginals const& marginals, int multiprocessors,
              cudaStream_t stream) {
  MhcShape const shape = mhc_shape(arguments.projection.batch, arguments.projection.pairs, multiprocessors);
  int const bytes = shape.history_floats > 0 ? 0 : shape.threads * 32 * arguments.projection.pairs;
  auto const launch = [&](auto kernel) {
    allow_shared(kernel, bytes);
    kernel<<<static_cast<unsigned>(shape.blocks), shape.threads, bytes, stream>>>(arguments,
                                                                                  MarginalsOf<kMode>(marginals));
    MONGE_CUDA_TRY(cudaGetLastError());
  };
  if (shape.history_floats > 0) {
    launch(mhc_backward_kernel<kMode, false>);
  } else {
    launch(mhc_backward_kernel<kMode, true>);
  }
}

}  // namespace

MhcShape mhc_shape(std::int64_t tokens, int pairs, int multiprocessors) {
  int const fitting = backward_threads(pairs);
  MhcShape shape;
  shape.threads = fitting > 0 ? fitting : 64;
  // Few tokens: more blocks of fewer threads.
  while (shape.threads > 128 && tokens <= static_cast<std::int64_t>(shape.threads) / 2 * multiprocessors)
    shape.threads /= 2;
  std::int64_t const wanted = (tokens + shape.threads - 1) / shape.threads;
  int const resident =
      fitting > 0 ? std::max(1, std::min(256 / shape.threads,
                                         shared_of_processor() / (shape.threads * 32 * pairs + 2 * kSharedOfBlock)))
                  : 4;
  shape.blocks =
      static_cast<int>(std::min<std::int64_t>(wanted, static_cast<std::int64_t>(multiprocessors) * resident));
  shape.history_floats = fitting > 0 ? 0 : static_cast<std::int64_t>(shape.blocks) * shape.threads * 8 * pairs;
  return shape;
}

void mhc_forward(MhcArguments const& arguments, ProjectionMarginals const& marginals, ProjectionMode mode,
                 cudaStream_t stream) {
  switch (mode) {
    case ProjectionMode::plain:
      return forward<ProjectionMode::plain>(arguments, marginals, stream);
    case ProjectionMode::guarded:
      return forward<ProjectionMode::guarded>(arguments, marginals, stream);
    case ProjectionMode::general:
      return forward<ProjectionMode::general>(arguments, marginals, stream);
    case ProjectionMode::log_domain:
      return forward<ProjectionMode::log_domain>(arguments, marginals, stream);
  }
}

void mhc_backward(MhcArguments const& arguments, ProjectionMarginals const& marginals, ProjectionMode mode,
                  int multiprocessors, cudaStream_t stream) {
  switch (mode) {
    case ProjectionMode::plain:
      return backward<ProjectionMode::plain>(arguments, marginals, multiprocessors, stream);
    case ProjectionMode::guarded:
      return backward<ProjectionMode::guarded>(arguments, marginals, multiprocessors, stream);
    case ProjectionMode::general:
      return backward<ProjectionMode::general>(arguments, marginals, multiprocessors, stream);
    case ProjectionMode::log_domain:
      return backward<ProjectionMode::log_domain>(arguments, marginals, multiprocessors, stream);
  }
}

}  // namespace monge::cuda
