// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/pass/stripe_slopes.cpp"
#include "cpu/pass/simd_targets.hpp"
// foreach_target.h must come first.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "cpu/pass/score_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Weights below this number count as 0. They change no sum, and their products would be denormal numbers, which cost
// the processor a hundred cycles.
template <class T>
inline constexpr T kSmallestWeight = sizeof(T) == 4 ? T(0x1p-100) : T(0x1p-900);

// sums_k,r += weight * slope(x_rk - y_jk, r, v) for each coordinate k and the columns of one tile.
template <class T, class Slope>
HWY_INLINE void AddSlopes(StripeArgs<T> const& args, std::int64_t c, std::int64_t r0,
                          TileVectors<T, kTileRows<T>, kVectors<T>> const& weight, T* HWY_RESTRICT sums,
                          Slope const& slope) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kRows = kTileRows<T>;
  const std::int64_t dimension = args.source.columns->dimension;
  T const* HWY_RESTRICT panel = args.source.columns->panel(c / kPanel<T>);
  T const* HWY_RESTRICT x = args.row_scratch + r0 * dimension;
  for (std::int64_t k = 0; k < dimension; ++k) {
    hn::Vec<Tag<T>> y[kVectors<T>];
    HWY_UNROLL(32)
    for (int v = 0; v < kVectors<T>; ++v) y[v] = hn::Load(d, panel + k * kPanel<T> + v * kLanes);
    HWY_UNROLL(32)
    for (int r = 0; r < kRows; ++r) {
      auto const xr = hn::Set(d, x[k * kRows + r]);
      T* HWY_RESTRICT at = sums + (k * kRows + r) * kLanes;
      auto sum = hn::Load(d, at);
      HWY_UNROLL(32)
      for (int v = 0; v < kVectors<T>; ++v) sum = hn::MulAdd(weight[r][v], slope(hn::Sub(xr, y[v]), r, v), sum);
      hn::Store(sum, d, at);
    }
  }
}

template <class T>
void AverageSlopes(StripeArgs<T> const& args, T const* HWY_RESTRICT values, T* HWY_RESTRICT sums,
                   double* HWY_RESTRICT out) {
  using V = hn::Vec<Tag<T>>;
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kRows = kTileRows<T>, kVecs = kVectors<T>;
  static_assert(kRows * kLanes <= kSlopeScratch<T>);
  double const p = args.source.p;
  const std::int64_t dimension = args.source.columns->dimension;
  const std::int64_t padded = padded_to_panel<T>(args.column_count);
  const std::int64_t blocks = column_blocks<T>(args.column_count);
  auto const zero = hn::Zero(d), one = hn::Set(d, T(1)), least = hn::Set(d, std::numeric_limits<T>::min());
  auto const power = hn::Set(d, static_cast<T>(std::min(p - 1, 1e30) * std::numbers::ln2));
  auto const sign = [&](V difference) { return hn::CopySign(one, difference); };
  UnpackRows(args);
  std::fill_n(out, args.row_count * dimension, 0.0);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t end = std::min(padded, (b + 1) * kColumnBlock);
    for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kRows) {
      std::fill_n(sums, dimension * kRows * kLanes, T(0));
      for (std::int64_t j = b * kColumnBlock; j < end; j += kPanel<T>) {
        const std::int64_t c = args.column(j);
        V weight[kRows][kVecs], distance[kRows][kVecs];
        ForEachScore<T, kRows, kVecs>(distance, [&](V, int, int) { return zero; });
        TileDistances<T, kRows, kVecs>(args, c, r0, distance);
        ForEachScore<T, kRows, kVecs>(weight, [&](V, int r, int v) {
          auto const entry = hn::Load(d, args.stripe + StripeIndex(args, j, r0 + r) + v * kLanes);
          auto const whole = hn::Mul(entry, hn::Load(d, values + c + v * kLanes));
          return hn::IfThenElseZero(hn::Ge(hn::Abs(whole), hn::Set(d, kSmallestWeight<T>)), whole);
        });
        auto const inverse = [&](V size) {
          return hn::IfThenElseZero(hn::Ge(size, least), hn::Div(one, hn::Max(size, least)));
        };
        if (p == 1) {
          AddSlopes<T>(args, c, r0, weight, sums,
                       [&](V by, int, int) { return hn::IfThenElseZero(hn::Ne(by, zero), sign(by)); });
        } else if (p == 2) {
          ForEachScore<T, kRows, kVecs>(weight,
                                        [&](V whole, int r, int v) { return hn::Mul(whole, inverse(distance[r][v])); });
          AddSlopes<T>(args, c, r0, weight, sums, [](V by, int, int) { return by; });
        } else if (std::isinf(p)) {
          V count[kRows][kVecs];
          ForEachScore<T, kRows, kVecs>(count, [&](V, int, int) { return zero; });
          ForEachCoordinate<T, kRows, kVecs>(args, c, r0, count, [&](V sum, V x, V y, int r, int v) {
            return hn::Add(sum, hn::IfThenElseZero(hn::Ge(hn::Abs(hn::Sub(x, y)), distance[r][v]), one));
          });
          ForEachScore<T, kRows, kVecs>(weight, [&](V whole, int r, int v) {
            return hn::IfThenElseZero(hn::Gt(distance[r][v], zero), hn::Mul(whole, inverse(count[r][v])));
          });
          AddSlopes<T>(args, c, r0, weight, sums, [&](V by, int r, int v) {
            return hn::IfThenElseZero(hn::Ge(hn::Abs(by), distance[r][v]), sign(by));
          });
        } else {
          ForEachScore<T, kRows, kVecs>(distance, [&](V size, int, int) { return inverse(size); });
          AddSlopes<T>(args, c, r0, weight, sums, [&](V by, int r, int v) {
            auto const ratio = hn::Mul(hn::Abs(by), distance[r][v]);
            auto const size = hn::Exp(d, hn::Mul(power, hn::Log2(d, hn::Min(hn::Max(ratio, least), one))));
            return hn::IfThenElseZero(hn::Gt(ratio, zero), hn::CopySign(size, by));
          });
        }
      }
      for (int r = 0; r < kRows; ++r) {
        double const scale = args.block_scale[(r0 + r) * blocks + b];
        for (std::int64_t k = 0; k < dimension; ++k) {
          auto const sum = hn::Load(d, sums + (k * kRows + r) * kLanes);
          out[(r0 + r) * dimension + k] += scale * static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
        }
      }
    }
  }
}

// HWY_EXPORT needs plain functions, not templates.
void AverageSlopesF32(StripeArgs<float> const& args, float const* values, float* scratch, double* out) {
  AverageSlopes(args, values, scratch, out);
}
void AverageSlopesF64(StripeArgs<double> const& args, double const* values, double* scratch, double* out) {
  AverageSlopes(args, values, scratch, out);
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(AverageSlopesF32);
HWY_EXPORT(AverageSlopesF64);

template <>
void average_slopes(StripeArgs<float> const& args, float const* values, float* scratch, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageSlopesF32)(args, values, scratch, out);
}
template <>
void average_slopes(StripeArgs<double> const& args, double const* values, double* scratch, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageSlopesF64)(args, values, scratch, out);
}

}  // namespace monge::cpu
#endif
