// One block solves one problem, as cpu/assignment/shortest_paths.cpp does: sums are taken in the same order in float64,
// and ties are broken in the same way. So pairs are SciPy's in every case.
//
// A thread has kColumns columns, whose distances and potentials lie in its registers. A step of a path is a pass over
// one row of costs, which comes from the L1 or L2 cache, and a minimum over the block. The steps of a path follow each
// other, so their latency is the time of a problem; many problems side by side fill the device.
#pragma once
#include <limits>

#include <monge/assignment.hpp>

#include "cuda/assignment/shortest_paths.hpp"
#include "cuda/device/ptx.cuh"

namespace monge::cuda {

/// Columns of a thread. More would take a step longer: its arithmetic in float64 is issued by fewer warps.
inline constexpr int kColumns = 2;

/// The least distance of an open column, as two integers in the order of the numbers, and the first column in the order
/// of ties among those at this distance. `tie` has, from the top: whether the column is free, its place in this order
/// and its row.
struct NearestColumn {
  int upper;
  unsigned lower, tie;
};
inline constexpr int kPlaceBits = 11;
static_assert(kLargestAssignment == 1 << kPlaceBits);

/// A free column wins, the last in the list of open columns; without one, the first in the list.
__device__ __forceinline__ unsigned tie_of(int place, int row) {
  return row < 0 ? 1u << 2 * kPlaceBits | static_cast<unsigned>(place) << kPlaceBits
                 : static_cast<unsigned>(kLargestAssignment - 1 - place) << kPlaceBits | static_cast<unsigned>(row);
}

/// No distance is -0: the first is 0 + C_ij - 0 - 0, and a difference of equal numbers is +0.
__device__ __forceinline__ NearestColumn nearest_column(double distance, unsigned tie) {
  int const upper = __double2hiint(distance);
  unsigned const lower = static_cast<unsigned>(__double2loint(distance));
  return upper < 0 ? NearestColumn{upper ^ 0x7fffffff, ~lower, tie} : NearestColumn{upper, lower, tie};
}
__device__ __forceinline__ double distance_of(NearestColumn const& nearest) {
  int const lower = static_cast<int>(nearest.lower);
  return nearest.upper < 0 ? __hiloint2double(nearest.upper ^ 0x7fffffff, ~lower)
                           : __hiloint2double(nearest.upper, lower);
}

__device__ __forceinline__ NearestColumn nearest_of_warp(NearestColumn const& mine) {
  constexpr unsigned kAll = 0xffffffffu;
  int const upper = __reduce_min_sync(kAll, mine.upper);
  unsigned const lower = __reduce_min_sync(kAll, mine.upper == upper ? mine.lower : kAll);
  bool const is_nearest = mine.upper == upper && mine.lower == lower;
  return {upper, lower, __reduce_max_sync(kAll, is_nearest ? mine.tie : 0u)};
}

/// The shared memory of a block.
struct AssignmentMemory {
  double* u;       // Potentials of the rows.
  int* column_of;  // The column of each row; -1: none.
  int* row_of;     // The row of each column; -1: free.
  int* parent;     // The row before a column on its shortest path.

  __device__ __forceinline__ AssignmentMemory(void* memory, int rows, int columns)
      : u(static_cast<double*>(memory)),
        column_of(reinterpret_cast<int*>(u + rows)),
        row_of(column_of + rows),
        parent(row_of + columns) {}
  static constexpr int bytes(int rows, int columns) { return 12 * rows + 8 * columns; }
};

/// The costs of one problem with the longer side as columns.
template <class T>
struct OrientedCosts {
  T const* data;
  std::int64_t row_step, column_step;
  int rows, columns;
  bool transposed, maximize;

  __device__ __forceinline__ OrientedCosts(AssignmentMatrix const& matrix, bool maximize)
      : data(static_cast<T const*>(matrix.data)),
        rows(min(matrix.rows, matrix.columns)),
        columns(max(matrix.rows, matrix.columns)),
        transposed(matrix.columns < matrix.rows),
        maximize(maximize) {
    row_step = transposed ? 1 : matrix.row_stride;
    column_step = transposed ? matrix.row_stride : 1;
  }
  __device__ __forceinline__ T const* column(int j) const { return data + j * column_step; }
  /// In a row of this column.
  __device__ __forceinline__ T at(T const* column, int i) const {
    T const cost = column[i * row_step];
    return maximize ? -cost : cost;
  }
};

/// All threads of a block together. Leaves the pairs in `memory`.
template <class T>
class BlockPathSearch {
 public:
  __device__ __forceinline__ BlockPathSearch(OrientedCosts<T> const& costs, AssignmentMemory const& memory)
      : costs_(costs), memory_(memory), threads_(static_cast<int>(blockDim.x)) {
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      v_[k] = 0;
      row_of_[k] = -1;
      costs_of_[k] = costs.column(min(column(k), max(costs.columns - 1, 0)));
      if (column(k) < costs_.columns) memory_.row_of[column(k)] = -1;
    }
    for (int i = static_cast<int>(threadIdx.x); i < costs_.rows; i += threads_) {
      memory_.u[i] = 0;
      memory_.column_of[i] = -1;
    }
    __syncthreads();
  }

