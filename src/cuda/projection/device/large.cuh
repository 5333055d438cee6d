// Arguments and memory of matrices larger than a tile, for the kernels of the projection (kernels/large.cuh) and of its
// gradient (kernels/large_backward.cuh). __device__ only.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/projection/device/arguments.hpp"
#include "cuda/projection/device/elements.cuh"
#include "cuda/projection/device/tile.cuh"

namespace monge::cuda::large {

inline constexpr int kThreads = 256, kWarps = kThreads / 32;
inline constexpr int kStrip = 32;  // Rows of a block. Fewer would move more partial sums.

/// A part of the batch, with `blocks` blocks a matrix. State s of a matrix is its scalings u, v after s pairs.
struct LargeArguments {
  ProjectionArguments problem;
  LargeShape shape;
  float* memory;       // The marginals, then shape.matrix floats for each matrix.
  std::int64_t first;  // The first matrix of the part.
  int blocks;

  __device__ __forceinline__ int block() const { return static_cast<int>(blockIdx.x) % blocks; }
  __device__ __forceinline__ int matrix() const { return static_cast<int>(blockIdx.x) / blocks; }
};

__device__ __forceinline__ float* marginals_of(LargeArguments const& a, bool rows) {
  return a.memory + (rows ? 0 : a.shape.rows);
}

/// The memory of the matrix of this block.
struct LargeMatrix {
  float *k, *partial, *states, *gradients;
  float *row_weight, *row_kept, *row_chain, *row_bar, *column_weight, *column_kept, *column_chain;
  int* moved;  // 1 for each pair that was done, because a sum was not within the tolerance.

  __device__ __forceinline__ explicit LargeMatrix(LargeArguments const& a) : shape_(a.shape) {
    int const n = a.shape.rows, m = a.shape.columns;
    float* next = a.memory + n + m + a.matrix() * a.shape.matrix;
    auto const take = [&](std::int64_t count) {
      float* const at = next;
      next += count;
      return at;
    };
    k = take(static_cast<std::int64_t>(a.problem.rows) * m);
    partial = take(std::int64_t{2} * a.shape.strips * m);
    states = take(static_cast<std::int64_t>(a.shape.slots) * (n + m));
    row_weight = take(n);
    row_kept = take(n);
    row_chain = take(n);
    row_bar = take(n);
    column_weight = take(m);
    column_kept = take(m);
    column_chain = take(m);
    moved = reinterpret_cast<int*>(take(a.shape.marks));
    gradients = next;
  }
  __device__ __forceinline__ float* u(int state) const { return states + at(state); }
  __device__ __forceinline__ float* v(int state) const { return u(state) + shape_.rows; }
  /// Gradients by the row sums and by the column sums from which u and v of a state follow.
  __device__ __forceinline__ float* r(int state) const { return gradients + at(state); }
  __device__ __forceinline__ float* q(int state) const { return r(state) + shape_.rows; }

 private:
  LargeShape const& shape_;
  __device__ __forceinline__ std::int64_t at(int state) const {
    return static_cast<std::int64_t>(state % shape_.slots) * (shape_.rows + shape_.columns);
  }
};

/// Whether the matrix stopped before this pair.
__device__ __forceinline__ bool stopped_before(LargeArguments const& a, LargeMatrix const& matrix, int pair) {
  return a.problem.tolerance > 0 && pair > 0 && matrix.moved[pair - 1] == 0;
}
/// The pairs done. All threads of the block call it.
__device__ __forceinline__ int pairs_done(LargeArguments const& a, LargeMatrix const& matrix) {
  if (!(a.problem.tolerance > 0)) return a.problem.pairs;
  int count = 0;
  for (int first = 0; first < a.problem.pairs; first += kThreads) {
    int const pair = first + static_cast<int>(threadIdx.x);
    count += __syncthreads_count(pair < a.problem.pairs && matrix.moved[pair] != 0);
  }
  return count;
}

/// Calls visit(k, j) with each entry of a row of K, padding included, and its column, by all lanes of a warp.
template <class Visit>
__device__ __forceinline__ void along(float const* row, int columns, Visit&& visit) {
#pragma unroll 4
  for (int j = 4 * (static_cast<int>(threadIdx.x) % 32); j < columns; j += 128) {
    float4 const four = *reinterpret_cast<float4 const*>(row + j);
    visit(four.x, j), visit(four.y, j + 1), visit(four.z, j + 2), visit(four.w, j + 3);
  }
}

__device__ __forceinline__ bool keeps_shifts(ProjectionArguments const& a) {
  bool const exact = !a.start_positive && !a.start_softmax && !a.start_shifted;
  return exact && (a.epsilon > 0 || a.matrix_epsilon > 0);
}
/// Whether K is shifted by columns (start_columns); otherwise start_rows makes it.
__host__ __device__ inline bool shifts_columns(ProjectionArguments const& a) {
  return a.columns_first && !a.log_domain && !a.start_positive && !a.start_softmax && !a.start_shifted;
}

}  // namespace monge::cuda::large
