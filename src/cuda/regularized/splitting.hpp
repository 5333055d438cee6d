// Iterations of Douglas-Rachford splitting on entries in memory (cuda/regularized/splitting.cuh).
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "core/host_device.hpp"
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"
#include "regularized/regularized_operator.hpp"

namespace monge::cuda {

/// What becomes of an entry, as far as kernels differ in it.
enum class SplittingProx { shrink, group, hypentropy };

/// What an iteration reads and leaves: costs are subtracted in two of three, and X - s S stays for the one that does
/// without them.
enum class SplittingIteration { opening, closing, single };

/// In device memory, so that recorded graphs serve every step.
struct SplittingParameters {
  double step;                      // s
  double shrink;                    // 1 / (1 + s lambda_quadratic)
  double group, hypentropy, width;  // s lambda_group, s lambda_hypentropy, beta
};

struct SplittingState {
  double alpha;
  double before;  // alpha as this iteration began.
};

/// One side, in the order and with the padding of the packed entries.
struct SplittingSide {
  int size = 0;
  int real = 0;                   // Of them points.
  int const* point = nullptr;     // Which one of the problem's, negative for padding; null: all as in the problem.
  double const* share = nullptr;  // p or q
  double* sum = nullptr;          // a or b
  double* potential = nullptr;    // phi or psi
  void* rounded = nullptr;        // The same in the type of the entries.
  double* residual = nullptr;     // X 1 - p or X^T 1 - q
  void* parts = nullptr;          // [count][stride]: sums of the entries, in their type.
  int part_count = 0;
  std::int64_t part_stride = 0;
};

/// Blocks of rows times parts of the columns; the rows of a block lie from slabs[k] to slabs[k + 1].
struct SplittingArguments {
  void* entries = nullptr;      // X or X - s S: [columns][pitch]
  void const* costs = nullptr;  // S, the same; +infinity in padding.
  std::int64_t pitch = 0;
  int const* slabs = nullptr;
  int slab_count = 0;
  int parts = 0;
  int cluster = 1;    // Blocks that divide the rows of a slab.
  int backwards = 0;  // Whether columns are taken from the last to the first.
  SplittingSide side[2];
  SplittingParameters const* parameters = nullptr;
  SplittingState* state = nullptr;
  int const* group = nullptr;            // Of each 4 rows.
  int const* group_begin = nullptr;      // The rows of each group, and the end.
  double const* group_weight = nullptr;  // w_g
  double* totals = nullptr;              // Of each block: the sum of its entries.
};

/// Groups of rows are padded to a multiple of this.
inline constexpr int kSplittingRows = 4;

struct SplittingPlan {
  DataType scalar = DataType::float32;
  SplittingProx prox = SplittingProx::shrink;
  int threads = 0;
  std::vector<int> slabs;  // First rows, and the end.
  int parts = 0;
  int cluster = 1;

  int slab_count() const { return static_cast<int>(slabs.size()) - 1; }
  int blocks() const { return slab_count() * parts * cluster; }
  /// Sums over a column, one for each warp of its slabs.
  int column_parts() const { return slab_count() * cluster * (threads / 32); }
};
/// `group_begin`: the packed rows of each group and their end, a multiple of kSplittingRows; empty without groups.
/// The blocks fill the device once. Throws unsupported for a group that no cluster can hold.
SplittingPlan plan_splitting(DataType scalar, SplittingProx prox, int rows, int columns,
                             std::vector<int> const& group_begin, int multiprocessors);

/// Two launches. Iterations take turns in running backwards.
void splitting_iteration(SplittingPlan const& plan, SplittingIteration iteration, SplittingArguments const& arguments,
                         Queue const& queue);

/// Iterations with X in shared memory (cuda/regularized/splitting_resident.cuh).
struct ResidentPlan {
  DataType scalar = DataType::float32;
  SplittingProx prox = SplittingProx::shrink;
  int tile_rows = 0, tile_columns = 0;
  int tiles[2] = {};  // Along rows and columns.
  int shared_bytes = 0;

  int blocks() const { return tiles[0] * tiles[1]; }
};
/// None where X does not fit on the device, and with groups.
std::optional<ResidentPlan> plan_resident(DataType scalar, SplittingProx prox, int rows, int columns,
                                          int multiprocessors);

struct ResidentArguments {
  SplittingArguments problem;
  int tile_rows = 0, tile_columns = 0;
  int tiles[2] = {};
  double* parts[2] = {};  // Of a turn and a tile across: sums of the rows, and of the columns; 2 turns.
  std::int64_t stride[2] = {};
  double* totals = nullptr;  // [2][blocks]
  unsigned* arrived = nullptr;

  MONGE_HOST_DEVICE int blocks() const { return tiles[0] * tiles[1]; }
  /// The sums of side s that tiles number `other` of the other direction left.
  MONGE_HOST_DEVICE double* sums(int s, int turn, int other) const {
    return parts[s] + (turn * tiles[1 - s] + other) * stride[s];
  }
};
/// `count` iterations >= 1 in one launch; X is in memory before and after.
void resident_iterations(ResidentPlan const& plan, ResidentArguments const& arguments, int count, cudaStream_t stream);

/// phi <- factor phi and psi <- factor psi; a, b and alpha as they follow from these and X, whose residuals stand from
/// the last iteration; X = 0 if `empty`.
struct SplittingRestart {
  SplittingArguments problem;
  DataType scalar;
  double factor;
  bool empty;
};
void restart_splitting(SplittingRestart const& restart, Queue const& queue);

struct SplittingResidualArguments {
  SplittingArguments problem;
  SplittingResidual* result;
};
void splitting_residual(SplittingResidualArguments const& arguments, Queue const& queue);

/// X and X' of a plan and a spare one, `size` entries of type `scalar` with their padding, and `count` numbers of the
/// recursion beside each.
struct SplittingSpareArguments {
  DataType scalar;
  std::int64_t size;
  void* entries;
  void* spare_entries;
  std::int64_t count;
  double* numbers;
  double* spare_numbers;
};
/// Spare entries and numbers go by `share` of the way to the others.
void approach_spare(SplittingSpareArguments const& arguments, double share, cudaStream_t stream);
/// Entries and numbers, bit by bit.
void exchange_spare(SplittingSpareArguments const& arguments, cudaStream_t stream);
/// partials: kSpareBlocks parts of |X - X'|_F^2.
inline constexpr int kSpareBlocks = 256;
void spare_distance(SplittingSpareArguments const& arguments, double* partials, cudaStream_t stream);

}  // namespace monge::cuda
