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

// Calls visit(k, r, x_rk - y_ck) for each coordinate k and row r of one tile.
template <class T, class Visit>
HWY_INLINE void ForEachDifference(StripeArgs<T> const& args, std::int64_t c, std::int64_t r0, Visit const& visit) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kRows = kTileRows<T>;
  const std::int64_t dimension = args.source.columns->dimension;
  T const* HWY_RESTRICT panel = args.source.columns->panel(c / kPanel<T>);
  T const* HWY_RESTRICT x = args.row_scratch + r0 * dimension;
  for (std::int64_t k = 0; k < dimension; ++k) {
    hn::Vec<Tag<T>> y[kVectors<T>];
    MONGE_UNROLL_TILE
    for (int v = 0; v < kVectors<T>; ++v) y[v] = hn::Load(d, panel + k * kPanel<T> + v * kLanes);
    MONGE_UNROLL_TILE
    for (int r = 0; r < kRows; ++r) {
      auto const xr = hn::Set(d, x[k * kRows + r]);
      hn::Vec<Tag<T>> by[kVectors<T>];
      MONGE_UNROLL_TILE
      for (int v = 0; v < kVectors<T>; ++v) by[v] = hn::Sub(xr, y[v]);
      visit(k, r, by);
    }
  }
}

// Calls visit(factor, slope, stretch, bend) for the distances of one tile, which it changes. A distance has the
// derivatives g_k = factor(r, v) slope(x_k - y_k, r, v), and bend(r, v) (stretch(x_k - y_k, slope, r, v) [k = l] - g_k
// g_l).
template <class T, class Visit>
HWY_INLINE void WithSlopes(StripeArgs<T> const& args, std::int64_t c, std::int64_t r0,
                           TileVectors<T, kTileRows<T>, kVectors<T>>& distance, Visit const& visit) {
  using V = hn::Vec<Tag<T>>;
  Tag<T> const d;
  constexpr int kRows = kTileRows<T>, kVecs = kVectors<T>;
  double const p = args.source.columns->dimension == 1 ? 1 : args.source.p;  // In one dimension |x - y| for any p.
  auto const zero = hn::Zero(d), one = hn::Set(d, T(1)), least = hn::Set(d, std::numeric_limits<T>::min());
  auto const inverse = [&](V size) {
    return hn::IfThenElseZero(hn::Ge(size, least), hn::Div(one, hn::Max(size, least)));
  };
  auto const sign = [&](V difference) { return hn::CopySign(one, difference); };
  auto const all = [&](int, int) { return one; };
  auto const none = [&](int, int) { return zero; };
  auto const straight = [&](V, V, int, int) { return zero; };
  if (p == 1) {
    visit(
        all, [&](V by, int, int) { return hn::IfThenElseZero(hn::Ne(by, zero), sign(by)); }, straight, none);
  } else if (p == 2) {
    ForEachScore<T, kRows, kVecs>(distance, [&](V size, int, int) { return inverse(size); });
    auto const inverses = [&](int r, int v) { return distance[r][v]; };
    visit(
        inverses, [](V by, int, int) { return by; }, [&](V, V, int, int) { return one; }, inverses);
  } else if (std::isinf(p)) {
    // Centring rounds coordinates, so equal differences may differ by some units.
    auto const equal = hn::Set(d, 1 - 64 * std::numeric_limits<T>::epsilon());
    V part[kRows][kVecs];
    ForEachScore<T, kRows, kVecs>(part, [&](V, int, int) { return zero; });
    ForEachScore<T, kRows, kVecs>(distance, [&](V size, int, int) { return hn::Mul(size, equal); });
    ForEachCoordinate<T, kRows, kVecs>(args, c, r0, part, [&](V sum, V x, V y, int r, int v) {
      return hn::Add(sum, hn::IfThenElseZero(hn::Ge(hn::Abs(hn::Sub(x, y)), distance[r][v]), one));
    });
    ForEachScore<T, kRows, kVecs>(
        part, [&](V count, int r, int v) { return hn::IfThenElseZero(hn::Gt(distance[r][v], zero), inverse(count)); });
    visit([&](int r, int v) { return part[r][v]; },
          [&](V by, int r, int v) { return hn::IfThenElseZero(hn::Ge(hn::Abs(by), distance[r][v]), sign(by)); },
          straight, none);
  } else {
    // With ratios t_k of the differences to the largest and S = sum_k t_k^p, the slopes are t_k^(p-1) S^(1/p-1). Powers
    // of ratios to the distance would have a relative error of p units.
    double const order = std::min(p, 1e30);
    auto const power_of = [&](double exponent) { return hn::Set(d, static_cast<T>(exponent * std::numbers::ln2)); };
    auto const power = power_of(order - 1), whole = power_of(order), of_slope = power_of(1 / order - 1),
               of_stretch = power_of(2 / order - 1), bend = hn::Set(d, static_cast<T>(order - 1));
    V largest[kRows][kVecs], factor[kRows][kVecs], stretched[kRows][kVecs];
    // Division makes the ratio of the largest difference exactly 1.
    auto const ratio_of = [&](V by, int r, int v) { return hn::Div(hn::Abs(by), largest[r][v]); };
    ForEachScore<T, kRows, kVecs>(largest, [&](V, int, int) { return least; });
    ForEachCoordinate<T, kRows, kVecs>(args, c, r0, largest, LargestDifference<T>());
    ForEachScore<T, kRows, kVecs>(factor, [&](V, int, int) { return zero; });
    ForEachCoordinate<T, kRows, kVecs>(args, c, r0, factor, [&](V sum, V x, V y, int r, int v) {
      return hn::Add(sum, Power<T>(hn::Max(ratio_of(hn::Sub(x, y), r, v), least), whole));
    });
    ForEachScore<T, kRows, kVecs>(factor, [&](V sum, int r, int v) {
      auto const whole_sum = hn::Max(sum, one);
      stretched[r][v] = Power<T>(whole_sum, of_stretch);
      return Power<T>(whole_sum, of_slope);
    });
    ForEachScore<T, kRows, kVecs>(distance, [&](V size, int, int) { return inverse(size); });
    visit([&](int r, int v) { return factor[r][v]; },
          [&](V by, int r, int v) {
            auto const size = Power<T>(hn::Max(ratio_of(by, r, v), least), power);
            return hn::IfThenElseZero(hn::Gt(hn::Abs(by), zero), hn::CopySign(size, by));
          },
          [&](V by, V slope, int r, int v) {
            auto const ratio = ratio_of(by, r, v);
            auto const size = hn::Mul(hn::Abs(slope), stretched[r][v]);
            return hn::IfThenElseZero(hn::Ge(ratio, least), hn::Div(size, hn::Max(ratio, least)));
          },
          [&](int r, int v) { return hn::Mul(bend, distance[r][v]); });
  }
}

