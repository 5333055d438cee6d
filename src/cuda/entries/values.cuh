// Kernels before and after a product of entries with values V: packing V^T as an operand, and storing the result from
// the sums. Each element is read and written once or twice; O((n + m) width).
#pragma once
#include <cuda_fp16.h>

#include "cuda/device/half_scale.cuh"
#include "cuda/device/numerics.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/entries/entry_product.hpp"

namespace monge::cuda {

inline constexpr int kValueThreads = 256;
inline constexpr int kValueColumns = 32;  // Columns of V that a block packs.
inline constexpr int kValueRows = 64;

__device__ __forceinline__ double value_at(PackValuesArguments const& arguments, int j, int p) {
  if (!(arguments.weight[j] > 0)) return 0;
  double const value = load_element(arguments.from, j * arguments.from.stride + p);
  return arguments.divisor ? value / arguments.divisor[j] : value;
}

/// The bits of the largest |V_jp| of each column; their order is that of the numbers. Grid: (blocks of kValueColumns
/// columns, shares of the rows).
__global__ void __launch_bounds__(kValueThreads) largest_values_kernel(PackValuesArguments const arguments) {
  int const p = static_cast<int>(blockIdx.x) * kValueColumns + static_cast<int>(threadIdx.x) % kValueColumns;
  if (p >= arguments.width) return;
  constexpr int kRowsAtOnce = kValueThreads / kValueColumns;
  double largest = 0;
  for (int j = static_cast<int>(blockIdx.y) * kRowsAtOnce + static_cast<int>(threadIdx.x) / kValueColumns;
       j < arguments.count; j += static_cast<int>(gridDim.y) * kRowsAtOnce)
    largest = fmax(largest, fabs(value_at(arguments, j, p)));
  atomicMax(arguments.largest + p, static_cast<unsigned long long>(__double_as_longlong(largest)));
}

/// A block for each kValueColumns columns of each kValueRows rows: one dimension of a grid alone has room for all rows.
template <class T>
__global__ void __launch_bounds__(kValueThreads) pack_values_kernel(PackValuesArguments const arguments) {
  __shared__ double tile[kValueColumns][kValueRows + 1];
  int const thread = static_cast<int>(threadIdx.x);
  unsigned const column_blocks = static_cast<unsigned>((arguments.padded_width + kValueColumns - 1) / kValueColumns);
  int const first_p = static_cast<int>(blockIdx.x % column_blocks) * kValueColumns;
  int const first_j = static_cast<int>(blockIdx.x / column_blocks) * kValueRows;
  for (int e = thread; e < kValueColumns * kValueRows; e += kValueThreads) {
    int const p = first_p + e % kValueColumns, j = first_j + e / kValueColumns;
    tile[e % kValueColumns][e / kValueColumns] =
        p < arguments.width && j < arguments.count ? value_at(arguments, j, p) : 0.0;
  }
  __syncthreads();
  for (int e = thread; e < kValueColumns * kValueRows; e += kValueThreads) {
    int const p = first_p + e / kValueRows, j = first_j + e % kValueRows;
    if (p >= arguments.padded_width) continue;
    double const value = tile[e / kValueRows][e % kValueRows];
    std::int64_t const row = static_cast<std::int64_t>(p) * arguments.padded_count;
    if constexpr (sizeof(T) == 8) {
      static_cast<double*>(arguments.high)[row + j] = value;
    } else {
      double const scale =
          p < arguments.width ? half_scale(__longlong_as_double(static_cast<long long>(arguments.largest[p]))) : 1.0;
      float const scaled = static_cast<float>(value * scale);
      __half const high = __float2half_rn(scaled);
      static_cast<__half*>(arguments.high)[row + entry_position(j)] = high;
      static_cast<__half*>(arguments.low)[row + entry_position(j)] = __float2half_rn(scaled - __half2float(high));
      if (first_j == 0 && e % kValueRows == 0 && p < arguments.width) arguments.scale[p] = 1 / scale;
    }
  }
}

/// One warp for each row.
__global__ void __launch_bounds__(kValueThreads) split_rows_kernel(SplitRowsArguments const arguments) {
  int const row = static_cast<int>((static_cast<std::int64_t>(blockIdx.x) * kValueThreads + threadIdx.x) / 32);
  int const lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= arguments.padded_rows) return;
  auto const value_of = [&](int k) {
    return row < arguments.rows && k < arguments.columns ? load_element(arguments.from, row * arguments.from.stride + k)
                                                         : 0.0;
  };
  double largest = 0;
  for (int k = lane; k < arguments.columns; k += 32) largest = fmax(largest, fabs(value_of(k)));
  double const scale = half_scale(warp_max(largest));
  std::int64_t const offset = static_cast<std::int64_t>(row) * arguments.half_stride;
  for (int k = lane; k < arguments.half_stride; k += 32) {
    float const scaled = static_cast<float>(scale * value_of(k));
    __half const high = __float2half_rn(scaled);
    static_cast<__half*>(arguments.high)[offset + k] = high;
    static_cast<__half*>(arguments.low)[offset + k] = __float2half_rn(scaled - __half2float(high));
  }
  if (lane == 0 && row < arguments.rows) arguments.divisor[row] = scale;
}

template <class T>
__global__ void __launch_bounds__(kValueThreads) store_values_kernel(StoreValuesArguments const arguments) {
  std::int64_t const e = static_cast<std::int64_t>(blockIdx.x) * kValueThreads + threadIdx.x;
  int const i = static_cast<int>(e / arguments.width), p = static_cast<int>(e % arguments.width);
  if (i >= arguments.rows) return;
  double sum = 0;
  if constexpr (sizeof(T) == 8) {
    for (int part = 0; part < arguments.parts; ++part)
      sum += arguments.sums[part * arguments.sum_size + static_cast<std::int64_t>(i) * arguments.sum_stride + p];
  } else {
    int const row_block = i / 128 * arguments.column_tiles + p / arguments.tile;
    int const slots = arguments.work.slots_of(row_block);
    std::int64_t const slot_rows = static_cast<std::int64_t>(arguments.work.row_blocks) * 128;
    for (int s = 0; s < slots; ++s) {
      std::int64_t const row = s * slot_rows + static_cast<std::int64_t>(row_block) * 128 + i % 128;
      sum += static_cast<double>(arguments.partials[row * arguments.tile + p % arguments.tile]);
    }
  }
  double const scale = (arguments.scale ? arguments.scale[p] : 1.0) * arguments.value_factor;
  double const divisor = arguments.entry_sum[i] * (arguments.row_divisor ? arguments.row_divisor[i] : 1.0);
  double const factor = arguments.row_factor ? arguments.row_factor[i] : 1.0;
  double const origin = arguments.origin ? arguments.origin[p] : 0.0;
  // A row without allowed pairs has no entries. Its shares are 0.
  double const share = divisor > 0 ? scale * sum / divisor + origin : 0.0;
  store_element(arguments.out, i * arguments.out.stride + p, factor * share);
}

}  // namespace monge::cuda
