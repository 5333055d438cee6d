// The survey of costs: is every number valid, has every point of positive weight a partner, and what are the smallest
// and the largest cost and the means?
//
// The costs are those of a matrix or of points (Costs below).
//
// Tiling: a block of 256 threads takes 64 lines and 1024 places, each thread 4 places. It leaves one partial survey
//   and, if wanted, partial sums of its lines and places. It marks points that have a partner, in a byte for each
//   point. One more block joins the surveys. Several ranks share the blocks of lines and gather a record of each rank.
// Traffic: the costs once.
// Numerics: float64, sums in a fixed order; only integer minima are atomic.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/device/source.cuh"
#include "cuda/geometry/cost_survey.hpp"
#include "cuda/geometry/regularized_matrix.cuh"
#include "regularized/regularized_costs.hpp"

namespace monge::cuda {

inline constexpr int kSurveyThreads = 256;
inline constexpr int kSurveyWarps = kSurveyThreads / 32;
inline constexpr int kSurveyLines = 64;
inline constexpr int kSurveyPlaces = 4 * kSurveyThreads;

/// Findings of one block.
struct SurveyPart {
  double least, least_with_mass, largest, cost_sum, weight_sum, forbidden;
};

/// The findings of each rank lie together, the records of all ranks one behind the other. A record has the parts of the
/// rank's blocks, the number of its first bad pair, and a byte for each of its lines, then for each place: whether the
/// point has a partner among the pairs of the rank.
struct SurveyRecords {
  unsigned char* data;
  int rank, ranks;
  int lines;         // Lines of each rank, in whole blocks of kSurveyLines; the last ranks may have fewer.
  int parts;         // A part for each block of a rank.
  std::int64_t all;  // Bytes of a record.

  __host__ __device__ SurveyPart* parts_of(int rank) const { return reinterpret_cast<SurveyPart*>(data + rank * all); }
  __host__ __device__ unsigned long long* first_bad(int rank) const {
    return reinterpret_cast<unsigned long long*>(parts_of(rank) + parts);
  }
  __host__ __device__ unsigned char* line_partner(int rank) const {
    return reinterpret_cast<unsigned char*>(first_bad(rank) + 1);
  }
  __host__ __device__ unsigned char* place_partner(int rank) const { return line_partner(rank) + lines; }
};

/// Lines of memory are rows or, if costs are transposed, columns; places are the points of the other side.
struct CostSurveyArguments {
  RegularizedMatrix matrix;
  int lines, places;
  int blocks[2];  // Blocks of lines and of places.
  bool of_support;
  double most;
  double const* line_weight;
  double const* place_weight;
  SurveyRecords records;
  PointSums* line_sums;   // [blocks of places][lines], and
  PointSums* place_sums;  // [blocks of lines][places]; null: not wanted.
  PointSums* sums;
  double* shift;
  CostSurvey* result;
};

/// Costs of a matrix of numbers S.
template <class S>
struct MatrixCostsOf {
  static __device__ __forceinline__ double at(RegularizedMatrix const& matrix, int line, int place) {
    return static_cast<double>(static_cast<S const*>(matrix.cost.data)[line * matrix.cost.stride + place]);
  }
};
struct PointCostsOf {
  static __device__ __forceinline__ double at(RegularizedMatrix const& matrix, int line, int place) {
    return PointPairs::of_points(matrix, line, place);
  }
};

template <class Source>
__global__ void __launch_bounds__(kSurveyThreads) start_survey_kernel(Source const source) {
  Slice<CostSurveyArguments> const slice = slice_of(source);
  CostSurveyArguments const& arguments = slice.arguments;
  start_next_kernel();
  wait_for_previous_kernel();
  SurveyRecords const& records = arguments.records;
  int const i = slice.block * kSurveyThreads + static_cast<int>(threadIdx.x);
  if (i < records.lines + arguments.places) records.line_partner(records.rank)[i] = 0;
  if (i > 0) return;
  *records.first_bad(records.rank) = CostSurvey::kNone;
  arguments.result->first_lonely[0] = arguments.result->first_lonely[1] = CostSurvey::kNobody;
}

/// Joins the findings of a warp's lanes, for all of them, in a fixed order.
__device__ __forceinline__ SurveyPart warp_survey(SurveyPart part) {
  return {-warp_max(-part.least),  -warp_max(-part.least_with_mass), warp_max(part.largest),
          warp_sum(part.cost_sum), warp_sum(part.weight_sum),        warp_sum(part.forbidden)};
}

/// Joins the findings of a block's threads, for thread 0.
template <int kThreads>
__device__ __forceinline__ SurveyPart block_survey(SurveyPart part) {
  __shared__ SurveyPart parts[kThreads / 32];
  part = warp_survey(part);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) {
      part.least = fmin(part.least, parts[w].least);
      part.least_with_mass = fmin(part.least_with_mass, parts[w].least_with_mass);
      part.largest = fmax(part.largest, parts[w].largest);
      part.cost_sum += parts[w].cost_sum;
      part.weight_sum += parts[w].weight_sum;
      part.forbidden += parts[w].forbidden;
    }
  }
  return part;
}

