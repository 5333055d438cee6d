// The part of the tensor-core kernels that is not a product: from scores in registers to sums of exponentials.
//
// A thread holds kRowTiles x kColumnTiles accumulators of the m16n8 kind: rows 16 m + 8 h + lane / 4 (entry 2 m + h of
// its sums), columns 8 n + lane % 4 * 2 and the next.
#pragma once
#include "cuda/device/numerics.cuh"

namespace monge::cuda {

template <int kCount>
struct RowSums {
  float reference[kCount];
  float sum[kCount];    // Of the last few tiles.
  float total[kCount];  // Of the tiles before.
  float compensation[kCount];

  __device__ __forceinline__ RowSums() {
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      reference[r] = kEmptyLogit<float>;
      sum[r] = total[r] = compensation[r] = 0;
    }
  }
  __device__ __forceinline__ void raise(int r, float largest) {
    float const next = fmaxf(reference[r], largest);
    float const factor = fast_exp2(reference[r] - next);
    sum[r] *= factor;
    total[r] *= factor;
    compensation[r] *= factor;
    reference[r] = next;
  }
  __device__ __forceinline__ void flush() {
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      compensated_add(total[r], compensation[r], sum[r]);
      sum[r] = 0;
    }
  }
  /// Over the four lanes that share a row.
  __device__ __forceinline__ void merge_lanes() {
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
#pragma unroll
      for (int r = 0; r < kCount; ++r) {
        float const other_reference = __shfl_xor_sync(0xffffffffu, reference[r], mask);
        float const other_total = __shfl_xor_sync(0xffffffffu, total[r], mask);
        merge_sums(reference[r], total[r], other_reference, other_total);
      }
    }
  }
};

/// sum_j beta_j 2^(multiplier score_j + h_j - reference) of each row; h in shared memory, beta kBetaOffset floats on.
template <int kBetaOffset, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void sum_tile(float (&sum)[2 * kRowTiles], RowSums<2 * kRowTiles> const& rows,
                                         float const (&score)[kRowTiles][kColumnTiles][4], float const* logits,
                                         float multiplier) {
  int const pair = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) sum[r] = 0;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    float2 const logit = *reinterpret_cast<float2 const*>(logits + 8 * n + pair);
    float2 const beta = *reinterpret_cast<float2 const*>(logits + kBetaOffset + 8 * n + pair);
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      float const t0 = fmaf(multiplier, score[r / 2][n][r % 2 * 2], logit.x);
      float const t1 = fmaf(multiplier, score[r / 2][n][r % 2 * 2 + 1], logit.y);
      sum[r] = fmaf(beta.x, fast_exp2(t0 - rows.reference[r]), sum[r]);
      sum[r] = fmaf(beta.y, fast_exp2(t1 - rows.reference[r]), sum[r]);
    }
  }
}

/// Adds a tile of scores to the sums. No maximum is taken: if the references prove too low, the tile is summed again.
template <int kBetaOffset, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void add_tile(RowSums<2 * kRowTiles>& rows, float const (&score)[kRowTiles][kColumnTiles][4],
                                         float const* logits, float multiplier) {
  float sum[2 * kRowTiles];
#pragma unroll 1
  for (int attempt = 0;; ++attempt) {
    sum_tile<kBetaOffset>(sum, rows, score, logits, multiplier);
    bool low = false;
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) low |= !(sum[r] < kLargestTileSum);
    // After the references moved, only logits that are not numbers could bring it here again.
    if (attempt == 1 || !__any_sync(0xffffffffu, low)) break;
    int const pair = static_cast<int>(threadIdx.x) % 4 * 2;
    float largest[2 * kRowTiles];
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) largest[r] = kEmptyLogit<float>;
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      float2 const logit = *reinterpret_cast<float2 const*>(logits + 8 * n + pair);
#pragma unroll
      for (int r = 0; r < 2 * kRowTiles; ++r) {
        largest[r] = fmaxf(largest[r], fmaf(multiplier, score[r / 2][n][r % 2 * 2], logit.x));
        largest[r] = fmaxf(largest[r], fmaf(multiplier, score[r / 2][n][r % 2 * 2 + 1], logit.y));
      }
    }
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) rows.raise(r, largest[r]);
  }
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) rows.sum[r] += sum[r];
}

}  // namespace monge::cuda
