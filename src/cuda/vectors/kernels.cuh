// Per-point work between the passes over pairs. O(n) each; all in float64.
//
//   Logits   h_j = log2 b_j + (g'_j - norm_j) log2(e) / eps
//            In float h_j is a rounded part and a factor beta_j = 2^(h_j - float(h_j)). So its rounding, which is the
//            same for a whole column, stays out of the marginals.
//   Softmin  f+_i = norm_i - eps ln2 (M + log2 sum)
//            The blocks that shared the row left partial sums; they are joined in their order.
//   Update   f_i + omega_i (f*_i - f_i), or the mean of f_i and f*_i when symmetric (entropic/update_rule.hpp), f* the
//            best value under the penalty of the side, f+ where there is none.
//   Translation  f + t and g - t before a sweep with a penalty (entropic/update_rule.hpp)
//            One kernel leaves sums of 128 points, the next joins them, in every block anew, and moves the potentials.
//   Frozen   L_i = lse_i, the log-sum-exp of a row from its f+
//            In float it is rounded, and a factor 2^(L_i - lse_i) stands beside it. A share of the row is then
//            2^(t_ij - L_i) beta_j times that factor.
//
// The constants of the potentials (SweepParameters) are left out of the logits, because float could not hold them
// beside the rest; f+ subtracts them.
#pragma once
#include <array>
#include <bit>

#include "cuda/device/numerics.cuh"
#include "cuda/device/potential.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/vectors/kernels.hpp"
#include "plan/weight_term.hpp"

