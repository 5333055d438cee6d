// Packing of clouds: centres, rounding, padding with zeros, squared norms, the gauge and fp16 parts. The host gets its
// findings in one small struct for each cloud (CloudFindings).
//
//   features       only if they are more than coordinates: x / |x|, and the row of the label's class
//   survey, join   mu = sum_i (a_i / A) x_i in float64: a mean of finite numbers, so no term overflows
//   pack           x'_i = x_i - mu in float64, then rounded to T; shift_i = <x_i - mu, lean> + constant / 2 of
//                  unrounded points, since the centres may be far apart; lean and constant of PointCost
//   measure        largest norms and feature, and the means of square |x_i - mu|^2 and of <x_i - mu, lean>, which is 0
//                  up to the rounding of mu. The means of both sides and constant add up to the mean cost.
//   split          high = fp16(v), low = fp16(v - high) for v = half_scale x'; the norms of high + low, as products see
//                  them
//
// Both clouds go in one launch (grid y). In survey a block takes some rows, and its threads take rows and coordinates;
// in features, pack and split a warp takes a row; join and measure have one block. Survey, pack and split read each
// coordinate once. The order of sums depends on the sizes only.
#pragma once
#include <cuda_fp16.h>

#include "cuda/device/half_scale.cuh"
#include "cuda/device/numerics.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/geometry/pack.hpp"

namespace monge::cuda {

inline constexpr int kPackThreads = 256;
inline constexpr int kPackRows = kPackThreads / 32;

/// out[k] = the sum of value(row, k) over rows `begin` to `end`, for each k below `dimension`; by one block.
template <class Value>
__device__ __forceinline__ void sum_rows(int dimension, int begin, int end, double* out, Value const& value) {
  __shared__ double sums[kPackThreads];
  int const thread = static_cast<int>(threadIdx.x);
  int lanes = 32;
  while (lanes / 2 >= dimension) lanes /= 2;
  int const groups = kPackThreads / lanes, group = thread / lanes, lane = thread % lanes;
  for (int first = 0; first < dimension; first += lanes) {
    int const k = first + lane;
    double sum = 0;
    if (k < dimension) {
#pragma unroll 4
      for (int row = begin + group; row < end; row += groups) sum += value(row, k);
    }
    sums[thread] = sum;
    __syncthreads();
    if (group == 0 && k < dimension) {
      for (int g = 1; g < groups; ++g) sum += sums[g * lanes + lane];
      out[k] = sum;
    }
    __syncthreads();
  }
}

template <class Source>
__global__ void __launch_bounds__(kPackThreads) make_features_kernel(Source const source) {
  Slice<FeatureArguments> const slice = slice_of(source);
  FeatureArguments const& arguments = slice.arguments;
  start_next_kernel();
  wait_for_previous_kernel();
  int const row = slice.block * kPackRows + static_cast<int>(threadIdx.x) / 32;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= arguments.size) return;
  auto const coordinate = [&](int k) { return load_element(arguments.points, row * arguments.points.stride + k); };
  double length = 1;
  if (arguments.directions) {
    double largest = 0, square = 0;
    for (int k = lane; k < arguments.dimension; k += 32) largest = fmax(largest, fabs(coordinate(k)));
    largest = warp_max(largest);
    for (int k = lane; k < arguments.dimension; k += 32) square += coordinate(k) / largest * (coordinate(k) / largest);
    length = largest * sqrt(warp_sum(square));
    // Coordinates that are not finite stay unchanged, so that the survey finds them.
    if (!isfinite(length) && largest > 0) length = 1;
  }
  double* const out = arguments.out + static_cast<std::int64_t>(row) * (arguments.dimension + arguments.width);
  for (int k = lane; k < arguments.dimension; k += 32) out[k] = coordinate(k) / length;
  if (arguments.width == 0) return;
  std::int64_t const label = arguments.labels[row * arguments.label_stride];
  bool const known = label >= 0 && label < arguments.class_count;
  for (int k = lane; k < arguments.width; k += 32)
    out[arguments.dimension + k] = known ? arguments.classes[label * arguments.width + k] : NAN;
}

