// Kernels on points for a plan with frozen potentials. O(n) each; all in float64.
//
//   Frozen   L_i = lse_i, the log-sum-exp of a row, from its f+
//            In float L_i is rounded, with a factor 2^(L_i - lse_i) beside it. A share of the row is this factor times
//            2^(t_ij - L_i) beta_j.
#include "cuda/plan/frozen.hpp"

#include <algorithm>

#include "cuda/device/points.cuh"
#include "cuda/device/strided.cuh"
#include "cuda/device/sums.cuh"
#include "plan/weight_term.hpp"

namespace monge::cuda {
namespace {

template <class T>
struct FreezeRow {
  FreezeArguments arguments;

  __device__ void operator()(int i) const {
    PackedSide const& points = arguments.points;
    T* const references = static_cast<T*>(arguments.references);
    if (i >= points.size) {
      references[i] = -kEmptyLogit<T>;  // Padding has no entries.
      return;
    }
    // 2^(L_i - lse_i) comes from reference and sum, so lse_i is never rounded to double. Where float numbers are more
    // than 2 apart, the references are noise already.
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
    double const marginal =
        weight > 0 ? weight * exp((arguments.potential[i] - plus) / arguments.parameters->eps) : 0.0;
    references[i] = reference;
    arguments.share_factor[i] = share;
    arguments.plan_factor[i] = share * marginal;
    arguments.marginal[i] = marginal;
  }
};

/// The power of two that scales a vector, from the bits of its largest magnitude. Products with float terms then
/// neither overflow nor vanish.
__device__ __forceinline__ double vector_scale(unsigned long long largest) {
  double const value = __longlong_as_double(static_cast<long long>(largest));
  return value > 0 && isfinite(value) ? ldexp(1.0, -ilogb(value)) : 1.0;
}

__global__ void __launch_bounds__(kVectorThreads)
    largest_kernel(PackedSide const points, StridedView const v, unsigned long long* largest) {
  start_next_kernel();
  wait_for_previous_kernel();
  double mine = 0;
  for (int j = static_cast<int>(blockIdx.x) * kVectorThreads + static_cast<int>(threadIdx.x); j < points.size;
       j += static_cast<int>(gridDim.x) * kVectorThreads)
    if (points.weight[j] > 0) mine = fmax(mine, fabs(load_element(v, j * v.stride)));
  mine = warp_max(mine);
  if (threadIdx.x % 32 == 0) atomicMax(largest, static_cast<unsigned long long>(__double_as_longlong(mine)));
}

struct FactorArguments {
  PackedSide points;
  void const* beta;
  StridedView v;
  unsigned long long const* largest;
  void* factors;
};
/// factors_j = beta_j v_j, scaled. A product reads them in place of beta.
template <class T>
struct ScaleFactor {
  FactorArguments arguments;

  __device__ void operator()(int j) const {
    auto const& [points, beta, v, largest, factors] = arguments;
    bool const counts = j < points.size && points.weight[j] > 0;
    double const value = counts ? vector_scale(*largest) * load_element(v, j * v.stride) : 0.0;
    static_cast<T*>(factors)[j] =
        static_cast<T>((beta ? static_cast<double>(static_cast<T const*>(beta)[j]) : 1.0) * value);
  }
};

/// Multiplies the sum of a product by the factor of its row.
template <class T>
struct FinishRow {
  FinishArguments arguments;

  __device__ void operator()(int i) const {
    if (i == 0) *arguments.scale.next = 0;
    T reference;
    double sum;
    join_slots<T>(arguments.sums, i, reference, sum);
    double value = arguments.row_factor[i] * sum / vector_scale(*arguments.scale.largest);
    if (arguments.origin) value += (arguments.weight ? arguments.weight[i] : 1.0) * *arguments.origin;
    store_element(arguments.out, i * arguments.out.stride, value);
  }
};

struct RowSumArguments {
  SumArguments sums;
  double* out;
};
template <class T>
struct RowSum {
  RowSumArguments arguments;

  __device__ void operator()(int i) const {
    T reference;
    join_slots<T>(arguments.sums, i, reference, arguments.out[i]);
  }
};

}  // namespace

void freeze_rows(FreezeArguments const& arguments, cudaStream_t stream) {
  for_each_point<FreezeRow>(arguments.points.scalar, arguments.points.padded_size, stream, arguments);
}

void scale_factors(PackedSide const& points, void const* beta, StridedView const& v, VectorScale const& scale,
                   void* factors, cudaStream_t stream) {
  constexpr int kMostBlocks = 128;
  launch_chained(largest_kernel, std::min(vector_blocks(points.size), kMostBlocks), kVectorThreads, 0, stream, points,
                 v, scale.largest);
  for_each_point<ScaleFactor>(points.scalar, points.padded_size, stream,
                              FactorArguments{points, beta, v, scale.largest, factors});
}

void finish_product(FinishArguments const& arguments, cudaStream_t stream) {
  for_each_point<FinishRow>(arguments.sums.points.scalar, arguments.sums.points.size, stream, arguments);
}

void row_sums(SumArguments const& sums, double* out, cudaStream_t stream) {
  for_each_point<RowSum>(sums.points.scalar, sums.points.size, stream, RowSumArguments{sums, out});
}

void weight_terms(WeightTermArguments const& arguments, cudaStream_t stream) {
  for_each_point(arguments.points.size, stream, [arguments] __device__(int i) {
    double const shift = arguments.shift[i];
    WeightTerm const term =
        weight_term(arguments.potential[i] + shift, arguments.plus[i] + shift, arguments.points.weight[i],
                    arguments.marginal[i], arguments.penalty, arguments.eps, arguments.other_mass);
    if (arguments.ratio) arguments.ratio[i] = term.ratio;
    if (arguments.wanted) arguments.wanted[i] = term.wanted;
    if (arguments.gradient) arguments.gradient[i] = term.gradient;
  });
}

void slopes(SlopeArguments const& arguments, cudaStream_t stream) {
  for_each_point(arguments.size, stream, [arguments] __device__(int k) {
    int const p = k % arguments.width;
    // The difference of the centres first: a common offset of the clouds then costs no digits.
    double const far = arguments.other_centre[p], apart = arguments.centre[p] - far;
    double const own = load_element(arguments.points, k / arguments.width * arguments.points.stride + p);
    arguments.out[k] =
        arguments.curvature * own + arguments.curvature * apart + (arguments.curvature + arguments.product) * far;
  });
}

void directions(DirectionArguments const& arguments, cudaStream_t stream) {
  for_each_point(arguments.size, stream, [arguments] __device__(int i) {
    double* const direction = arguments.direction + static_cast<std::int64_t>(i) * arguments.dimension;
    double length = 0;
    for (int k = 0; k < arguments.dimension; ++k) {
      direction[k] = arguments.own_centre[k] + load_element(arguments.directions, i * arguments.directions.stride + k);
      length += direction[k] * (arguments.centre[k] + load_element(arguments.points, i * arguments.points.stride + k));
    }
    arguments.inverse_length[i] = 1 / length;
  });
}

}  // namespace monge::cuda