namespace monge::cuda {

inline constexpr int kVectorThreads = 128;

template <class Source>
__global__ void __launch_bounds__(kVectorThreads) log_weights_kernel(Source const source) {
  auto const [arguments, block, count] = share_of(source);
  int const i = block * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (i >= arguments.size) return;
  double const weight = arguments.weight[i];
  arguments.log_weight[i] = weight > 0 ? log2(weight) : 0.0;
}

/// Grid: (blocks of points, sides).
template <class T, class Source>
__global__ void __launch_bounds__(kVectorThreads) make_logits_kernel(Source const source) {
  auto const [arguments, block, count] = share_of(source);
  int const i = block * kVectorThreads + static_cast<int>(threadIdx.x);
  int const side = static_cast<int>(blockIdx.y);
  LogitArguments::OfSide const& of = arguments.side[side];
  SweepParameters const& parameters = arguments.value;
  wait_for_previous_kernel();
  // Only now: passes and updates load points, norms and weights before their wait, and these may have been packed just
  // before.
  start_next_kernel();
  if (i == 0 && side == 0) *arguments.parameters = parameters;
  if (!of.arrays.logits || i >= of.points.padded_size) return;
  bool const real = i < of.points.size;
  double const slope =
      real ? (of.potential[i] - of.points.norm[i] - parameters.constant[side]) * parameters.log2e_over_eps : 0.0;
  bool const counts = real && of.points.weight[i] > 0;
  store_logit<T>(of.arrays, i, counts, counts ? of.points.log_weight[i] + slope : 0.0);
  if (of.slopes) of.slopes[i] = slope;
}

/// Joins the partial sums of a row, slot after slot, to one reference and sum. A few loads are under way at a time.
template <class T>
__device__ __forceinline__ void join_slots(SumArguments const& sums, int point, T& reference, double& sum) {
  constexpr int kBatch = 8;
  auto const* const partials = static_cast<PartialSum<T> const*>(sums.partials) + point;
  std::int64_t const stride = sums.points.padded_size;
  int const slots = sums.work.slots_of(point / sums.work.rows_per_block);
  reference = kEmptyLogit<T>;
  sum = 0;
  for (int first = 0; first < slots; first += kBatch) {
    PartialSum<T> part[kBatch];
    T next = reference;
#pragma unroll
    for (int s = 0; s < kBatch; ++s) {
      part[s] = first + s < slots ? partials[(first + s) * stride] : PartialSum<T>{kEmptyLogit<T>, T(0)};
      next = part[s].reference > next ? part[s].reference : next;
    }
    sum *= static_cast<double>(power_of_two(reference - next));
#pragma unroll
    for (int s = 0; s < kBatch; ++s) {
      sum += static_cast<double>(part[s].sum) * static_cast<double>(power_of_two(part[s].reference - next));
    }
    reference = next;
  }
}

template <class T, class Source>
__global__ void __launch_bounds__(kVectorThreads) update_potential_kernel(Source const source) {
  auto const [arguments, block, count] = share_of(source);
  int const i = block * kVectorThreads + static_cast<int>(threadIdx.x);
  PackedSide const& points = arguments.sums.points;
  start_next_kernel();
  ErrorSums error;
  if (i < points.size) {
    PointConstants const constants(points, i);
    wait_for_previous_kernel();
    SweepParameters const parameters = *arguments.sums.parameters;
    double const old = arguments.potential[i];
    T reference;
    double sum;
    join_slots<T>(arguments.sums, i, reference, sum);
    double const plus = softmin_value(constants.norm, parameters, arguments.sums.side, reference, sum);
    error = update_point<T>(arguments, parameters, constants, i, old, plus);
  }
  wait_for_previous_kernel();
  store_errors<kVectorThreads>(error, arguments.errors + 2 * block);
}

/// The smallest value of a block's threads, for each of them.
__device__ __forceinline__ double block_min(double value) {
  __shared__ double of_warp[kVectorThreads / 32];
  value = -warp_max(-value);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  double least = of_warp[0];
  for (int w = 1; w < kVectorThreads / 32; ++w) least = fmin(least, of_warp[w]);
  __syncthreads();
  return least;
}

/// The sums of a block's threads, which have the same `least`, for thread 0.
__device__ __forceinline__ LogMeanSums block_sum(LogMeanSums sums) {
  sums.excess = block_sum<kVectorThreads>(sums.excess);
  __syncthreads();  // It has one place for its parts.
  sums.sum = block_sum<kVectorThreads>(sums.sum);
  return sums;
}

/// See TranslationArguments. Grid: (blocks of points, sides); each block leaves the sums of its points.
template <class Source>
__global__ void __launch_bounds__(kVectorThreads) log_mean_parts_kernel(Source const source) {
  Share<TranslationArguments> const share = share_of(source);
  int const side = static_cast<int>(blockIdx.y), i = share.block * kVectorThreads + static_cast<int>(threadIdx.x);
  TranslationArguments::OfSide const& of = share.arguments.side[side];
  start_next_kernel();
  wait_for_previous_kernel();
  if (isinf(of.points.penalty) || share.block * kVectorThreads >= of.points.size) return;
  double const weight = i < of.points.size ? of.points.weight[i] : 0.0;
  double const potential = weight > 0 ? of.potential[i] + of.points.shift[i] : std::numeric_limits<double>::infinity();
  LogMeanSums sums{block_min(potential)};
  if (weight > 0) sums.add(weight, potential, of.points.penalty);
  sums = block_sum(sums);
  if (threadIdx.x == 0) of.parts[share.block] = sums;
}

/// The parts of a side joined, for all threads of the block.
__device__ __forceinline__ LogMean log_mean(TranslationArguments::OfSide const& of) {
  if (isinf(of.points.penalty)) return {};
  __shared__ LogMean result;
  int const parts = (of.points.size - 1) / kVectorThreads + 1, thread = static_cast<int>(threadIdx.x);
  double least = std::numeric_limits<double>::infinity();
  for (int k = thread; k < parts; k += kVectorThreads) least = fmin(least, of.parts[k].least);
  LogMeanSums sums{block_min(least)};
  for (int k = thread; k < parts; k += kVectorThreads) sums.join(of.parts[k], of.points.penalty);
  sums = block_sum(sums);
  if (thread == 0) result = sums.over(of.total);
  __syncthreads();
  LogMean const found = result;
  __syncthreads();  // The next call may write.
  return found;
}

/// See TranslationArguments. The same grid; each block joins all parts by itself, in the same order, and moves its
/// points.
template <class Source>
__global__ void __launch_bounds__(kVectorThreads) translate_kernel(Source const source) {
  Share<TranslationArguments> const share = share_of(source);
  TranslationArguments const& arguments = share.arguments;
  int const side = static_cast<int>(blockIdx.y), i = share.block * kVectorThreads + static_cast<int>(threadIdx.x);
  auto const& [a, b] = arguments.side;
  start_next_kernel();
  wait_for_previous_kernel();
  LogMean const of_a = log_mean(a), of_b = log_mean(b);
  double const t = best_translation(a.points.penalty, b.points.penalty, arguments.log_mass_ratio, of_a, of_b);
  double const move = side == 0 ? t : -t;
  if (i < arguments.side[side].points.size) arguments.side[side].potential[i] += move;
  if (i == 0) arguments.constants[side] = arguments.parameters->constant[side] += move;
}

/// See SoftminValues.
template <class T>
__global__ void __launch_bounds__(kVectorThreads)
    softmin_values_kernel(SumArguments const sums, SoftminValues const out) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  if (i >= sums.points.size) return;
  T reference;
  double sum;
  join_slots<T>(sums, i, reference, sum);
  out.plus[i] = softmin_value(sums.points.norm[i], *sums.parameters, sums.side, reference, sum);
  out.reference[i] = static_cast<double>(reference);
  out.sum[i] = sum;
}

