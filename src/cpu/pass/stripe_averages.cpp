// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/pass/stripe_averages.cpp"
#include "cpu/pass/simd_targets.hpp"
// foreach_target.h must come first.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "cpu/pass/score_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sums start from this number, which is subtracted at their end. Without it, products of values and the smallest
// exponentials, 2^-125 in float, would make denormal sums, and each operation on one takes a hundred cycles. The number
// is no larger than a block of such exponentials.
template <class T>
inline constexpr T kOrigin = 64 * std::numeric_limits<T>::min();

// The register tile of the scores, with columns as the inner dimension: one block in T, blocks in float64.
template <class T>
void AverageRowsWide(StripeArgs<T> const& args, T const* HWY_RESTRICT values, std::int64_t width,
                     double* HWY_RESTRICT out) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kVecs = kVectors<T>;
  constexpr int kRows = kTileRows<T>;
  const std::int64_t blocks = column_blocks<T>(args.column_count);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * kColumnBlock;
    const std::int64_t end = std::min(args.column_count, begin + kColumnBlock);
    for (std::int64_t p = 0; p < width; p += kPanel<T>) {
      for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kRows) {
        hn::Vec<Tag<T>> acc[kRows][kVecs];
        MONGE_UNROLL_TILE
        for (int r = 0; r < kRows; ++r) {
          MONGE_UNROLL_TILE
          for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Set(d, kOrigin<T>);
        }
        for (std::int64_t j = begin; j < end; ++j) {
          const std::int64_t lane = j % kPanel<T>, c = args.column(j) + (args.panels == nullptr ? 0 : lane);
          T const* HWY_RESTRICT e = args.stripe + StripeIndex(args, j - lane, r0) + lane;
          MONGE_UNROLL_TILE
          for (int r = 0; r < kRows; ++r) {
            auto const weight = hn::Set(d, e[r * kPanel<T>]);
            MONGE_UNROLL_TILE
            for (int v = 0; v < kVecs; ++v)
              acc[r][v] = hn::MulAdd(weight, hn::Load(d, values + c * width + p + v * kLanes), acc[r][v]);
          }
        }
        for (int r = 0; r < kRows; ++r) {
          HWY_ALIGN T buffer[kPanel<T>];
          MONGE_UNROLL_TILE
          for (int v = 0; v < kVecs; ++v) hn::Store(hn::Sub(acc[r][v], hn::Set(d, kOrigin<T>)), d, buffer + v * kLanes);
          double const scale = args.block_scale[(r0 + r) * blocks + b];
          double* HWY_RESTRICT row = out + (r0 + r) * width + p;
          for (std::int64_t lane = 0; lane < kPanel<T>; ++lane) row[lane] += scale * static_cast<double>(buffer[lane]);
        }
      }
    }
  }
}

// One column of V after the other: vectors of exponentials times vectors of values.
template <class T>
void AverageRowsNarrow(StripeArgs<T> const& args, T const* HWY_RESTRICT values, std::int64_t width,
                       double* HWY_RESTRICT out) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kVecs = kVectors<T>;
  constexpr int kRows = kTileRows<T>;
  const std::int64_t padded = padded_to_panel<T>(args.column_count);
  const std::int64_t blocks = column_blocks<T>(args.column_count);
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t end = std::min(padded, (b + 1) * kColumnBlock);
    for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kRows) {
      for (std::int64_t p = 0; p < width; ++p) {
        hn::Vec<Tag<T>> acc[kRows][kVecs];
        MONGE_UNROLL_TILE
        for (int r = 0; r < kRows; ++r) {
          MONGE_UNROLL_TILE
          for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Set(d, kOrigin<T>);
        }
        for (std::int64_t j = b * kColumnBlock; j < end; j += kPanel<T>) {
          const std::int64_t c = args.column(j);
          T const* HWY_RESTRICT e = args.stripe + StripeIndex(args, j, r0);
          MONGE_UNROLL_TILE
          for (int v = 0; v < kVecs; ++v) {
            auto const value = hn::Load(d, values + c * width + p * kPanel<T> + v * kLanes);
            MONGE_UNROLL_TILE
            for (int r = 0; r < kRows; ++r)
              acc[r][v] = hn::MulAdd(hn::Load(d, e + r * kPanel<T> + v * kLanes), value, acc[r][v]);
          }
        }
        for (int r = 0; r < kRows; ++r) {
          auto sum = hn::Sub(acc[r][0], hn::Set(d, kOrigin<T>));
          MONGE_UNROLL_TILE
          for (int v = 1; v < kVecs; ++v) sum = hn::Add(sum, hn::Sub(acc[r][v], hn::Set(d, kOrigin<T>)));
          out[(r0 + r) * width + p] +=
              args.block_scale[(r0 + r) * blocks + b] * static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
        }
      }
    }
  }
}