  __device__ __forceinline__ AssignmentStatus solve() {
    for (int row = 0; row < costs_.rows; ++row) {
      AssignmentStatus const found = add(row);
      if (found == AssignmentStatus::optimal) continue;
      // A later row with an invalid cost comes before an infeasible one.
      return found == AssignmentStatus::infeasible && has_invalid(row + 1) ? AssignmentStatus::invalid : found;
    }
    return AssignmentStatus::optimal;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr int kClosed = -1, kNone = -2;  // Places of columns that are not open.

  __device__ __forceinline__ int column(int k) const {
    return static_cast<int>(threadIdx.x) + k * threads_;
  }

  __device__ __forceinline__ bool has_invalid(int first) const {
    bool invalid = false;
    for (int i = first; i < costs_.rows; ++i) {
      for (int j = static_cast<int>(threadIdx.x); j < costs_.columns; j += threads_)
        invalid |= !(costs_.at(costs_.column(j), i) > -std::numeric_limits<T>::infinity());
    }
    return __syncthreads_or(invalid) != 0;
  }

  /// Assigns this row, too.
  __device__ __forceinline__ AssignmentStatus add(int row) {
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      distance_[k] = kInfinity;
      parent_[k] = -1;
      place_[k] = column(k) < costs_.columns ? costs_.columns - 1 - column(k) : kNone;
    }
    double length = 0;
    int i = row;
    for (int open = costs_.columns;; --open) {
      NearestColumn const nearest = relax(i, length);
      length = distance_of(nearest);
      if (length == kInfinity) return AssignmentStatus::infeasible;
      if (length == -kInfinity) return AssignmentStatus::invalid;
      bool const is_free = nearest.tie >> 2 * kPlaceBits != 0;
      int const place = static_cast<int>(nearest.tie >> kPlaceBits) & (kLargestAssignment - 1);
      close(is_free ? place : kLargestAssignment - 1 - place, open - 1, is_free);
      if (is_free) break;
      i = static_cast<int>(nearest.tie) & (kLargestAssignment - 1);
    }
    finish(row, length);
    return AssignmentStatus::optimal;
  }

  /// Takes the paths through row i, which is at this distance, into account. An invalid cost makes the distance -inf;
  /// each row is the first of a path once, so that all costs are seen.
  __device__ __forceinline__ NearestColumn relax(int i, double distance) {
    double const u = memory_.u[i];
    double least = kInfinity;
    bool invalid = false;
    T cost[kColumns];
    double open[kColumns];  // Distances, inf where a column is not open.
#pragma unroll
    for (int k = 0; k < kColumns; ++k) cost[k] = costs_.at(costs_of_[k], i);
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      invalid |= !(cost[k] > -std::numeric_limits<T>::infinity());
      double const through = distance + static_cast<double>(cost[k]) - u - v_[k];
      bool const is_open = place_[k] >= 0, shorter = is_open & (through < distance_[k]);
      distance_[k] = shorter ? through : distance_[k];
      parent_[k] = shorter ? i : parent_[k];
      open[k] = is_open ? distance_[k] : kInfinity;
      least = open[k] < least ? open[k] : least;
    }
    unsigned tie = 0;
#pragma unroll
    for (int k = 0; k < kColumns; ++k) tie = max(tie, open[k] == least ? tie_of(place_[k], row_of_[k]) : 0u);
    return nearest_of_block(nearest_column(invalid ? -kInfinity : least, tie));
  }

  __device__ __forceinline__ NearestColumn nearest_of_block(NearestColumn const& mine) {
    __shared__ NearestColumn of_warps[2][32];
    NearestColumn const nearest = nearest_of_warp(mine);
    if (threads_ == 32) return nearest;
    // Steps use two arrays in turn: a slow warp may read the array of this step while a fast one writes the next.
    NearestColumn* const all = of_warps[turn_];
    turn_ ^= 1;
    int const lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) all[threadIdx.x / 32] = nearest;
    __syncthreads();
    return nearest_of_warp(lane < threads_ / 32 ? all[lane] : nearest_column(kInfinity, 0));
  }

  /// Closes the column at this place of the list. The last column of the list takes its place.
  __device__ __forceinline__ void close(int place, int last, bool is_sink) {
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      if (place_[k] == place) {
        place_[k] = kClosed;
        if (is_sink) sink() = column(k);
      } else if (place_[k] == last) {
        place_[k] = place;
      }
    }
  }

  /// Moves the potentials, and the pairs along the path.
  __device__ __forceinline__ void finish(int row, double length) {
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      if (column(k) < costs_.columns) memory_.parent[column(k)] = parent_[k];
      if (place_[k] != kClosed) continue;
      double const change = length - distance_[k];
      v_[k] -= change;
      if (row_of_[k] >= 0) memory_.u[row_of_[k]] += change;
    }
    if (threadIdx.x == 0) memory_.u[row] += length;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int j = sink(), i = -1; i != row;) {
        i = memory_.parent[j];
        memory_.row_of[j] = i;
        int const next = memory_.column_of[i];
        memory_.column_of[i] = j;
        j = next;
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kColumns; ++k)
      if (column(k) < costs_.columns) row_of_[k] = memory_.row_of[column(k)];
  }

  __device__ __forceinline__ static int& sink() {
    __shared__ int column;
    return column;
  }

  OrientedCosts<T> const& costs_;
  AssignmentMemory const& memory_;
  int threads_, turn_ = 0;
  T const* costs_of_[kColumns];  // The last column again where a thread has none.
  double distance_[kColumns], v_[kColumns];
  int parent_[kColumns], row_of_[kColumns];
  int place_[kColumns];  // Places in the list of open columns, by which ties are broken.
};

