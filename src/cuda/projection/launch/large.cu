// Projection and its gradient for matrices larger than a tile (cuda/projection/kernels/large.cuh, large_backward.cuh).
#include <algorithm>

#include "core/numbers.hpp"
#include "cuda/projection/kernels/large.cuh"
#include "cuda/projection/kernels/large_backward.cuh"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {
namespace {

using namespace large;

constexpr int kBufferBytes = 1 << 28;  // Bytes of the matrices that are worked on together.

/// Launches on one part of the batch.
struct Part {
  LargeArguments arguments;
  int matrices;
  cudaStream_t stream;

  template <class Kernel, class... More>
  void operator()(Kernel kernel, int blocks, int threads, int bytes, More... more) const {
    LargeArguments given = arguments;
    given.blocks = blocks;
    launch_chained(kernel, blocks * matrices, threads, bytes, stream, given, more...);
  }
};

template <bool kLog>
void run(Part const& part, bool backward) {
  ProjectionArguments const& a = part.arguments.problem;
  LargeShape const& shape = part.arguments.shape;
  constexpr int kSmall = 64;  // Threads of the blocks that add up strips: few columns are many blocks.
  int const column_blocks = (a.columns + kSmall - 1) / kSmall, row_blocks = (a.rows + kWarps - 1) / kWarps;
  int const bytes = 4 * shape.columns, forward_bytes = bytes * (kLog ? 3 : 2), backward_bytes = bytes * (kLog ? 4 : 3);
  part(start_rows, row_blocks, kThreads, 0);
  if (shifts_columns(a)) part(start_columns, (shape.columns + 31) / 32, kThreads, 0);
  auto const step = [&](int pair, bool rows, bool columns) {
    part(sweep<kLog>, shape.strips, kThreads, forward_bytes, pair, rows, columns);
    if (columns) part(combine<kLog>, column_blocks, kSmall, 0, pair, !rows);
  };
  if (a.lead) step(0, false, true);
  for (int pair = 0; pair < a.pairs; ++pair) step(pair, true, true);
  if (a.trail) step(a.pairs, true, false);
  if (!backward) return part(store_plan, row_blocks, kThreads, 0);
  auto const unstep = [&](int pair, bool seeds) {
    part(unsweep<kLog>, shape.strips, kThreads, backward_bytes, pair, seeds);
    part(uncombine<kLog>, (a.columns + kThreads - 1) / kThreads, kThreads, 0, pair, seeds);
  };
  unstep(a.pairs, true);
  for (int pair = a.pairs - 1; pair >= 0; --pair) unstep(pair, false);
  allow_shared(gather<kLog>, kWarps * bytes);
  part(gather<kLog>, row_blocks, kThreads, kWarps * bytes);
  if (a.d_dustbin_score != nullptr) part(gather_dustbin, 1, 32, 0);
}

}  // namespace

LargeShape large_shape(ProjectionArguments const& arguments, bool backward) {
  auto const padded = [](int size, int to) { return (size + to - 1) / to * to; };
  LargeShape shape;
  shape.rows = padded(arguments.rows, kWarps);  // gather() reads kWarps rows of a vector at once.
  shape.columns = padded(arguments.columns, 4);
  shape.strips = (arguments.rows + kStrip - 1) / kStrip;
  shape.slots = backward ? arguments.pairs + 2 : 2;
  shape.marks = arguments.tolerance > 0 ? padded(arguments.pairs, 4) : 0;
  std::int64_t const vectors = static_cast<std::int64_t>(shape.slots) * (shape.rows + shape.columns);
  shape.matrix = (static_cast<std::int64_t>(arguments.rows) + 2 * shape.strips) * shape.columns +
                 vectors * (backward ? 2 : 1) + 4 * shape.rows + 3 * shape.columns + shape.marks;
  shape.matrices = static_cast<int>(
      std::min({arguments.batch, std::int64_t{1} << 14, std::max<std::int64_t>(1, kBufferBytes / 4 / shape.matrix)}));
  return shape;
}

void project_large(ProjectionArguments const& arguments, std::vector<float> const& a, std::vector<float> const& b,
                   float* memory, bool backward, cudaStream_t stream) {
  LargeShape const shape = large_shape(arguments, backward);
  std::vector<float> marginals(to_size(shape.rows + shape.columns));
  std::copy(a.begin(), a.end(), marginals.begin());
  std::copy(b.begin(), b.end(), marginals.begin() + shape.rows);
  for (std::size_t first = 0; first < marginals.size(); first += Piece::kSize) {
    Piece piece;
    int const count = static_cast<int>(std::min<std::size_t>(Piece::kSize, marginals.size() - first));
    std::copy_n(marginals.begin() + static_cast<std::ptrdiff_t>(first), count, piece.values);
    launch_chained(place_marginals, 1, kThreads, 0, stream, piece, memory + first, count);
  }
  for (std::int64_t first = 0; first < arguments.batch; first += shape.matrices) {
    int const matrices = static_cast<int>(std::min<std::int64_t>(shape.matrices, arguments.batch - first));
    Part const part{{arguments, shape, memory, first, 0}, matrices, stream};
    arguments.log_domain ? run<true>(part, backward) : run<false>(part, backward);
  }
}

}  // namespace monge::cuda
