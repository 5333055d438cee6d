// Work on points before and after the passes of a sweep. O(n) each; all in float64.
//
//   Logits   h_j = log2 b_j + (g'_j - norm_j) log2(e) / eps
//            In float h_j is rounded, with a factor beta_j = 2^(h_j - float(h_j)) beside it. The rounding error, which
//            a whole column shares, then stays out of the marginals.
//   Softmin  f+_i = norm_i - eps ln2 (M + log2 sum)
//            The blocks that share a row leave partial sums, which are joined in order.
//   Update   f_i + omega_i (f*_i - f_i), or the mean of f_i and f*_i when symmetric (entropic/update_rule.hpp). f* is
//            the best value under the penalty of the side; without a penalty f* = f+.
//   Translation  f + t and g - t before a sweep with a penalty (entropic/update_rule.hpp)
//            One kernel leaves sums of 128 points each. The next joins them in every block and moves the potentials.
//
// The logits leave out the constants of the potentials (SweepParameters), because float could not hold them beside the
// rest; f+ subtracts them.
#include "cuda/sweep/update.hpp"

#include <algorithm>

#include "cuda/device/numerics.cuh"
#include "cuda/device/points.cuh"
#include "cuda/device/source.cuh"
#include "cuda/device/sums.cuh"
#include "cuda/sweep/potential.cuh"