/// Matrix t, of type T. A size out of range becomes -1.
template <class T>
__device__ __forceinline__ AssignmentMatrix matrix_at(AssignmentBatch const& batch, std::int64_t t) {
  AssignmentMatrix matrix = batch.first;
  matrix.data = static_cast<T const*>(matrix.data) + t * batch.batch_stride;
  auto const take = [t](AssignmentSizes const& sizes, int& size) {
    if (sizes.data == nullptr) return;
    std::int64_t const given = sizes.data[t * sizes.stride];
    size = given >= 0 && given <= size ? static_cast<int>(given) : -1;
  };
  take(batch.rows, matrix.rows);
  take(batch.columns, matrix.columns);
  return matrix;
}
template <class T>
__device__ __forceinline__ AssignmentMatrix matrix_at(AssignmentList const& list, std::int64_t t) {
  return list.matrices[t];
}

/// The pairs of problem t in the order of its rows, then -1. `partner_of` has the column of each row, -1 where a row
/// has none. One warp.
__device__ __forceinline__ void store_pairs(AssignmentResults const& results, std::int64_t t, int const* partner_of,
                                            int rows) {
  int const lane = static_cast<int>(threadIdx.x);
  std::int64_t* const to_rows = results.rows + t * results.row_stride;
  std::int64_t* const to_columns = results.columns + t * results.column_stride;
  int count = 0;
  for (int first = 0; first < rows; first += 32) {
    int const i = first + lane, partner = i < rows ? partner_of[i] : -1;
    unsigned const paired = __ballot_sync(0xffffffffu, partner >= 0);
    if (partner >= 0) {
      int const at = count + __popc(paired & ((1u << lane) - 1));
      to_rows[at] = i;
      to_columns[at] = partner;
    }
    count += __popc(paired);
  }
  for (std::int64_t at = count + lane; at < results.pairs; at += 32) to_rows[at] = to_columns[at] = -1;
}

/// One block a problem.
template <class T, class Source>
__global__ void __launch_bounds__(kLargestAssignment / kColumns, 1)
    assign_kernel(__grid_constant__ Source const source, AssignmentResults const results, bool maximize) {
  extern __shared__ double assignment_memory[];
  wait_for_previous_kernel();
  std::int64_t const t = blockIdx.x;
  AssignmentMatrix const matrix = matrix_at<T>(source, t);
  bool const has_size = matrix.rows >= 0 && matrix.columns >= 0;
  OrientedCosts<T> const costs(matrix, maximize);
  AssignmentMemory const memory(assignment_memory, costs.rows, costs.columns);
  AssignmentStatus const status = has_size ? BlockPathSearch<T>(costs, memory).solve() : AssignmentStatus::invalid;
  if (threadIdx.x >= 32) return;
  bool const is_optimal = status == AssignmentStatus::optimal;
  store_pairs(results, t, costs.transposed ? memory.row_of : memory.column_of, is_optimal ? matrix.rows : 0);
  if (threadIdx.x == 0) results.status[t * results.status_stride] = static_cast<std::int64_t>(status);
}

}  // namespace monge::cuda