/// Grid: blocks of places times the rank's blocks of lines.
template <class Costs, class Source>
__global__ void __launch_bounds__(kSurveyThreads) survey_costs_kernel(Source const source) {
  __shared__ PointSums warp_sums[kSurveyWarps][kSurveyLines];
  Slice<CostSurveyArguments> const slice = slice_of(source);
  CostSurveyArguments const& arguments = slice.arguments;
  RegularizedMatrix const& matrix = arguments.matrix;
  int const thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  SurveyRecords const& records = arguments.records;
  int const line_block = records.rank * (records.lines / kSurveyLines) + slice.block / arguments.blocks[1];
  int const place_block = slice.block % arguments.blocks[1];
  int const first_place = place_block * kSurveyPlaces + thread;
  int const first_line = line_block * kSurveyLines, end = min(first_line + kSurveyLines, arguments.lines);
  bool const transposed = matrix.cost.transposed, of_support = arguments.of_support;
  unsigned char* const line_partner = records.line_partner(records.rank);
  unsigned char* const place_partner = records.place_partner(records.rank);
  start_next_kernel();
  wait_for_previous_kernel();
  auto const counted = [&](double weight) { return of_support ? static_cast<double>(weight > 0) : weight; };
  double weight[4];
  PointSums of_place[4] = {};
  bool partnered[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int const place = first_place + k * kSurveyThreads;
    weight[k] = place < arguments.places ? counted(arguments.place_weight[place]) : 0.0;
  }
  SurveyPart part{INFINITY, INFINITY, -INFINITY, 0, 0, 0};
  for (int line = first_line; line < end; ++line) {
    double const mine = counted(arguments.line_weight[line]);
    PointSums of_line{};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      int const place = first_place + k * kSurveyThreads;
      if (place >= arguments.places) continue;
      int const row = transposed ? place : line, column = transposed ? line : place;
      double const cost = Costs::at(matrix, line, place);
      double const mask = matrix.mask.data ? mask_at(matrix, row, column) : 1.0;
      double const l1_weight = matrix.l1_weights.data ? l1_weight_at(matrix, row, column) : 0.0;
      if (!is_cost(cost) || !is_l1_weight(l1_weight) || !is_mask(mask)) {
        atomicMin(records.first_bad(records.rank),
                  static_cast<unsigned long long>(row) * static_cast<unsigned long long>(matrix.columns) +
                      static_cast<unsigned long long>(column));
        continue;
      }
      double const penalised = cost + matrix.l1 * l1_weight;
      if (mask == 0 || isinf(cost) || penalised > arguments.most) {
        part.forbidden += mine * weight[k];
        continue;
      }
      part.least = fmin(part.least, cost);
      if (mine > 0 && weight[k] > 0) {
        part.least_with_mass = fmin(part.least_with_mass, cost);
        part.largest = fmax(part.largest, penalised);
      }
      of_line.cost += weight[k] * cost;
      of_line.weight += weight[k];
      of_place[k].cost += mine * cost;
      of_place[k].weight += mine;
      partnered[k] |= mine > 0;
    }
    part.cost_sum += mine * of_line.cost;
    part.weight_sum += mine * of_line.weight;
    if (__any_sync(0xffffffffu, of_line.weight > 0) && lane == 0) line_partner[line - records.rank * records.lines] = 1;
    if (!arguments.sums) continue;
    of_line = {warp_sum(of_line.cost), warp_sum(of_line.weight)};
    if (lane == 0) warp_sums[thread / 32][line - first_line] = of_line;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    int const place = first_place + k * kSurveyThreads;
    if (partnered[k]) place_partner[place] = 1;
    if (arguments.sums && place < arguments.places)
      arguments.place_sums[static_cast<std::int64_t>(line_block) * arguments.places + place] = of_place[k];
  }
  part = block_survey<kSurveyThreads>(part);  // Ends with a barrier.
  if (thread == 0) records.parts_of(records.rank)[slice.block] = part;
  if (!arguments.sums || thread >= end - first_line) return;
  PointSums of_line{};
  for (int w = 0; w < kSurveyWarps; ++w) {
    of_line.cost += warp_sums[w][thread].cost;
    of_line.weight += warp_sums[w][thread].weight;
  }
  arguments.line_sums[static_cast<std::int64_t>(place_block) * arguments.lines + first_line + thread] = of_line;
}