// out_rk = sum_j 2^(t_rj - row_max_r) v_j T_jk from tile(c, r0, v_j E_rj, distances), which adds the terms of a tile
// to sums_kr, `width` for each row.
template <class T, class Tile>
HWY_INLINE void AverageTiles(StripeArgs<T> const& args, T const* HWY_RESTRICT values, std::int64_t width,
                             T* HWY_RESTRICT sums, double* HWY_RESTRICT out, Tile const& tile) {
  using V = hn::Vec<Tag<T>>;
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kRows = kTileRows<T>, kVecs = kVectors<T>;
  static_assert(kRows * kLanes <= kSlopeScratch<T>);
  const std::int64_t padded = padded_to_panel<T>(args.column_count);
  const std::int64_t blocks = column_blocks<T>(args.column_count);
  UnpackRows(args);
  std::fill_n(out, args.row_count * width, 0.0);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t end = std::min(padded, (b + 1) * kColumnBlock);
    for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kRows) {
      std::fill_n(sums, width * kRows * kLanes, T(0));
      for (std::int64_t j = b * kColumnBlock; j < end; j += kPanel<T>) {
        const std::int64_t c = args.column(j);
        V weight[kRows][kVecs], distance[kRows][kVecs], sum[kRows][kVecs];
        ForEachScore<T, kRows, kVecs>(sum, [&](V, int, int) { return hn::Zero(d); });
        TileDistances<T, kRows, kVecs>(args, c, r0, sum);
        // The compiler would keep the sums of an array that `tile` changes in memory.
        ForEachScore<T, kRows, kVecs>(distance, [&](V, int r, int v) { return sum[r][v]; });
        ForEachScore<T, kRows, kVecs>(weight, [&](V, int r, int v) {
          auto const entry = hn::Load(d, args.stripe + StripeIndex(args, j, r0 + r) + v * kLanes);
          auto const whole = hn::Mul(entry, hn::Load(d, values + c + v * kLanes));
          return hn::IfThenElseZero(hn::Ge(hn::Abs(whole), hn::Set(d, kSmallestWeight<T>)), whole);
        });
        tile(c, r0, weight, distance);
      }
      for (int r = 0; r < kRows; ++r) {
        double const scale = args.block_scale[(r0 + r) * blocks + b];
        for (std::int64_t k = 0; k < width; ++k) {
          auto const sum = hn::Load(d, sums + (k * kRows + r) * kLanes);
          out[(r0 + r) * width + k] += scale * static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
        }
      }
    }
  }
}

