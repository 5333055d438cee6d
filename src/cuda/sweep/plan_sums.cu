// Sums over points for the values of a plan. Each block sums one part of a side.
#include "cuda/sweep/plan_sums.hpp"

#include <array>
#include <bit>

#include "cuda/device/source.cuh"

namespace monge::cuda {
namespace {

inline constexpr int kSumThreads = 256;
inline constexpr int kMostSumParts = 64;

/// The terms of one point.
struct PlanPoint {
  double marginal, cost;
};

__device__ __forceinline__ double total(PointParts const& parts, int i) {
  double sum = 0;
#pragma unroll 16
  for (int k = 0; k < parts.count; ++k) sum += parts.data[k * parts.stride + i];
  return sum;
}

__device__ __forceinline__ PlanPoint point_of(JoinedSumsArguments const& arguments, int side, int i) {
  double const marginal = total(arguments.marginals[side], i), norm = arguments.points[side].norm[i];
  // An infinite marginal must not meet a norm of 0.
  return {marginal, total(arguments.costs[side], i) + (norm == 0 ? 0.0 : norm * marginal)};
}

__host__ __device__ constexpr int sum_parts(int size) {
  int const full = (size - 1) / kSumThreads + 1;
  return full < kMostSumParts ? full : kMostSumParts;
}

/// A block sums a part of a side. Each thread sums some points; the sums of the threads are joined in a fixed order.
template <class Source>
__global__ void __launch_bounds__(kSumThreads) sum_plan_kernel(Source const source) {
  using Numbers = std::array<double, sizeof(PlanSums) / sizeof(double)>;
  Slice<JoinedSumsArguments> const slice = slice_of(source);
  JoinedSumsArguments const& arguments = slice.arguments;
  int const row_parts = sum_parts(arguments.points[0].size), thread = static_cast<int>(threadIdx.x);
  int const side = slice.block < row_parts ? 0 : 1, part = side == 0 ? slice.block : slice.block - row_parts;
  PackedSide const& points = arguments.points[side];
  double* const marginals = arguments.out.marginals.side[side];
  start_next_kernel();
  wait_for_previous_kernel();
  PlanSums mine;
  for (int i = part * kSumThreads + thread; i < points.size; i += sum_parts(points.size) * kSumThreads) {
    PlanPoint const point = point_of(arguments, side, i);
    if (marginals) marginals[i] = point.marginal;
    double const left_out = arguments.left_out[side] ? arguments.left_out[side][i] : 0.0;
    double const lack = left_out + arguments.lack[side] * point.marginal;
    mine.side.add(points.weight[i], point.marginal, arguments.potential[side][i], points.shift[i], points.penalty,
                  lack);
    mine.left_out.add(lack);
    mine.costs.add(point.cost);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    Numbers other = std::bit_cast<Numbers>(mine);
    for (double& number : other) number = __shfl_down_sync(0xffffffffu, number, static_cast<unsigned>(distance));
    mine.add(std::bit_cast<PlanSums>(other));
  }
  __shared__ Numbers warps[kSumThreads / 32];
  if (thread % 32 == 0) warps[thread / 32] = std::bit_cast<Numbers>(mine);
  __syncthreads();
  if (thread > 0) return;
  for (int w = 1; w < kSumThreads / 32; ++w) mine.add(std::bit_cast<PlanSums>(warps[w]));
  arguments.out.parts[slice.block] = mine;
}

}  // namespace

int plan_sum_parts(int size) {
  return sum_parts(size);
}

void sum_plan(JoinedSumsArguments const& arguments, Queue const& queue) {
  int const parts = sum_parts(arguments.points[0].size) + sum_parts(arguments.points[1].size);
  queue.launch(Kernel<JoinedSumsArguments>{sum_plan_kernel, sum_plan_kernel}, {parts, kSumThreads}, arguments);
}

}  // namespace monge::cuda