template <class T>
void AverageRows(StripeArgs<T> const& args, ValueLayout<T> layout, T const* values, double* out) {
  for (std::int64_t i = 0; i < args.row_count * layout.stride(); ++i) out[i] = 0;
  if (layout.is_narrow()) {
    AverageRowsNarrow(args, values, layout.width, out);
  } else {
    AverageRowsWide(args, values, layout.stride(), out);
  }
}

template <class T>
void MultiplyByProducts(StripeArgs<T> const& args, PackedPoints<T> const& left, PackedPoints<T> const& right) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  StripeArgs<T> factors = args;
  factors.source = {ScoreForm::products, &left, &right};
  UnpackRows(factors);
  const std::int64_t padded = padded_to_panel<T>(args.column_count);
  ForEachTile<T, ScoreForm::products>(
      factors, 0, padded, [&](std::int64_t j, std::int64_t, std::int64_t r0, auto const& acc) {
        MONGE_UNROLL_TILE
        for (int r = 0; r < kTileRows<T>; ++r) {
          T* HWY_RESTRICT e = args.stripe + StripeIndex(args, j, r0 + r);
          MONGE_UNROLL_TILE
          for (int v = 0; v < kVectors<T>; ++v)
            hn::Store(hn::Mul(acc[r][v], hn::Load(d, e + v * kLanes)), d, e + v * kLanes);
        }
      });
}

// HWY_EXPORT needs plain functions, not templates.
#define MONGE_STRIPE_FUNCTIONS(T, Suffix)                                                                    \
  void AverageRows##Suffix(StripeArgs<T> const& args, ValueLayout<T> layout, T const* values, double* out) { \
    AverageRows(args, layout, values, out);                                                                  \
  }                                                                                                          \
  void MultiplyByProducts##Suffix(StripeArgs<T> const& args, PackedPoints<T> const& left,                    \
                                  PackedPoints<T> const& right) {                                            \
    MultiplyByProducts(args, left, right);                                                                   \
  }
MONGE_STRIPE_FUNCTIONS(float, F32)
MONGE_STRIPE_FUNCTIONS(double, F64)
#undef MONGE_STRIPE_FUNCTIONS

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(AverageRowsF32);
HWY_EXPORT(AverageRowsF64);
HWY_EXPORT(MultiplyByProductsF32);
HWY_EXPORT(MultiplyByProductsF64);

template <>
void average_rows(StripeArgs<float> const& args, ValueLayout<float> layout, float const* values, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageRowsF32)(args, layout, values, out);
}
template <>
void average_rows(StripeArgs<double> const& args, ValueLayout<double> layout, double const* values, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageRowsF64)(args, layout, values, out);
}
template <>
void multiply_by_products(StripeArgs<float> const& args, PackedPoints<float> const& left,
                          PackedPoints<float> const& right) {
  HWY_DYNAMIC_DISPATCH(MultiplyByProductsF32)(args, left, right);
}
template <>
void multiply_by_products(StripeArgs<double> const& args, PackedPoints<double> const& left,
                          PackedPoints<double> const& right) {
  HWY_DYNAMIC_DISPATCH(MultiplyByProductsF64)(args, left, right);
}

}  // namespace monge::cpu
#endif