namespace monge::cuda {
namespace {

template <class Source>
__global__ void __launch_bounds__(kVectorThreads) log_weights_kernel(Source const source) {
  auto const [arguments, block, count] = slice_of(source);
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
  auto const [arguments, block, count] = slice_of(source);
  int const i = block * kVectorThreads + static_cast<int>(threadIdx.x);
  int const side = static_cast<int>(blockIdx.y);
  LogitArguments::OfSide const& of = arguments.side[side];
  SweepParameters const& parameters = arguments.value;
  wait_for_previous_kernel();
  // Not earlier: passes and updates load points, norms and weights before their own wait, and the kernel before this
  // one may still pack them.
  start_next_kernel();
  if (i == 0 && side == 0) *arguments.parameters = parameters;
  if (!of.arrays.logits || i >= of.points.padded_size) return;
  bool const counts = i < of.points.size && of.points.weight[i] > 0;
  double const exponent =
      counts ? (of.potential[i] - of.points.norm[i] - parameters.constant[side]) * parameters.log2e_over_eps : 0.0;
  store_logit<T>(of.arrays, i, counts, counts ? of.points.log_weight[i] + exponent : 0.0);
}

template <class T, class Source>
__global__ void __launch_bounds__(kVectorThreads) update_potential_kernel(Source const source) {
  auto const [arguments, block, count] = slice_of(source);
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

/// The smallest value of the threads of a block, returned to all of them.
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

/// The sums of the threads of a block, which share `least`; only thread 0 gets the totals.
__device__ __forceinline__ LogMeanSums block_total(LogMeanSums sums) {
  sums.excess = block_sum<kVectorThreads>(sums.excess);
  __syncthreads();  // block_sum() uses the same memory again.
  sums.sum = block_sum<kVectorThreads>(sums.sum);
  return sums;
}

/// Sums for the translation (TranslationArguments), one LogMeanSums for each block. Grid: (blocks of points, sides).
template <class Source>
__global__ void __launch_bounds__(kVectorThreads) log_mean_parts_kernel(Source const source) {
  Slice<TranslationArguments> const slice = slice_of(source);
  int const side = static_cast<int>(blockIdx.y), i = slice.block * kVectorThreads + static_cast<int>(threadIdx.x);
  TranslationArguments::OfSide const& of = slice.arguments.side[side];
  start_next_kernel();
  wait_for_previous_kernel();
  if (isinf(of.points.penalty) || slice.block * kVectorThreads >= of.points.size) return;
  double const weight = i < of.points.size ? of.points.weight[i] : 0.0;
  double const potential = weight > 0 ? of.potential[i] + of.points.shift[i] : std::numeric_limits<double>::infinity();
  LogMeanSums sums{block_min(potential)};
  if (weight > 0) sums.add(weight, potential, of.points.penalty);
  sums = block_total(sums);
  if (threadIdx.x == 0) of.parts[slice.block] = sums;
}

/// Joins the parts of a side, for all threads of the block.
__device__ __forceinline__ LogMean log_mean(TranslationArguments::OfSide const& of) {
  if (isinf(of.points.penalty)) return {};
  __shared__ LogMean result;
  int const parts = (of.points.size - 1) / kVectorThreads + 1, thread = static_cast<int>(threadIdx.x);
  double least = std::numeric_limits<double>::infinity();
  for (int k = thread; k < parts; k += kVectorThreads) least = fmin(least, of.parts[k].least);
  LogMeanSums sums{block_min(least)};
  for (int k = thread; k < parts; k += kVectorThreads) sums.join(of.parts[k], of.points.penalty);
  sums = block_total(sums);
  if (thread == 0) result = sums.over(of.total);
  __syncthreads();
  LogMean const found = result;
  __syncthreads();  // The next call may write `result`.
  return found;
}

/// Translates both potentials. Each block joins all parts itself, in the same order, then moves its points. Grid:
/// (blocks of points, sides).
template <class Source>
__global__ void __launch_bounds__(kVectorThreads) translate_kernel(Source const source) {
  Slice<TranslationArguments> const slice = slice_of(source);
  TranslationArguments const& arguments = slice.arguments;
  int const side = static_cast<int>(blockIdx.y), i = slice.block * kVectorThreads + static_cast<int>(threadIdx.x);
  auto const& [a, b] = arguments.side;
  start_next_kernel();
  wait_for_previous_kernel();
  LogMean const of_a = log_mean(a), of_b = log_mean(b);
  double const t = best_translation(a.points.penalty, b.points.penalty, arguments.log_mass_ratio, of_a, of_b);
  double const move = side == 0 ? t : -t;
  if (i < arguments.side[side].points.size) arguments.side[side].potential[i] += move;
  if (i == 0) arguments.constants[side] = arguments.parameters->constant[side] += move;
}

struct SoftminArguments {
  SumArguments sums;
  SoftminValues out;
};
template <class T>
struct SoftminRow {
  SoftminArguments arguments;

  __device__ void operator()(int i) const {
    auto const& [sums, out] = arguments;
    T reference;
    double sum;
    join_slots<T>(sums, i, reference, sum);
    out.plus[i] = softmin_value(sums.points.norm[i], *sums.parameters, sums.side, reference, sum);
    if (out.reference == nullptr) return;
    out.reference[i] = static_cast<double>(reference);
    out.sum[i] = sum;
  }
};

}  // namespace

void log_weights(LogWeightArguments const& arguments, Queue const& queue) {
  queue.launch(Kernel<LogWeightArguments>{log_weights_kernel, log_weights_kernel},
               {vector_blocks(arguments.size), kVectorThreads}, arguments);
}

void make_logits(LogitArguments const& arguments, Queue const& queue) {
  auto const blocks = [](LogitArguments::OfSide const& side) {
    return side.arrays.logits ? vector_blocks(side.points.padded_size) : 0;
  };
  auto const& [rows, columns] = arguments.side;
  DataType const scalar = (rows.arrays.logits ? rows : columns).points.scalar;
  using Logit = Kernel<LogitArguments>;
  queue.launch(scalar == DataType::float32 ? Logit{make_logits_kernel<float>, make_logits_kernel<float>}
                                           : Logit{make_logits_kernel<double>, make_logits_kernel<double>},
               {.blocks = std::max(blocks(rows), blocks(columns)), .threads = kVectorThreads, .rows = 2}, arguments);
}

int error_parts(int size) {
  return vector_blocks(size);
}

void update_potential(UpdateArguments const& arguments, Queue const& queue) {
  using Update = Kernel<UpdateArguments>;
  queue.launch(arguments.sums.points.scalar == DataType::float32
                   ? Update{update_potential_kernel<float>, update_potential_kernel<float>}
                   : Update{update_potential_kernel<double>, update_potential_kernel<double>},
               {vector_blocks(arguments.sums.points.size), kVectorThreads}, arguments);
}

void translate(TranslationArguments const& arguments, Queue const& queue) {
  using Translation = Kernel<TranslationArguments>;
  auto const& [rows, columns] = arguments.side;
  LaunchShape const shape{
      .blocks = vector_blocks(std::max(rows.points.size, columns.points.size)), .threads = kVectorThreads, .rows = 2};
  queue.launch(Translation{log_mean_parts_kernel, log_mean_parts_kernel}, shape, arguments);
  queue.launch(Translation{translate_kernel, translate_kernel}, shape, arguments);
}

void softmin_values(SumArguments const& sums, SoftminValues const& out, cudaStream_t stream) {
  for_each_point<SoftminRow>(sums.points.scalar, sums.points.size, stream, SoftminArguments{sums, out});
}

void choose_idle(PackedSide const& points, double const* potential, double const* plus,
                 SweepParameters const* parameters, double* out, cudaStream_t stream) {
  for_each_point(points.size, stream, [=] __device__(int i) {
    UpdateRule const rule{parameters->eps, points.penalty};
    out[i] = points.weight[i] > 0 ? potential[i] : rule.best(plus[i], points.shift[i]);
  });
}

}  // namespace monge::cuda