template <class Source>
__global__ void __launch_bounds__(kPackThreads) survey_points_kernel(Source const source) {
  Slice<CloudPair> const slice = slice_of(source);
  CloudArguments const& cloud = slice.arguments.cloud[blockIdx.y];
  int const block = slice.block, dimension = cloud.packed.dimension;
  start_next_kernel();
  wait_for_previous_kernel();
  if (block >= cloud.survey_blocks) return;
  __shared__ unsigned long long first_not_finite;
  if (threadIdx.x == 0) first_not_finite = kAllFinite;
  __syncthreads();
  auto const edge = [&](int b) {
    return static_cast<int>(static_cast<std::int64_t>(b) * cloud.size / cloud.survey_blocks);
  };
  sum_rows(dimension, edge(block), edge(block + 1),
           cloud.partial_centres + static_cast<std::int64_t>(block) * dimension, [&](int row, int k) {
             double const value = load_element(cloud.input, row * cloud.input.stride + k);
             if (!isfinite(value)) atomicMin(&first_not_finite, static_cast<unsigned long long>(row) * dimension + k);
             return (cloud.weight ? cloud.weight[row] : 1.0) / cloud.total * value;
           });
  if (threadIdx.x == 0) cloud.first_not_finite[block] = first_not_finite;
}

/// Grid: (1, clouds).
template <class Source>
__global__ void __launch_bounds__(kPackThreads) join_survey_kernel(Source const source) {
  Slice<CloudPair> const slice = slice_of(source);
  CloudArguments const& cloud = slice.arguments.cloud[blockIdx.y];
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const dimension = cloud.packed.dimension;
  sum_rows(cloud.packed.dimension, 0, cloud.survey_blocks, cloud.centre,
           [&](int block, int k) { return cloud.partial_centres[block * dimension + k]; });
  __shared__ unsigned long long first_not_finite;
  if (threadIdx.x == 0) first_not_finite = kAllFinite;
  __syncthreads();
  for (int block = static_cast<int>(threadIdx.x); block < cloud.survey_blocks; block += kPackThreads)
    atomicMin(&first_not_finite, cloud.first_not_finite[block]);
  __syncthreads();
  if (threadIdx.x == 0) cloud.findings->first_not_finite = first_not_finite;
}

