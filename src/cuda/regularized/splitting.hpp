// Iterations of Douglas-Rachford splitting on entries in memory (cuda/regularized/splitting.cuh).
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/host_device.hpp"
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"
#include "seam/regularized_operator.hpp"

namespace monge::cuda {

/// The proximal step of an entry, as far as kernels differ in it.
enum class SplittingProx { shrink, group, hypentropy, group_hypentropy, slopes };
constexpr bool has_groups(SplittingProx prox) {
  return prox == SplittingProx::group || prox == SplittingProx::group_hypentropy;
}

/// Data of an iteration: opening reads X and S and leaves X - s S; closing reads X - s S and leaves X; single reads X
/// and S and leaves X.
enum class SplittingIteration { opening, closing, single };

/// Parameters in device memory, so that recorded graphs serve every step.
struct SplittingParameters {
  double step;                      // s
  double shrink;                    // 1 / (1 + s lambda_quadratic)
  double group, hypentropy, width;  // s lambda_group, s lambda_hypentropy, beta
};

struct SplittingState {
  double alpha;
  double before;  // alpha at the start of this iteration.
};

/// One side, in the order and with the padding of the packed entries.
struct SplittingSide {
  int size = 0;
  int real = 0;                   // Points, without padding.
  int const* point = nullptr;     // The problem's number of the point, negative for padding; null: in order.
  double const* share = nullptr;  // p or q
  double* sum = nullptr;          // a or b
  double* potential = nullptr;    // phi or psi
  void* rounded = nullptr;        // `potential` in the type of the entries.
  double* residual = nullptr;     // X 1 - p or X^T 1 - q
  void* parts = nullptr;          // [count][stride]: sums of the entries, in their type.
  int part_count = 0;
  std::int64_t part_stride = 0;
};

/// A block takes a slab of rows, from slabs[k] to slabs[k + 1], and a part of the columns.
struct SplittingArguments {
  void* entries = nullptr;      // [columns][pitch]: X or X - s S
  void const* costs = nullptr;  // [columns][pitch]: S; +infinity in padding.
  std::int64_t pitch = 0;
  int const* slabs = nullptr;
  int slab_count = 0;
  int parts = 0;
  int cluster = 1;    // Blocks that divide the rows of a slab.
  int backwards = 0;  // Whether columns run from the last to the first.
  SplittingSide side[2];
  SplittingParameters const* parameters = nullptr;
  SplittingState* state = nullptr;
  int const* group = nullptr;            // The group of each 4 rows.
  int const* group_begin = nullptr;      // The first row of each group, and the end.
  double const* group_weight = nullptr;  // w_g
  double* totals = nullptr;              // Sum of the entries of each block.
  void* prox_table = nullptr;            // [2][prox_points] in the type of the entries: the Polyline of a slope table.
  int prox_points = 0;
};

/// Groups of rows are padded to a multiple of this number.
inline constexpr int kSplittingRows = 4;

struct SplittingPlan {
  DataType scalar = DataType::float32;
  SplittingProx prox = SplittingProx::shrink;
  int threads = 0;
  std::vector<int> slabs;  // First rows of the slabs, and the end.
  int parts = 0;
  int cluster = 1;

  int slab_count() const { return static_cast<int>(slabs.size()) - 1; }
  int blocks() const { return slab_count() * parts * cluster; }
  /// The number of sums of a column: one for each warp of its slabs.
  int column_parts() const { return slab_count() * cluster * (threads / 32); }
};
/// `group_begin`: the first packed row of each group and the end, multiples of kSplittingRows; empty without groups.
/// The blocks fill the device once. Throws unsupported if a group is too large for a cluster.
SplittingPlan plan_splitting(DataType scalar, SplittingProx prox, int rows, int columns,
                             std::vector<int> const& group_begin, int multiprocessors);

/// Two launches. Every other iteration runs backwards.
void splitting_iteration(SplittingPlan const& plan, SplittingIteration iteration, SplittingArguments const& arguments,
                         Queue const& queue);

/// Iterations with X in shared memory (cuda/regularized/splitting_resident.cuh).
struct ResidentPlan {
  DataType scalar = DataType::float32;
  SplittingProx prox = SplittingProx::shrink;
  int tile_rows = 0, tile_columns = 0;
  int tiles[2] = {};  // Numbers of tiles along rows and columns.
  int shared_bytes = 0;

  int blocks() const { return tiles[0] * tiles[1]; }
};
/// Empty if X does not fit on the device, or with groups.
std::optional<ResidentPlan> plan_resident(DataType scalar, SplittingProx prox, int rows, int columns,
                                          int multiprocessors);

struct ResidentArguments {
  SplittingArguments problem;
  int tile_rows = 0, tile_columns = 0;
  int tiles[2] = {};
  double* parts[2] = {};  // Row sums and column sums, for each of 2 turns and each tile across.
  std::int64_t stride[2] = {};
  double* totals = nullptr;  // [2][blocks]
  unsigned* arrived = nullptr;

  MONGE_HOST_DEVICE int blocks() const { return tiles[0] * tiles[1]; }
  /// The sums of side s from the tiles with number `other` along the other side.
  MONGE_HOST_DEVICE double* sums(int s, int turn, int other) const {
    return parts[s] + (turn * tiles[1 - s] + other) * stride[s];
  }
};
/// `count` >= 1 iterations in one launch. X is in memory before and after.
void resident_iterations(ResidentPlan const& plan, ResidentArguments const& arguments, int count, cudaStream_t stream);

/// Multiplies phi and psi by `factor` and computes a, b and alpha from them and X, with the residuals of the last
/// iteration. If `empty`, sets X = 0.
struct SplittingRestart {
  SplittingArguments problem;
  DataType scalar;
  double factor;
  bool empty;
};
void restart_splitting(SplittingRestart const& restart, Queue const& queue);

struct SplittingResidualArguments {
  SplittingArguments problem;
  DataType scalar;
  SplittingResidual* result;
};
/// Two launches: the residuals, and the number of entries that are not 0.
void splitting_residual(SplittingResidualArguments const& arguments, Queue const& queue);

/// X of a plan and X' of a spare one, `size` entries of type `scalar` with padding, and `count` numbers of the
/// recursion of each.
struct SplittingSpareArguments {
  DataType scalar;
  std::int64_t size;
  void* entries;
  void* spare_entries;
  std::int64_t count;
  double* numbers;
  double* spare_numbers;
};
/// Moves spare entries and numbers by `fraction` of the way to the plan's.
void approach_spare(SplittingSpareArguments const& arguments, double fraction, cudaStream_t stream);
/// Exchanges entries and numbers, bit by bit.
void exchange_spare(SplittingSpareArguments const& arguments, cudaStream_t stream);
/// partials: the parts of |X - X'|_F^2 from kSpareBlocks blocks.
inline constexpr int kSpareBlocks = 256;
void spare_distance(SplittingSpareArguments const& arguments, double* partials, cudaStream_t stream);

}  // namespace monge::cuda
