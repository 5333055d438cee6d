// Work of the tensor-core kernels on a tile of scores in registers: sums of exponentials, or entries of a plan.
//
// A thread holds kRowTiles x kColumnTiles accumulators of the m16n8 kind: rows 16 m + 8 h + lane / 4 (entry 2 m + h of
// its sums), columns 8 n + lane % 4 * 2 and the next.
#pragma once
#include <cuda_fp16.h>

#include "cuda/device/numerics.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

template <int kCount>
struct RowSums {
  float reference[kCount];
  float sum[kCount];    // Sum of recent tiles, not yet in total.
  float total[kCount];  // Sum of earlier tiles.
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
  /// Joins the sums over the four lanes that share a row.
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

/// The references of a thread's rows, from `row` on in steps of 8.
template <int kCount>
__device__ __forceinline__ void load_references(float (&reference)[kCount], void const* references, int row) {
#pragma unroll
  for (int r = 0; r < kCount; ++r) reference[r] = static_cast<float const*>(references)[row + 8 * r];
}

/// sum_j beta_j 2^(multiplier score_j + h_j - reference) of each row. h in shared memory, beta kBetaOffset floats on.
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

/// Adds a tile of scores to the sums. Softmin takes no maximum: if its references prove too low, they move and the tile
/// is summed again.
template <Pass kPass, int kBetaOffset, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void add_tile(RowSums<2 * kRowTiles>& rows, float const (&score)[kRowTiles][kColumnTiles][4],
                                         float const* logits, float multiplier) {
  float sum[2 * kRowTiles];
  auto const make = [&] { sum_tile<kBetaOffset>(sum, rows, score, logits, multiplier); };
  sum_and_raise<has_references(kPass)>(sum, make, [&] {
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
  });
#pragma unroll
  for (int r = 0; r < 2 * kRowTiles; ++r) rows.sum[r] += sum[r];
}

/// Logits so large that they are noise can give a share above 1; its fp16 number must stay finite.
__device__ __forceinline__ float limited_entry(float entry) {
  return fminf(entry, 65504.0f);
}

/// Two numbers, each as the sum of two fp16 numbers; the first is in the lower half of each word.
struct HalfPairs {
  std::uint32_t high, low;
};
__device__ __forceinline__ HalfPairs split_pair(float first, float second) {
  __half2 const high = __floats2half2_rn(first, second);
  float2 const kept = __half22float2(high);
  __half2 const low = __floats2half2_rn(first - kept.x, second - kept.y);
  return {reinterpret_cast<std::uint32_t const&>(high), reinterpret_cast<std::uint32_t const&>(low)};
}
__device__ __forceinline__ float2 join_pair(std::uint32_t high, std::uint32_t low) {
  float2 const h = __half22float2(reinterpret_cast<__half2 const&>(high));
  float2 const l = __half22float2(reinterpret_cast<__half2 const&>(low));
  return make_float2(h.x + l.x, h.y + l.y);
}

/// Writes log2 of the shares of a tile, and the largest of each group, to memory. The factors are log2 beta, minus
/// infinity for columns of zero weight. The four lanes of a row write 64 bytes at a time.
template <int kBetaOffset, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void store_logits(Entries const& entries, int row, int column,
                                             RowSums<2 * kRowTiles> const& rows,
                                             float const (&score)[kRowTiles][kColumnTiles][4], float const* logits,
                                             float multiplier) {
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const pair = lane % 4 * 2;
#pragma unroll
  for (int group = 0; group < kColumnTiles / 4; ++group) {
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      std::int64_t const begin = (row + 8 * r + lane / 4) * entries.stride + column + 32 * group;
      auto const log_shares = [&](int n) {
        float2 const logit = *reinterpret_cast<float2 const*>(logits + 8 * n + pair);
        float2 const beta = *reinterpret_cast<float2 const*>(logits + kBetaOffset + 8 * n + pair);
        float const t0 = fmaf(multiplier, score[r / 2][n][r % 2 * 2], logit.x);
        float const t1 = fmaf(multiplier, score[r / 2][n][r % 2 * 2 + 1], logit.y);
        return make_float2(log_share(t0, rows.reference[r], beta.x), log_share(t1, rows.reference[r], beta.y));
      };
      float largest = -std::numeric_limits<float>::infinity();
#pragma unroll
      for (int b = 0; b < 4; b += 2) {
        float2 const first = log_shares(4 * group + b), second = log_shares(4 * group + b + 1);
        *reinterpret_cast<float4*>(static_cast<float*>(entries.high) + begin + 8 * b + 2 * pair) =
            make_float4(first.x, first.y, second.x, second.y);
        largest = fmaxf(largest, fmaxf(fmaxf(first.x, first.y), fmaxf(second.x, second.y)));
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      if (lane % 4 == 0) static_cast<float*>(entries.low)[begin / kLogitGroup] = largest;
    }
  }
}

/// Writes a tile as entries and adds them to the sums (kPass entries), multiplies entries in memory by the scores
/// (kPass hadamard), or writes logits. `row` and `column` belong to this thread's warp; `column` is a multiple of 32.
template <Pass kPass, int kBetaOffset, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void store_tile(Entries const& entries, int row, int column, RowSums<2 * kRowTiles>& rows,
                                           float const (&score)[kRowTiles][kColumnTiles][4], float const* logits,
                                           float multiplier) {
  if constexpr (kPass == Pass::logits)
    return store_logits<kBetaOffset>(entries, row, column, rows, score, logits, multiplier);
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const pair = lane % 4 * 2;
#pragma unroll
  for (int group = 0; group < kColumnTiles / 4; ++group) {
#pragma unroll
    for (int r = 0; r < 2 * kRowTiles; ++r) {
      std::int64_t const at = (row + 8 * r + lane / 4) * entries.stride + column + 32 * group + lane % 4 * 8;
      auto* const high_at = reinterpret_cast<uint4*>(static_cast<__half*>(entries.high) + at);
      auto* const low_at = reinterpret_cast<uint4*>(static_cast<__half*>(entries.low) + at);
      std::uint32_t high[4], low[4];
      if constexpr (kPass == Pass::hadamard) {
        uint4 const h = *high_at, l = *low_at;
        high[0] = h.x, high[1] = h.y, high[2] = h.z, high[3] = h.w;
        low[0] = l.x, low[1] = l.y, low[2] = l.z, low[3] = l.w;
      }
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        int const n = 4 * group + b;
        float const first = score[r / 2][n][r % 2 * 2], second = score[r / 2][n][r % 2 * 2 + 1];
        float2 entry;
        if constexpr (kPass == Pass::hadamard) {
          float2 const old = join_pair(high[b], low[b]);
          entry = make_float2(old.x * (multiplier * first), old.y * (multiplier * second));
        } else {
          float2 const logit = *reinterpret_cast<float2 const*>(logits + 8 * n + pair);
          float2 const beta = *reinterpret_cast<float2 const*>(logits + kBetaOffset + 8 * n + pair);
          constexpr float kScale = static_cast<float>(kEntryScale);
          entry = make_float2(
              limited_entry(kScale * beta.x * fast_exp2(fmaf(multiplier, first, logit.x) - rows.reference[r])),
              limited_entry(kScale * beta.y * fast_exp2(fmaf(multiplier, second, logit.y) - rows.reference[r])));
          rows.sum[r] += entry.x + entry.y;
        }
        HalfPairs const split = split_pair(entry.x, entry.y);
        high[b] = split.high;
        low[b] = split.low;
      }
      *high_at = make_uint4(high[0], high[1], high[2], high[3]);
      *low_at = make_uint4(low[0], low[1], low[2], low[3]);
    }
  }
}

}  // namespace monge::cuda