template <class T>
HWY_FLATTEN void AverageSlopes(StripeArgs<T> const& args, T const* values, T* HWY_RESTRICT sums, double* out) {
  using V = hn::Vec<Tag<T>>;
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kRows = kTileRows<T>, kVecs = kVectors<T>;
  AverageTiles<T>(
      args, values, args.source.columns->dimension, sums, out,
      [&](std::int64_t c, std::int64_t r0, V(&weight)[kRows][kVecs], V(&distance)[kRows][kVecs]) {
        WithSlopes<T>(args, c, r0, distance, [&](auto const& factor, auto const& slope, auto const&, auto const&) {
          ForEachScore<T, kRows, kVecs>(weight, [&](V whole, int r, int v) { return hn::Mul(whole, factor(r, v)); });
          ForEachDifference<T>(args, c, r0, [&](std::int64_t k, int r, V const(&by)[kVecs]) {
            T* HWY_RESTRICT at = sums + (k * kRows + r) * kLanes;
            auto sum = hn::Load(d, at);
            MONGE_UNROLL_TILE
            for (int v = 0; v < kVecs; ++v) sum = hn::MulAdd(weight[r][v], slope(by[v], r, v), sum);
            hn::Store(sum, d, at);
          });
        });
      });
}

// With m = own - far and its product <g, m> with the derivatives g of a distance, the terms are <g, m> in the last
// column and, before it, bend (stretch m - g <g, m>) - rate g <g, m>.
template <class T>
HWY_FLATTEN void AverageSlopeChanges(StripeArgs<T> const& args, T const* values, PackedPoints<T> const& own,
                                     PackedPoints<T> const& far, double rate, T* HWY_RESTRICT sums, double* out) {
  using V = hn::Vec<Tag<T>>;
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kRows = kTileRows<T>, kVecs = kVectors<T>;
  const std::int64_t dimension = args.source.columns->dimension;
  auto const add = [&](std::int64_t k, int r, auto const& term) {
    T* HWY_RESTRICT at = sums + (k * kRows + r) * kLanes;
    auto sum = hn::Load(d, at);
    MONGE_UNROLL_TILE
    for (int v = 0; v < kVecs; ++v) sum = hn::Add(sum, term(v));
    hn::Store(sum, d, at);
  };
  AverageTiles<T>(
      args, values, dimension + 1, sums, out,
      [&](std::int64_t c, std::int64_t r0, V(&weight)[kRows][kVecs], V(&distance)[kRows][kVecs]) {
        WithSlopes<T>(
            args, c, r0, distance, [&](auto const& factor, auto const& slope, auto const& stretch, auto const& bend) {
              T const* const panel = far.panel(c / kPanel<T>);
              auto const motion = [&](std::int64_t k, int r, int v) {
                auto const of_row = hn::Set(d, own.coordinate(args.first_row + r0 + r, k));
                return hn::Sub(of_row, hn::Load(d, panel + k * kPanel<T> + v * kLanes));
              };
              V along[kRows][kVecs];
              ForEachScore<T, kRows, kVecs>(along, [&](V, int, int) { return hn::Zero(d); });
              ForEachDifference<T>(args, c, r0, [&](std::int64_t k, int r, V const(&by)[kVecs]) {
                MONGE_UNROLL_TILE
                for (int v = 0; v < kVecs; ++v)
                  along[r][v] = hn::MulAdd(slope(by[v], r, v), motion(k, r, v), along[r][v]);
              });
              ForEachScore<T, kRows, kVecs>(along, [&](V sum, int r, int v) { return hn::Mul(sum, factor(r, v)); });
              MONGE_UNROLL_TILE
              for (int r = 0; r < kRows; ++r)
                add(dimension, r, [&](int v) { return hn::Mul(weight[r][v], along[r][v]); });
              // The gradient of the cost is g = factor slope. `along` becomes factor <g, m>, and `weight` becomes
              // weight rate along.
              V bent[kRows][kVecs];
              ForEachScore<T, kRows, kVecs>(bent, [&](V, int r, int v) { return hn::Mul(weight[r][v], bend(r, v)); });
              ForEachScore<T, kRows, kVecs>(along,
                                            [&](V product, int r, int v) { return hn::Mul(factor(r, v), product); });
              ForEachScore<T, kRows, kVecs>(weight, [&](V whole, int r, int v) {
                return hn::Mul(hn::Mul(whole, hn::Set(d, static_cast<T>(rate))), along[r][v]);
              });
              ForEachDifference<T>(args, c, r0, [&](std::int64_t k, int r, V const(&by)[kVecs]) {
                add(k, r, [&](int v) {
                  auto const of = slope(by[v], r, v);
                  // Both terms cancel where bend is large, so their difference comes before the product with it.
                  auto const turn = hn::NegMulAdd(along[r][v], of, hn::Mul(stretch(by[v], of, r, v), motion(k, r, v)));
                  return hn::NegMulAdd(weight[r][v], of, hn::Mul(bent[r][v], turn));
                });
              });
            });
      });
}