/// The moments of a row, relative to the reference of its joined sum.
template <class T>
__device__ __forceinline__ double join_moments(SumArguments const& sums, int point, T reference) {
  auto const* const partials = static_cast<PartialSum<T> const*>(sums.partials) + point;
  double moment = 0;
  int const slots = sums.work.slots_of(point / sums.work.rows_per_block);
  for (int s = 0; s < slots; ++s) {
    std::int64_t const offset = static_cast<std::int64_t>(s) * sums.points.padded_size;
    moment += sums.moments[offset + point] *
              exp2(static_cast<double>(partials[offset].reference) - static_cast<double>(reference));
  }
  return moment;
}

inline constexpr int kSumThreads = 256;
inline constexpr int kMostSumParts = 64;

/// A point's part in the values of a plan.
struct PlanPoint {
  double marginal, cost;
};

/// From what passes left: a softmin of either side, that of the rows with moments.
template <class T>
struct SoftminPoints {
  using Arguments = PlanSumsArguments;
  static __device__ __forceinline__ PackedSide const& points(Arguments const& arguments, int side) {
    return arguments.sums[side].points;
  }
  static __device__ __forceinline__ PlanPoint point(Arguments const& arguments, int side, int i) {
    SumArguments const& sums = arguments.sums[side];
    SweepParameters const& parameters = *sums.parameters;
    double const weight = sums.points.weight[i], potential = arguments.potential[side][i];
    T reference;
    double sum;
    join_slots<T>(sums, i, reference, sum);
    double const plus = softmin_value(sums.points.norm[i], parameters, sums.side, reference, sum);
    double const marginal = weight > 0 ? weight * exp((potential - plus) / parameters.eps) : 0.0;
    if (marginal == 0) return {0, 0};
    if (!sums.moments) return {marginal, marginal * (potential - parameters.constant[side])};
    double const mean = join_moments<T>(sums, i, reference) / sum;
    return {marginal, marginal * (sums.points.norm[i] - parameters.eps_ln2 * mean)};
  }
};

/// From sums that lie in parts.
struct JoinedPoints {
  using Arguments = JoinedSumsArguments;
  static __device__ __forceinline__ PackedSide const& points(Arguments const& arguments, int side) {
    return arguments.points[side];
  }
  static __device__ __forceinline__ double total(PointParts const& parts, int i) {
    double sum = 0;
#pragma unroll 16
    for (int k = 0; k < parts.count; ++k) sum += parts.data[k * parts.stride + i];
    return sum;
  }
  static __device__ __forceinline__ PlanPoint point(Arguments const& arguments, int side, int i) {
    return {total(arguments.marginals[side], i), total(arguments.costs[side], i)};
  }
};

__host__ __device__ constexpr int sum_parts(int size) {
  int const full = (size - 1) / kSumThreads + 1;
  return full < kMostSumParts ? full : kMostSumParts;
}

