// The survey of a cost matrix: is every cost one, has every point of weight a partner, which costs are the smallest and
// the largest, and what is their mean under the weights.
//
// Tiling: a block of 256 threads takes 64 lines and 1024 columns of the memory, each thread 4 columns. It leaves one
//   partial survey; points that have a partner are marked, a byte a point. A block of its own joins them.
// Traffic: the matrix once.
// Numerics: float64, sums in a fixed order; only integer minima are atomic.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/device/source.cuh"
#include "cuda/geometry/matrix_survey.hpp"

namespace monge::cuda {

inline constexpr int kSurveyThreads = 256;
inline constexpr int kSurveyLines = 64;
inline constexpr int kSurveyColumns = 4 * kSurveyThreads;

/// What one block saw.
struct SurveyPart {
  double least, largest, cost_sum, weight_sum;
};

/// The lines and columns are those of the memory.
struct MatrixSurveyArguments {
  StoredCosts costs;
  int blocks;  // Of the survey.
  double const* line_weight;
  double const* column_weight;
  SurveyPart* parts;              // One a block.
  unsigned char* line_partner;    // Whether a line has one;
  unsigned char* column_partner;  // a column; side by side.
  double* shift;
  MatrixSurvey* result;
};

template <class Source>
__global__ void __launch_bounds__(kSurveyThreads) start_survey_kernel(Source const source) {
  Share<MatrixSurveyArguments> const share = share_of(source);
  MatrixSurveyArguments const& arguments = share.arguments;
  start_next_kernel();
  wait_for_previous_kernel();
  int const i = share.block * kSurveyThreads + static_cast<int>(threadIdx.x);
  if (i < arguments.costs.lines() + arguments.costs.line_size()) arguments.line_partner[i] = 0;
  if (i > 0) return;
  arguments.result->first_bad = MatrixSurvey::kNone;
  arguments.result->first_lonely[0] = arguments.result->first_lonely[1] = MatrixSurvey::kNobody;
}

/// The survey of a warp's lanes, for all of them, in a fixed order.
__device__ __forceinline__ SurveyPart warp_survey(SurveyPart part) {
  return {-warp_max(-part.least), warp_max(part.largest), warp_sum(part.cost_sum), warp_sum(part.weight_sum)};
}

/// The survey of a block's threads, for thread 0.
template <int kThreads>
__device__ __forceinline__ SurveyPart block_survey(SurveyPart part) {
  __shared__ SurveyPart parts[kThreads / 32];
  part = warp_survey(part);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) {
      part.least = fmin(part.least, parts[w].least);
      part.largest = fmax(part.largest, parts[w].largest);
      part.cost_sum += parts[w].cost_sum;
      part.weight_sum += parts[w].weight_sum;
    }
  }
  return part;
}

/// Blocks of columns times blocks of lines.
template <class S, class Source>
__global__ void __launch_bounds__(kSurveyThreads) survey_matrix_kernel(Source const source) {
  Share<MatrixSurveyArguments> const share = share_of(source);
  MatrixSurveyArguments const& arguments = share.arguments;
  StoredCosts const& costs = arguments.costs;
  int const column_blocks = (costs.line_size() - 1) / kSurveyColumns + 1;
  int const first_column = share.block % column_blocks * kSurveyColumns + static_cast<int>(threadIdx.x);
  int const first_line = share.block / column_blocks * kSurveyLines;
  int const end = min(first_line + kSurveyLines, costs.lines());
  start_next_kernel();
  wait_for_previous_kernel();
  auto const* const data = static_cast<S const*>(costs.data);
  int const size = costs.line_size();
  double weight[4];
  bool partnered[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int const column = first_column + k * kSurveyThreads;
    weight[k] = column < size ? arguments.column_weight[column] : 0.0;
  }
  SurveyPart part{INFINITY, -INFINITY, 0, 0};
  for (int line = first_line; line < end; ++line) {
    double const mine = arguments.line_weight[line];
    double cost_sum = 0, weight_sum = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int const column = first_column + k * kSurveyThreads;
      if (column >= size) continue;
      double const cost = static_cast<double>(data[line * costs.stride + column]);
      if (isfinite(cost)) {
        part.least = fmin(part.least, cost);
        part.largest = fmax(part.largest, cost);
        cost_sum += weight[k] * cost;
        weight_sum += weight[k];
        partnered[k] |= mine > 0;
      } else if (!(cost > 0)) {
        unsigned long long const row = costs.transposed ? column : line, other = costs.transposed ? line : column;
        atomicMin(&arguments.result->first_bad, row * static_cast<unsigned long long>(costs.columns) + other);
      }
    }
    part.cost_sum += mine * cost_sum;
    part.weight_sum += mine * weight_sum;
    if (__any_sync(0xffffffffu, weight_sum > 0) && threadIdx.x % 32 == 0) arguments.line_partner[line] = 1;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (partnered[k]) arguments.column_partner[first_column + k * kSurveyThreads] = 1;
  }
  part = block_survey<kSurveyThreads>(part);
  if (threadIdx.x == 0) arguments.parts[share.block] = part;
}

/// One block: joins the parts and looks for points of weight without a partner.
template <class Source>
__global__ void __launch_bounds__(kSurveyThreads) join_matrix_survey_kernel(Source const source) {
  Share<MatrixSurveyArguments> const share = share_of(source);
  MatrixSurveyArguments const& arguments = share.arguments;
  StoredCosts const& costs = arguments.costs;
  MatrixSurvey& result = *arguments.result;
  __shared__ double least;
  int const thread = static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  SurveyPart part{INFINITY, -INFINITY, 0, 0};
  for (int block = thread; block < arguments.blocks; block += kSurveyThreads) {
    SurveyPart const other = arguments.parts[block];
    part.least = fmin(part.least, other.least);
    part.largest = fmax(part.largest, other.largest);
    part.cost_sum += other.cost_sum;
    part.weight_sum += other.weight_sum;
  }
  part = block_survey<kSurveyThreads>(part);
  if (thread == 0) {
    result.least = least = part.least;
    result.largest = part.largest;
    result.cost_sum = part.cost_sum;
    result.weight_sum = part.weight_sum;
  }
  auto const look = [&](int size, double const* weight, unsigned char const* partner, int& first) {
    for (int i = thread; i < size; i += kSurveyThreads) {
      if (weight[i] > 0 && !partner[i]) {
        atomicMin(&first, i);
        break;
      }
    }
  };
  look(costs.lines(), arguments.line_weight, arguments.line_partner, result.first_lonely[costs.transposed ? 1 : 0]);
  look(costs.line_size(), arguments.column_weight, arguments.column_partner,
       result.first_lonely[costs.transposed ? 0 : 1]);
  __syncthreads();
  for (int i = thread; i < costs.rows; i += kSurveyThreads) arguments.shift[i] = least;
}

}  // namespace monge::cuda