// HWY_EXPORT needs plain functions, not templates.
void AverageSlopesF32(StripeArgs<float> const& args, float const* values, float* scratch, double* out) {
  AverageSlopes(args, values, scratch, out);
}
void AverageSlopesF64(StripeArgs<double> const& args, double const* values, double* scratch, double* out) {
  AverageSlopes(args, values, scratch, out);
}
void AverageSlopeChangesF32(StripeArgs<float> const& args, float const* values, PackedPoints<float> const& own,
                            PackedPoints<float> const& far, double rate, float* scratch, double* out) {
  AverageSlopeChanges(args, values, own, far, rate, scratch, out);
}
void AverageSlopeChangesF64(StripeArgs<double> const& args, double const* values, PackedPoints<double> const& own,
                            PackedPoints<double> const& far, double rate, double* scratch, double* out) {
  AverageSlopeChanges(args, values, own, far, rate, scratch, out);
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(AverageSlopesF32);
HWY_EXPORT(AverageSlopesF64);
HWY_EXPORT(AverageSlopeChangesF32);
HWY_EXPORT(AverageSlopeChangesF64);

template <>
void average_slopes(StripeArgs<float> const& args, float const* values, float* scratch, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageSlopesF32)(args, values, scratch, out);
}
template <>
void average_slopes(StripeArgs<double> const& args, double const* values, double* scratch, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageSlopesF64)(args, values, scratch, out);
}
template <>
void average_slope_changes(StripeArgs<float> const& args, float const* values, PackedPoints<float> const& own,
                           PackedPoints<float> const& far, double rate, float* scratch, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageSlopeChangesF32)(args, values, own, far, rate, scratch, out);
}
template <>
void average_slope_changes(StripeArgs<double> const& args, double const* values, PackedPoints<double> const& own,
                           PackedPoints<double> const& far, double rate, double* scratch, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageSlopeChangesF64)(args, values, own, far, rate, scratch, out);
}

}  // namespace monge::cpu
#endif