template <class T, class Source>
__global__ void __launch_bounds__(kPackThreads) pack_points_kernel(Source const source) {
  Slice<CloudPair> const slice = slice_of(source);
  CloudArguments const& cloud = slice.arguments.cloud[blockIdx.y];
  start_next_kernel();
  wait_for_previous_kernel();
  int const block = slice.block, warp = static_cast<int>(threadIdx.x) / 32;
  int const row = block * kPackRows + warp, lane = static_cast<int>(threadIdx.x) % 32;
  if (block * kPackRows >= cloud.packed.padded_size) return;
  T* const out =
      static_cast<T*>(const_cast<void*>(cloud.packed.points)) + static_cast<std::int64_t>(row) * cloud.packed.stride;
  double square = 0, rounded_square = 0, label_square = 0, largest = 0, leaning = 0, constant = 0;
  for (int k = lane; k < cloud.packed.stride; k += 32) {
    T rounded = 0;
    if (row < cloud.size && k < cloud.packed.dimension) {
      double const own = cloud.centre[k], other = cloud.other_centre[k];
      double const value = load_element(cloud.input, row * cloud.input.stride + k) - own;
      rounded = static_cast<T>(value);
      bool const of_point = k < cloud.dimension, invariant = of_point && cloud.square != 0;
      leaning += value * cloud.product * (invariant ? other - own : other);
      constant += invariant ? cloud.square * (own - other) * (own - other) : cloud.product * own * other;
      if (of_point) {
        square += value * value;
        rounded_square += static_cast<double>(rounded) * static_cast<double>(rounded);
      } else {
        label_square += static_cast<double>(rounded) * static_cast<double>(rounded);
      }
    }
    out[k] = rounded;
    largest = fmax(largest, fabs(static_cast<double>(rounded)));
  }
  square = warp_sum(square);
  rounded_square = warp_sum(rounded_square);
  label_square = warp_sum(label_square);
  leaning = warp_sum(leaning);
  constant = warp_sum(constant);
  largest = warp_max(largest);
  if (row < cloud.size && lane == 0)
    cloud.norm[row] = cloud.norm_factor * rounded_square + cloud.label_norm_factor * label_square;
  if (!cloud.row_findings) return;

  __shared__ RowFindings found[kPackRows];
  if (lane == 0) {
    double weight = 0;
    if (row < cloud.size) {
      cloud.shift[row] = leaning + constant / 2;
      weight = (cloud.weight ? cloud.weight[row] : 1.0) / cloud.total;
    }
    found[warp] = {rounded_square, weight > 0 ? rounded_square : 0, largest, weight * (cloud.square * square),
                   weight * leaning};
    if (row == 0) cloud.findings->constant = constant;
  }
  __syncthreads();
  if (threadIdx.x > 0) return;
  RowFindings total = found[0];
  for (int w = 1; w < kPackRows; ++w) {
    total.largest_squared_norm = fmax(total.largest_squared_norm, found[w].largest_squared_norm);
    total.largest_squared_norm_of_mass =
        fmax(total.largest_squared_norm_of_mass, found[w].largest_squared_norm_of_mass);
    total.largest_coordinate = fmax(total.largest_coordinate, found[w].largest_coordinate);
    total.mean_square += found[w].mean_square;
    total.mean_lean += found[w].mean_lean;
  }
  cloud.row_findings[block] = total;
}

/// Grid: (1, clouds).
template <class Source>
__global__ void __launch_bounds__(kPackThreads) measure_points_kernel(Source const source) {
  Slice<CloudPair> const slice = slice_of(source);
  CloudArguments const& cloud = slice.arguments.cloud[blockIdx.y];
  start_next_kernel();
  wait_for_previous_kernel();
  int const count = (cloud.packed.padded_size - 1) / kPackRows + 1;
  double square = 0, square_of_mass = 0, largest = 0, mean_square = 0, mean_lean = 0;
  for (int block = static_cast<int>(threadIdx.x); block < count; block += kPackThreads) {
    RowFindings const& found = cloud.row_findings[block];
    square = fmax(square, found.largest_squared_norm);
    square_of_mass = fmax(square_of_mass, found.largest_squared_norm_of_mass);
    largest = fmax(largest, found.largest_coordinate);
    mean_square += found.mean_square;
    mean_lean += found.mean_lean;
  }
  __shared__ double squares[kPackRows], squares_of_mass[kPackRows], coordinates[kPackRows];
  square = warp_max(square);
  square_of_mass = warp_max(square_of_mass);
  largest = warp_max(largest);
  if (threadIdx.x % 32 == 0) {
    squares[threadIdx.x / 32] = square;
    squares_of_mass[threadIdx.x / 32] = square_of_mass;
    coordinates[threadIdx.x / 32] = largest;
  }
  mean_square = block_sum<kPackThreads>(mean_square);
  __syncthreads();  // block_sum() uses the same memory again.
  mean_lean = block_sum<kPackThreads>(mean_lean);
  if (threadIdx.x > 0) return;
  for (int w = 1; w < kPackRows; ++w) {
    square = fmax(square, squares[w]);
    square_of_mass = fmax(square_of_mass, squares_of_mass[w]);
    largest = fmax(largest, coordinates[w]);
  }
  cloud.findings->largest_squared_norm = square;
  cloud.findings->largest_squared_norm_of_mass = square_of_mass;
  cloud.findings->half_scale = half_scale(largest);
  cloud.findings->mean_square = mean_square;
  cloud.findings->mean_lean = mean_lean;
}

