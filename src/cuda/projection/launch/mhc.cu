#include <algorithm>

#include "cuda/projection/kernels/mhc.cuh"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {
namespace {

using History = TileHistory<MhcLayout, true>;

template <class Launch>
void with_mode(ProjectionMode mode, Launch&& launch) {
  using enum ProjectionMode;
  switch (mode) {
    case plain:
      return launch.template operator()<plain>();
    case guarded:
      return launch.template operator()<guarded>();
    case general:
      return launch.template operator()<general>();
    case log_domain:
      return launch.template operator()<log_domain>();
  }
}

template <ProjectionMode kMode>
void forward(MhcArguments const& arguments, SumTargets const& marginals, cudaStream_t stream) {
  std::int64_t const blocks = (arguments.projection.batch + 63) / 64;
  launch_chained(mhc_forward_kernel<kMode>, static_cast<int>(blocks), 64, 0, stream, arguments,
                 MarginalsOf<kMode>(marginals));
}

template <ProjectionMode kMode>
void backward(MhcArguments arguments, SumTargets const& marginals, int multiprocessors, cudaStream_t stream) {
  ProjectionArguments& projection = arguments.projection;
  MhcShape const shape = mhc_shape(projection, multiprocessors);
  bool const shared = shape.history_floats == 0;
  projection.history_chunks = History::chunks(projection);
  projection.team_chunks = shared ? static_cast<int>(projection.history_chunks) : 0;
  int const bytes = shape.threads / 32 * projection.team_chunks * 16;
  auto const launch = [&]<ProjectionMode kSteps, bool kShared>() {
    auto const kernel = mhc_backward_kernel<kSteps, kShared>;
    allow_shared(kernel, bytes);
    launch_chained(kernel, shape.blocks, shape.threads, bytes, stream, arguments, MarginalsOf<kSteps>(marginals));
  };
  if constexpr (kMode == ProjectionMode::log_domain) {
    launch.template operator()<kMode, false>();
  } else if (shared) {
    launch.template operator()<kMode, true>();
  } else {
    launch.template operator()<ProjectionMode::general, false>();
  }
}

}  // namespace

MhcShape mhc_shape(ProjectionArguments const& arguments, int multiprocessors) {
  std::int64_t const of_thread = 16 * History::chunks(arguments) / 32;  // Bytes of history.
  int const available = shared_of_processor();
  MhcShape shape{};
  shape.threads = 256;
  auto const fits = [&] { return shape.threads * of_thread + 2 * kSharedOfBlock <= available; };
  while (shape.threads > 32 && !fits()) shape.threads /= 2;
  bool const shared = fits();
  if (!shared) shape.threads = 64;
  // Few tokens: smaller blocks, so that more multiprocessors have one.
  while (shape.threads > 128 && arguments.batch <= static_cast<std::int64_t>(shape.threads) / 2 * multiprocessors)
    shape.threads /= 2;
  std::int64_t const wanted = (arguments.batch + shape.threads - 1) / shape.threads;
  std::int64_t const together = shared ? available / (shape.threads * of_thread + 2 * kSharedOfBlock) : 4;
  std::int64_t const resident = std::clamp<std::int64_t>(together, 1, std::max(1, 256 / shape.threads));
  shape.blocks = static_cast<int>(std::min(wanted, multiprocessors * resident));
  shape.history_floats = shared ? 0 : shape.blocks * shape.threads * of_thread / 4;
  return shape;
}

void mhc_forward(MhcArguments const& arguments, SumTargets const& marginals, ProjectionMode mode, cudaStream_t stream) {
  with_mode(mode, [&]<ProjectionMode kMode>() { forward<kMode>(arguments, marginals, stream); });
}

void mhc_backward(MhcArguments const& arguments, SumTargets const& marginals, ProjectionMode mode, int multiprocessors,
                  cudaStream_t stream) {
  with_mode(mode, [&]<ProjectionMode kMode>() { backward<kMode>(arguments, marginals, multiprocessors, stream); });
}

}  // namespace monge::cuda