/// A block sums a part of a side: each thread sums some points, and the threads are joined in their order.
template <class Points, class Source>
__global__ void __launch_bounds__(kSumThreads) sum_plan_kernel(Source const source) {
  using Numbers = std::array<double, sizeof(PlanSums) / sizeof(double)>;
  Share<typename Points::Arguments> const share = share_of(source);
  auto const& arguments = share.arguments;
  int const row_parts = sum_parts(Points::points(arguments, 0).size), thread = static_cast<int>(threadIdx.x);
  int const side = share.block < row_parts ? 0 : 1, part = side == 0 ? share.block : share.block - row_parts;
  PackedSide const& points = Points::points(arguments, side);
  double* const marginals = arguments.out.marginals.side[side];
  start_next_kernel();
  wait_for_previous_kernel();
  PlanSums mine;
  for (int i = part * kSumThreads + thread; i < points.size; i += sum_parts(points.size) * kSumThreads) {
    PlanPoint const point = Points::point(arguments, side, i);
    if (marginals) marginals[i] = point.marginal;
    mine.side.add(points.weight[i], point.marginal, arguments.potential[side][i], points.shift[i], points.penalty);
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
  arguments.out.parts[share.block] = mine;
}

/// See FreezeArguments.
template <class T>
__global__ void __launch_bounds__(kVectorThreads) freeze_rows_kernel(FreezeArguments const arguments) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  PackedSide const& points = arguments.points;
  if (i >= points.padded_size) return;
  T* const references = static_cast<T*>(arguments.references);
  if (i >= points.size) {
    references[i] = -kEmptyLogit<T>;  // Padding has no entries.
    return;
  }
  // The sum's logarithm is never rounded to double: 2^(L_i - lse_i) comes from its parts. As for logits, where a unit
  // of float exceeds 2 the references are noise already.
  double const weight = points.weight[i], plus = arguments.softmin.plus[i];
  double found, sum;
  if (arguments.softmin.sum) {
    found = arguments.softmin.reference[i];
    sum = arguments.softmin.sum[i];
  } else {
    SweepParameters const& parameters = *arguments.parameters;
    double const lse = (points.norm[i] - parameters.constant[1 - arguments.side] - plus) / parameters.eps_ln2;
    found = weight > 0 ? lse : -kEmptyLogit<double>;
    sum = 1;
  }
  T const reference = static_cast<T>(fmin(fmax(found + log2(sum), -1e30), 1e30));
  double const share = fmin(fmax(exp2(static_cast<double>(reference) - found) / sum, 0.5), 2.0);
  double const marginal = weight > 0 ? weight * exp((arguments.potential[i] - plus) / arguments.parameters->eps) : 0.0;
  references[i] = reference;
  arguments.share_factor[i] = share;
  arguments.plan_factor[i] = share * marginal;
  arguments.marginal[i] = marginal;
}

/// The power of two by which a vector is scaled, from the bits of its largest magnitude: products with float terms then
/// neither overflow nor vanish.
__device__ __forceinline__ double vector_scale(unsigned long long largest) {
  double const value = __longlong_as_double(static_cast<long long>(largest));
  return value > 0 && isfinite(value) ? ldexp(1.0, -ilogb(value)) : 1.0;
}

__global__ void __launch_bounds__(kVectorThreads)
    largest_kernel(int size, StridedView const v, unsigned long long* largest) {
  start_next_kernel();
  wait_for_previous_kernel();
  double mine = 0;
  for (int j = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x); j < size;
       j += static_cast<int>(gridDim.x) * kVectorThreads)
    mine = fmax(mine, fabs(load_element(v, j * v.stride)));
  mine = warp_max(mine);
  if (threadIdx.x % 32 == 0) atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(mine)));
}

/// factors_j = beta_j v_j, scaled: what a product is given in place of beta.
template <class T>
__global__ void __launch_bounds__(kVectorThreads)
    scale_factors_kernel(PackedSide const points, T const* beta, StridedView const v, unsigned long long const* largest,
                         T* factors) {
  int const j = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (j >= points.padded_size) return;
  bool const counts = j < points.size && points.weight[j] > 0;
  double const value = counts ? vector_scale(*largest) * load_element(v, j * v.stride) : 0.0;
  factors[j] = static_cast<T>((beta ? static_cast<double>(beta[j]) : 1.0) * value);
}

/// The sums of a product, times the factor of their row; see FinishArguments.
template <class T>
__global__ void __launch_bounds__(kVectorThreads) finish_product_kernel(FinishArguments const arguments) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (i == 0) *arguments.scale.next = 0;
  if (i >= arguments.sums.points.size) return;
  T reference;
  double sum;
  join_slots<T>(arguments.sums, i, reference, sum);
  double value = arguments.row_factor[i] * sum / vector_scale(*arguments.scale.largest);
  if (arguments.origin) value += (arguments.weight ? arguments.weight[i] : 1.0) * *arguments.origin;
  store_element(arguments.out, i * arguments.out.stride, value);
}

template <class T>
__global__ void __launch_bounds__(kVectorThreads) row_sums_kernel(SumArguments const sums, double* out) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (i >= sums.points.size) return;
  T reference;
  join_slots<T>(sums, i, reference, out[i]);
}