template <class Source>
__global__ void __launch_bounds__(kPackThreads) split_points_kernel(Source const source) {
  Slice<CloudPair> const slice = slice_of(source);
  CloudArguments const& cloud = slice.arguments.cloud[blockIdx.y];
  start_next_kernel();
  wait_for_previous_kernel();
  Operand const& packed = cloud.packed;
  int const row = slice.block * kPackRows + static_cast<int>(threadIdx.x) / 32;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= packed.padded_size) return;
  float const* const from = static_cast<float const*>(packed.points) + static_cast<std::int64_t>(row) * packed.stride;
  std::int64_t const offset = static_cast<std::int64_t>(row) * packed.half_stride;
  __half* const high_out = static_cast<__half*>(const_cast<void*>(packed.high)) + offset;
  __half* const low_out = static_cast<__half*>(const_cast<void*>(packed.low)) + offset;
  double const scale = cloud.findings->half_scale;
  double square = 0;
  for (int k = lane; k < packed.half_stride; k += 32) {
    float const value = k < packed.stride ? static_cast<float>(scale * static_cast<double>(from[k])) : 0.0f;
    __half const high = __float2half_rn(value);
    __half const low = __float2half_rn(value - __half2float(high));
    high_out[k] = high;
    low_out[k] = low;
    double const kept = static_cast<double>(__half2float(high)) + static_cast<double>(__half2float(low));
    if (k < cloud.dimension) square += kept * kept;
  }
  square = warp_sum(square);
  if (lane == 0 && row < cloud.size) cloud.norm[row] = cloud.norm_factor * (square / scale / scale);
}

/// A thread takes 16 columns of a row; logit_position() stays within them.
__global__ void __launch_bounds__(kPackThreads) order_logits_kernel(float* const logits, std::int64_t groups) {
  std::int64_t const group = static_cast<std::int64_t>(blockIdx.x) * kPackThreads + threadIdx.x;
  if (group >= groups) return;
  float4* const at = reinterpret_cast<float4*>(logits) + 4 * group;
  float4 const read[4] = {at[0], at[1], at[2], at[3]};
  // Vector q has columns 2 q, 2 q + 1, 2 q + 8 and 2 q + 9.
  at[0] = make_float4(read[0].x, read[0].y, read[1].x, read[1].y);
  at[1] = make_float4(read[2].x, read[2].y, read[3].x, read[3].y);
  at[2] = make_float4(read[0].z, read[0].w, read[1].z, read[1].w);
  at[3] = make_float4(read[2].z, read[2].w, read[3].z, read[3].w);
}

/// Changes lean and constant for a new centre of the other side.
template <class T>
__global__ void __launch_bounds__(kPackThreads) move_gauge_kernel(GaugeArguments const arguments) {
  int const row = static_cast<int>(blockIdx.x) * kPackRows + static_cast<int>(threadIdx.x) / 32;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= arguments.size) return;
  T const* const from =
      static_cast<T const*>(arguments.points.points) + static_cast<std::int64_t>(row) * arguments.points.stride;
  double sum = 0;
  for (int k = lane; k < arguments.points.dimension; k += 32) {
    double const own = arguments.centre[k], before = arguments.before[k], after = arguments.after[k];
    sum += (after - before) * arguments.product * static_cast<double>(from[k]);
    // Differences of centres keep their digits even if the clouds are far from the origin.
    sum += (after - before) / 2 *
           (arguments.square != 0 && k < arguments.dimension ? arguments.square * ((before - own) + (after - own))
                                                             : arguments.product * own);
  }
  sum = warp_sum(sum);
  if (lane == 0) arguments.shift_out[row] = arguments.shift_in[row] + sum;
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
