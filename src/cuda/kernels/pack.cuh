// Packing of a cloud: centred, rounded, padded with zeros; its squared norms; its part of the gauge; its fp16 parts.
//
//   x'_i = x_i - mu in float64, then rounded to T;   squared_i = |x'_i|^2 of the rounded point;
//   shift_i = slope <x_i - mu, w> + constant, of the point before rounding, since |w| may be large.
//
// One warp a row. Each coordinate is read and written once.
//
// Before that, the centre mu: each block averages some rows, one thread a coordinate, as a running mean in float64
// (sums of coordinates could overflow, and large offsets would lose digits); the host averages the blocks.
#pragma once
#include <cuda_fp16.h>

#include "cuda/device/numerics.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/launch/pack.hpp"

namespace monge::cuda {

inline constexpr int kPackThreads = 256;

__global__ void __launch_bounds__(kPackThreads) survey_points_kernel(SurveyArguments const arguments) {
  int const first = static_cast<int>(blockIdx.x) * arguments.rows_per_block;
  int const end = min(first + arguments.rows_per_block, arguments.size);
  for (int k = static_cast<int>(threadIdx.x); k < arguments.dimension; k += kPackThreads) {
    double mean = 0, total = 0;
    for (int row = first; row < end; ++row) {
      double const value = load_element(arguments.input, row * arguments.input.stride + k);
      if (!isfinite(value))
        atomicMin(arguments.first_not_finite, static_cast<unsigned long long>(row) * arguments.dimension + k);
      double const weight = arguments.weight[row];
      total += weight;
      if (weight > 0) mean += (value - mean) * (weight / total);
    }
    arguments.means[static_cast<std::int64_t>(blockIdx.x) * arguments.dimension + k] = mean;
    if (k == 0) arguments.totals[blockIdx.x] = total;
  }
}

template <class T>
__global__ void __launch_bounds__(kPackThreads) pack_points_kernel(PackArguments const arguments) {
  int const row = static_cast<int>((static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x) / 32);
  int const lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= arguments.padded_size) return;
  T* const out = static_cast<T*>(arguments.points) + static_cast<std::int64_t>(row) * arguments.stride;
  double square = 0, largest = 0, product = 0;
  for (int k = lane; k < arguments.stride; k += 32) {
    T rounded = 0;
    if (row < arguments.size && k < arguments.dimension) {
      double const value = load_element(arguments.input, row * arguments.input.stride + k) - arguments.centre[k];
      rounded = static_cast<T>(value);
      product += value * arguments.offset[k];
    }
    out[k] = rounded;
    square += static_cast<double>(rounded) * static_cast<double>(rounded);
    largest = fmax(largest, fabs(static_cast<double>(rounded)));
  }
  square = warp_sum(square);
  product = warp_sum(product);
  largest = warp_max(largest);
  if (lane == 0 && row < arguments.size) {
    arguments.squared[row] = square;
    arguments.largest[row] = largest;
    arguments.norm[row] = arguments.norm_factor * square;
    arguments.shift[row] = arguments.shift_slope * product + arguments.shift_constant;
  }
}

/// high = fp16(v), low = fp16(v - high) for v = half_scale x'. The norms are those of high + low, as the products see
/// it.
__global__ void __launch_bounds__(kPackThreads) split_points_kernel(SplitArguments const arguments) {
  int const row = static_cast<int>((static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x) / 32);
  int const lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= arguments.padded_size) return;
  float const* const from = arguments.points + static_cast<std::int64_t>(row) * arguments.stride;
  std::int64_t const offset = static_cast<std::int64_t>(row) * arguments.half_stride;
  double square = 0;
  for (int k = lane; k < arguments.half_stride; k += 32) {
    double const scaled = k < arguments.stride ? arguments.half_scale * static_cast<double>(from[k]) : 0.0;
    float const value = static_cast<float>(scaled);
    __half const high = __float2half_rn(value);
    __half const low = __float2half_rn(value - __half2float(high));
    static_cast<__half*>(arguments.high)[offset + k] = high;
    static_cast<__half*>(arguments.low)[offset + k] = low;
    double const kept = static_cast<double>(__half2float(high)) + static_cast<double>(__half2float(low));
    square += kept * kept;
  }
  square = warp_sum(square);
  if (lane == 0 && row < arguments.size) {
    arguments.norm[row] = arguments.norm_factor * (square / arguments.half_scale / arguments.half_scale);
  }
}

/// The shift of packed points after w changed by `offset`.
template <class T>
__global__ void __launch_bounds__(kPackThreads) move_gauge_kernel(GaugeArguments const arguments) {
  int const row = static_cast<int>((static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x) / 32);
  int const lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= arguments.size) return;
  T const* const from =
      static_cast<T const*>(arguments.points.points) + static_cast<std::int64_t>(row) * arguments.points.stride;
  double product = 0;
  for (int k = lane; k < arguments.points.dimension; k += 32) {
    product += static_cast<double>(from[k]) * arguments.offset[k];
  }
  product = warp_sum(product);
  if (lane == 0)
    arguments.shift_out[row] = arguments.shift_in[row] + arguments.shift_slope * product + arguments.shift_constant;
}

/// A caller's matrix as float64, with zeros up to padded_rows x stride.
__global__ void __launch_bounds__(kPackThreads)
    convert_matrix_kernel(StridedView const from, int rows, int columns, double* out, int padded_rows, int stride) {
  std::int64_t const count = static_cast<std::int64_t>(padded_rows) * stride;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * kPackThreads) {
    std::int64_t const row = i / stride;
    int const column = static_cast<int>(i % stride);
    out[i] = row < rows && column < columns ? load_element(from, row * from.stride + column) : 0.0;
  }
}

}  // namespace monge::cuda