/// One thread for each line, then for each place.
template <class Source>
__global__ void __launch_bounds__(kSurveyThreads) join_point_sums_kernel(Source const source) {
  Slice<CostSurveyArguments> const slice = slice_of(source);
  CostSurveyArguments const& arguments = slice.arguments;
  start_next_kernel();
  wait_for_previous_kernel();
  int const i = slice.block * kSurveyThreads + static_cast<int>(threadIdx.x);
  if (i >= arguments.lines + arguments.places) return;
  bool const is_line = i < arguments.lines;
  PointSums const* const parts = is_line ? arguments.line_sums + i : arguments.place_sums + (i - arguments.lines);
  PointSums sum{};
  for (int block = 0; block < arguments.blocks[is_line ? 1 : 0]; ++block) {
    PointSums const part = parts[static_cast<std::int64_t>(block) * (is_line ? arguments.lines : arguments.places)];
    sum.cost += part.cost;
    sum.weight += part.weight;
  }
  arguments.sums[i] = sum;
}

/// One block: joins the parts and finds points of positive weight without a partner.
template <class Source>
__global__ void __launch_bounds__(kSurveyThreads) join_survey_kernel(Source const source) {
  Slice<CostSurveyArguments> const slice = slice_of(source);
  CostSurveyArguments const& arguments = slice.arguments;
  SurveyRecords const& records = arguments.records;
  CostSurvey& result = *arguments.result;
  __shared__ double least;
  int const thread = static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  SurveyPart part{INFINITY, INFINITY, -INFINITY, 0, 0, 0};
  for (int block = thread; block < arguments.blocks[0] * arguments.blocks[1]; block += kSurveyThreads) {
    SurveyPart const other = records.parts_of(block / records.parts)[block % records.parts];
    part.least = fmin(part.least, other.least);
    part.least_with_mass = fmin(part.least_with_mass, other.least_with_mass);
    part.largest = fmax(part.largest, other.largest);
    part.cost_sum += other.cost_sum;
    part.weight_sum += other.weight_sum;
    part.forbidden += other.forbidden;
  }
  part = block_survey<kSurveyThreads>(part);
  if (thread == 0) {
    result.first_bad = CostSurvey::kNone;
    for (int rank = 0; rank < records.ranks; ++rank) result.first_bad = min(result.first_bad, *records.first_bad(rank));
    result.least = least = part.least;
    result.least_with_mass = part.least_with_mass;
    result.largest = part.largest;
    result.cost_sum = part.cost_sum;
    result.weight_sum = part.weight_sum;
    result.forbidden = part.forbidden;
  }
  auto const look = [&](int size, double const* weight, auto const& has_partner, int& first) {
    for (int i = thread; i < size; i += kSurveyThreads) {
      if (weight[i] > 0 && !has_partner(i)) {
        atomicMin(&first, i);
        break;
      }
    }
  };
  auto const line_has_partner = [&](int line) {
    return records.line_partner(line / records.lines)[line % records.lines] != 0;
  };
  auto const place_has_partner = [&](int place) {
    for (int rank = 0; rank < records.ranks; ++rank) {
      if (records.place_partner(rank)[place]) return true;
    }
    return false;
  };
  int const line_side = arguments.matrix.cost.transposed ? 1 : 0;
  look(arguments.lines, arguments.line_weight, line_has_partner, result.first_lonely[line_side]);
  look(arguments.places, arguments.place_weight, place_has_partner, result.first_lonely[1 - line_side]);
  __syncthreads();
  if (!arguments.shift) return;
  int const longest = max(arguments.lines, arguments.places);
  for (int i = thread; i < longest; i += kSurveyThreads) arguments.shift[i] = least / 2;
}

}  // namespace monge::cuda