__global__ void __launch_bounds__(kVectorThreads)
    load_vector_kernel(StridedView const from, int size, int width, double const* shift, double* to) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  if (i >= size) return;
  double const value = from.data ? load_element(from, i / width * from.stride + i % width) : 0.0;
  to[i] = value - (shift ? shift[i] : 0.0);
}

__global__ void __launch_bounds__(kVectorThreads)
    store_vector_kernel(StridedView const to, int size, int width, double const* value, double const* shift) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  if (i < size) store_element(to, i / width * to.stride + i % width, shift ? value[i] + shift[i] : value[i]);
}

/// out_i = the sum of the terms, in their order.
template <class Source>
__global__ void __launch_bounds__(kVectorThreads) combine_kernel(Source const source) {
  auto const [arguments, block, count] = share_of(source);
  int const i = block * kVectorThreads + static_cast<int>(threadIdx.x);
  start_next_kernel();
  wait_for_previous_kernel();
  if (i >= arguments.size) return;
  double sum = 0;
  for (int k = 0; k < arguments.count; ++k) {
    CombineArguments::Term const& term = arguments.terms[k];
    double const value = term.times ? term.vector[i] * term.times[i / term.step] : term.vector[i];
    sum += term.factor * value;
  }
  arguments.out[i] = sum;
}

__global__ void __launch_bounds__(kVectorThreads) reciprocal_kernel(int size, double const* in, double* out) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  if (i < size) out[i] = in[i] == 0 ? 0.0 : 1 / in[i];
}

/// A warp for each row.
__global__ void __launch_bounds__(kVectorThreads)
    row_dots_kernel(int rows, int width, double const* first, double const* second, double* out) {
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const i = static_cast<int>(blockIdx.x) * (kVectorThreads / 32) + warp;
  if (i >= rows) return;
  std::int64_t const row = static_cast<std::int64_t>(i) * width;
  double sum = 0;
  for (int p = lane; p < width; p += 32) sum += first[row + p] * second[row + p];
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  if (lane == 0) out[i] = sum;
}

__global__ void __launch_bounds__(kVectorThreads) weight_terms_kernel(WeightTermArguments const arguments) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  if (i >= arguments.points.size) return;
  double const shift = arguments.shift[i];
  WeightTerm const term =
      weight_term(arguments.potential[i] + shift, arguments.plus[i] + shift, arguments.points.weight[i],
                  arguments.marginal[i], arguments.penalty, arguments.eps, arguments.other_mass);
  if (arguments.ratio) arguments.ratio[i] = term.ratio;
  if (arguments.wanted) arguments.wanted[i] = term.wanted;
  if (arguments.gradient) arguments.gradient[i] = term.gradient;
}

__global__ void __launch_bounds__(kVectorThreads) slopes_kernel(SlopeArguments const arguments) {
  int const k = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  if (k >= arguments.size) return;
  int const p = k % arguments.width;
  // The difference first: it is what distances are made of, wherever the clouds lie.
  double const far = arguments.other_centre[p], apart = arguments.centre[p] - far;
  double const own = load_element(arguments.points, k / arguments.width * arguments.points.stride + p);
  arguments.out[k] =
      arguments.curvature * own + arguments.curvature * apart + (arguments.curvature + arguments.product) * far;
}

/// Partial sums of several inner products: partials[k * gridDim.x + block]. Grid dot_parts(size).
__global__ void __launch_bounds__(kVectorThreads) dots_kernel(DotArguments const arguments) {
  for (int k = 0; k < arguments.count; ++k) {
    double sum = 0;
    for (int i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x); i < arguments.size;
         i += static_cast<int>(gridDim.x) * kVectorThreads)
      sum += arguments.first[k][i] * arguments.second[k][i];
    double const total = block_sum<kVectorThreads>(sum);
    if (threadIdx.x == 0) arguments.partials[k * gridDim.x + blockIdx.x] = total;
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kVectorThreads)
    choose_idle_kernel(PackedSide const points, double const* potential, double const* plus,
                       SweepParameters const* parameters, double* out) {
  int const i = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x);
  if (i >= points.size) return;
  UpdateRule const rule{parameters->eps, points.penalty};
  out[i] = points.weight[i] > 0 ? potential[i] : rule.best(plus[i], points.shift[i]);
}

}  // namespace monge::cuda
