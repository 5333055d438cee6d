// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/stripe.cpp"
// SSSE3 and AVX3_DL bring these kernels nothing over SSE4 and AVX3 but build time; vectors of unknown length (SVE, RVV)
// cannot form the register tiles.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/stripe.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most one panel row of vectors: 128 bytes. The register tile is kTileRows rows x kVectors vectors: 16 accumulators
// where there are 32 registers (AVX-512, NEON), 8 where there are 16.
template <class T>
using Tag = hn::CappedTag<T, kPanel<T>>;
template <class T>
inline constexpr int kVectors = static_cast<int>(kPanel<T> / static_cast<std::int64_t>(hn::MaxLanes(Tag<T>())));
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
inline constexpr int kAccumulators = 16;
#else
inline constexpr int kAccumulators = 8;
#endif
template <class T>
inline constexpr int kTileRows = kAccumulators / kVectors<T> < 1 ? 1 : kAccumulators / kVectors<T>;
// 2^r on [-1/2, 1/2], minimax in relative error: 7.5e-8 for float, 2.0e-17 for double.
template <class D>
HWY_INLINE hn::Vec<D> Exp2Fraction(D d, hn::Vec<D> r) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == 4) {
    constexpr float kCoefficients[] = {0.0013276472632f, 0.00967554134312f, 0.0555071327186f,
                                       0.240221197237f,  0.693146967065f,   1.00000007165f};
    auto p = hn::Set(d, kCoefficients[0]);
    HWY_UNROLL(8)
    for (int k = 1; k < 6; ++k) p = hn::MulAdd(p, r, hn::Set(d, kCoefficients[k]));
    return p;
  } else {
    constexpr double kCoefficients[] = {
        4.4549605981865186e-10, 7.072585949269223e-09,  1.0178062445845774e-07, 1.321544258792169e-06,
        1.525273382983612e-05,  0.0001540353044173605,  0.0013333558146416936,  0.009618129107606888,
        0.0555041086648216,     0.24022650695910097,    0.6931471805599453,     1.0};
    auto p = hn::Set(d, kCoefficients[0]);
    HWY_UNROLL(16)
    for (int k = 1; k < 12; ++k) p = hn::MulAdd(p, r, hn::Set(d, kCoefficients[k]));
    return p;
  }
}

// 2^(t - shift) for t <= shift, shift an integer; not below the smallest normal number. Adding 1.5 * 2^(mantissa bits)
// rounds to an integer that then sits in the low bits, from where a left shift moves it to the exponent. With `shift`
// in the same constant no subtraction is needed, and t - round(t) is exact.
template <class D>
struct ShiftedExp2 {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  static constexpr bool kFloat = sizeof(T) == 4;
  static constexpr T kLargestShift = kFloat ? T(2097152.0) : T(1125899906842624.0);  // keeps magic - shift exact
  V magic, least;

  HWY_INLINE ShiftedExp2(D d, T shift)
      : magic(hn::Set(d, (kFloat ? T(12582912.0) : T(6755399441055744.0)) - shift)),
        least(hn::Set(d, shift + (kFloat ? T(-126) : T(-1022)))) {}

  HWY_INLINE V operator()(D d, V t) const {
    const hn::RebindToSigned<D> di;
    t = hn::Max(t, least);
    auto const shifted = hn::Add(t, magic);
    auto const p = Exp2Fraction(d, hn::Sub(t, hn::Sub(shifted, magic)));
    auto const exponent = hn::ShiftLeft < kFloat ? 23 : 52 > (hn::BitCast(di, shifted));
    return hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  }
};

// Scores of kTileRows rows with one panel of columns, added to `acc`. Row r's coordinates are x[r * dimension + k].
template <class T, bool kDifferences, int kRows, int kVecs>
HWY_INLINE void AddScores(T const* HWY_RESTRICT x, T const* HWY_RESTRICT panel, std::int64_t dimension,
                          hn::Vec<Tag<T>> (&acc)[kRows][kVecs]) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  for (std::int64_t k = 0; k < dimension; ++k) {
    hn::Vec<Tag<T>> y[kVecs];
    HWY_UNROLL(32)
    for (int v = 0; v < kVecs; ++v) y[v] = hn::Load(d, panel + k * kPanel<T> + v * kLanes);
    HWY_UNROLL(32)
    for (int r = 0; r < kRows; ++r) {
      auto const xr = hn::Set(d, x[r * dimension + k]);
      HWY_UNROLL(32)
      for (int v = 0; v < kVecs; ++v) {
        if constexpr (kDifferences) {
          auto const difference = hn::Sub(xr, y[v]);
          acc[r][v] = hn::MulAdd(difference, difference, acc[r][v]);
        } else {
          acc[r][v] = hn::MulAdd(xr, y[v], acc[r][v]);
        }
      }
    }
  }
}

// Copies the coordinates of the stripe's rows to row-major order, from where they are broadcast.
template <class T>
void UnpackRows(StripeArgs<T> const& args) {
  const std::int64_t dimension = args.rows->dimension;
  for (std::int64_t r = 0; r < args.row_count; ++r) {
    for (std::int64_t k = 0; k < dimension; ++k)
      args.row_scratch[r * dimension + k] = args.rows->coordinate(args.first_row + r, k);
  }
}

// Logits of columns [begin, end) and, per row, their lane-wise maxima.
template <class T, bool kDifferences>
HWY_NOINLINE void ComputeLogits(StripeArgs<T> const& args, std::int64_t begin, std::int64_t end,
                                T* HWY_RESTRICT lane_max) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kVecs = kVectors<T>;
  constexpr int kRows = kTileRows<T>;
  const std::int64_t dimension = args.columns->dimension;
  const std::int64_t padded = padded_to_panel<T>(args.columns->size);
  for (std::int64_t r = 0; r < args.row_count; ++r) hn::Store(hn::Set(d, kNoWeight<T>), d, lane_max + r * kLanes);
  auto const multiplier = hn::Set(d, args.multiplier);
  for (std::int64_t j = begin; j < end; j += kPanel<T>) {
    T const* HWY_RESTRICT panel = args.columns->panel(j / kPanel<T>);
    for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kRows) {
      hn::Vec<Tag<T>> acc[kRows][kVecs];
      HWY_UNROLL(32)
      for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(32)
        for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(d);
      }
      AddScores<T, kDifferences>(args.row_scratch + r0 * dimension, panel, dimension, acc);
      HWY_UNROLL(32)
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t at = (r0 + r) * padded + j;
        auto largest = hn::Load(d, lane_max + (r0 + r) * kLanes);
        HWY_UNROLL(32)
        for (int v = 0; v < kVecs; ++v) {
          if (args.scores != nullptr) hn::Store(acc[r][v], d, args.scores + at + v * kLanes);
          auto const t = hn::MulAdd(acc[r][v], multiplier, hn::Load(d, args.h + j + v * kLanes));
          hn::Store(t, d, args.stripe + at + v * kLanes);
          largest = hn::Max(largest, t);
        }
        hn::Store(largest, d, lane_max + (r0 + r) * kLanes);
      }
    }
  }
}

// The same from kept scores: one multiply-add per pair, bound by reading them. The panels of AVX-512 hold 2 vectors, so
// here and below steps of 2 vectors always fit.
template <class T>
HWY_NOINLINE void LogitsFromScores(StripeArgs<T> const& args, std::int64_t begin, std::int64_t end,
                                   T* HWY_RESTRICT lane_max) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  const std::int64_t padded = padded_to_panel<T>(args.columns->size);
  auto const multiplier = hn::Set(d, args.multiplier);
  for (std::int64_t r = 0; r < args.row_count; ++r) {
    T const* HWY_RESTRICT scores = args.scores + r * padded;
    T* HWY_RESTRICT out = args.stripe + r * padded;
    auto largest0 = hn::Set(d, kNoWeight<T>);
    auto largest1 = largest0;
    for (std::int64_t j = begin; j < end; j += 2 * kLanes) {
      auto const t0 = hn::MulAdd(hn::Load(d, scores + j), multiplier, hn::Load(d, args.h + j));
      auto const t1 = hn::MulAdd(hn::Load(d, scores + j + kLanes), multiplier, hn::Load(d, args.h + j + kLanes));
      hn::Store(t0, d, out + j);
      hn::Store(t1, d, out + j + kLanes);
      largest0 = hn::Max(largest0, t0);
      largest1 = hn::Max(largest1, t1);
    }
    hn::Store(hn::Max(largest0, largest1), d, lane_max + r * kLanes);
  }
}

// What one row has in one block of columns, relative to 2^largest.
struct BlockSums {
  double largest, sum, moment;
};

template <class T, bool kMoment>
HWY_INLINE BlockSums ExponentiateBlock(StripeArgs<T> const& args, T* HWY_RESTRICT row, std::int64_t begin,
                                       std::int64_t end, T const* lane_max) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  const T largest = std::ceil(hn::GetLane(hn::MaxOfLanes(d, hn::Load(d, lane_max))));
  // Logits too large to share a constant with the rounding (tiny eps, stray potentials) are brought near 0 first.
  bool const huge = !(std::abs(largest) < ShiftedExp2<Tag<T>>::kLargestShift);
  if (huge) {
    for (std::int64_t j = begin; j < end; j += kLanes)
      hn::Store(hn::Sub(hn::Load(d, row + j), hn::Set(d, largest)), d, row + j);
  }
  ShiftedExp2<Tag<T>> const exp2(d, huge ? T(0) : largest);
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), moment0 = hn::Zero(d), moment1 = hn::Zero(d);
  for (std::int64_t j = begin; j < end; j += 2 * kLanes) {
    auto const t0 = hn::Load(d, row + j);
    auto const t1 = hn::Load(d, row + j + kLanes);
    auto const e0 = exp2(d, t0);
    auto const e1 = exp2(d, t1);
    hn::Store(e0, d, row + j);
    hn::Store(e1, d, row + j + kLanes);
    auto const beta0 = hn::Load(d, args.beta + j);
    auto const beta1 = hn::Load(d, args.beta + j + kLanes);
    sum0 = hn::MulAdd(e0, beta0, sum0);
    sum1 = hn::MulAdd(e1, beta1, sum1);
    if constexpr (kMoment) {
      auto const l0 = hn::Sub(t0, hn::Load(d, args.log2_weight + j));
      auto const l1 = hn::Sub(t1, hn::Load(d, args.log2_weight + j + kLanes));
      moment0 = hn::MulAdd(hn::Mul(e0, beta0), l0, moment0);
      moment1 = hn::MulAdd(hn::Mul(e1, beta1), l1, moment1);
    }
  }
  BlockSums result{static_cast<double>(largest),
                   static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)))), 0.0};
  if constexpr (kMoment) {
    result.moment = static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(moment0, moment1))));
    if (huge) result.moment += result.largest * result.sum;
  }
  return result;
}

// Adds a block to the row: row_max is the largest exponent so far, the sums are relative to it.
HWY_INLINE void Accumulate(BlockSums const& block, double& row_max, double& row_sum, double* row_moment) {
  double const next = std::max(row_max, block.largest);
  double const keep = std::exp2(row_max - next), take = std::exp2(block.largest - next);
  row_max = next;
  row_sum = row_sum * keep + block.sum * take;
  if (row_moment != nullptr) *row_moment = *row_moment * keep + block.moment * take;
}

template <class T>
void ExponentiateRows(StripeArgs<T> const& args, double* row_max, double* row_sum, double* row_moment) {
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  HWY_ALIGN T lane_max[kMaxStripeRows * kLanes];
  const std::int64_t padded = padded_to_panel<T>(args.columns->size);
  const std::int64_t blocks = column_blocks<T>(args.columns->size);
  bool const ready = args.scores != nullptr && args.scores_ready;
  if (!ready) UnpackRows(args);
  for (std::int64_t r = 0; r < args.row_count; ++r) {
    row_max[r] = -std::numeric_limits<double>::infinity();
    row_sum[r] = 0;
    if (row_moment != nullptr) row_moment[r] = 0;
  }
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * kColumnBlock;
    const std::int64_t end = std::min(padded, begin + kColumnBlock);
    if (ready) {
      LogitsFromScores(args, begin, end, lane_max);
    } else if (args.differences) {
      ComputeLogits<T, true>(args, begin, end, lane_max);
    } else {
      ComputeLogits<T, false>(args, begin, end, lane_max);
    }
    for (std::int64_t r = 0; r < args.row_count; ++r) {
      T* row = args.stripe + r * padded;
      const BlockSums sums = row_moment != nullptr
                                 ? ExponentiateBlock<T, true>(args, row, begin, end, lane_max + r * kLanes)
                                 : ExponentiateBlock<T, false>(args, row, begin, end, lane_max + r * kLanes);
      args.block_scale[r * blocks + b] = sums.largest;
      Accumulate(sums, row_max[r], row_sum[r], row_moment == nullptr ? nullptr : row_moment + r);
    }
  }
  for (std::int64_t r = 0; r < args.row_count; ++r) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      double& scale = args.block_scale[r * blocks + b];
      scale = std::exp2(scale - row_max[r]);
    }
  }
}

// Rows in T (a stripe has few), stripes in float64.
template <class T>
void AddToColumns(StripeArgs<T> const& args, std::int64_t count, double const* weight,
                  double* HWY_RESTRICT column_sums) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  const std::int64_t padded = padded_to_panel<T>(args.columns->size);
  const std::int64_t blocks = column_blocks<T>(args.columns->size);
  for (std::int64_t b = 0; b < blocks; ++b) {
    T scaled[kMaxStripeRows];
    for (std::int64_t r = 0; r < count; ++r) scaled[r] = static_cast<T>(weight[r] * args.block_scale[r * blocks + b]);
    const std::int64_t end = std::min(padded, (b + 1) * kColumnBlock);
    for (std::int64_t j = b * kColumnBlock; j < end; j += 2 * kLanes) {
      T const* HWY_RESTRICT e = args.stripe + j;
      auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
      for (std::int64_t r = 0; r < count; ++r) {
        auto const w = hn::Set(d, scaled[r]);
        sum0 = hn::MulAdd(w, hn::Load(d, e + r * padded), sum0);
        sum1 = hn::MulAdd(w, hn::Load(d, e + r * padded + kLanes), sum1);
      }
      HWY_ALIGN T buffer[2 * kLanes];
      hn::Store(sum0, d, buffer);
      hn::Store(sum1, d, buffer + kLanes);
      for (std::int64_t lane = 0; lane < 2 * kLanes; ++lane) column_sums[j + lane] += static_cast<double>(buffer[lane]);
    }
  }
}

// The same register tile as the scores, with the columns as the inner dimension: one block in T, blocks in float64.
template <class T>
void AverageRows(StripeArgs<T> const& args, T const* HWY_RESTRICT values, std::int64_t width,
                 double* HWY_RESTRICT out) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kVecs = kVectors<T>;
  constexpr int kRows = kTileRows<T>;
  const std::int64_t padded = padded_to_panel<T>(args.columns->size);
  const std::int64_t blocks = column_blocks<T>(args.columns->size);
  for (std::int64_t i = 0; i < args.row_count * width; ++i) out[i] = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * kColumnBlock;
    const std::int64_t end = std::min(args.columns->size, begin + kColumnBlock);
    for (std::int64_t p = 0; p < width; p += kPanel<T>) {
      for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kRows) {
        hn::Vec<Tag<T>> acc[kRows][kVecs];
        HWY_UNROLL(32)
        for (int r = 0; r < kRows; ++r) {
          HWY_UNROLL(32)
          for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(d);
        }
        T const* HWY_RESTRICT e = args.stripe + r0 * padded;
        for (std::int64_t j = begin; j < end; ++j) {
          HWY_UNROLL(32)
          for (int r = 0; r < kRows; ++r) {
            auto const weight = hn::Set(d, e[r * padded + j]);
            HWY_UNROLL(32)
            for (int v = 0; v < kVecs; ++v)
              acc[r][v] = hn::MulAdd(weight, hn::Load(d, values + j * width + p + v * kLanes), acc[r][v]);
          }
        }
        for (int r = 0; r < kRows; ++r) {
          HWY_ALIGN T buffer[kPanel<T>];
          HWY_UNROLL(32)
          for (int v = 0; v < kVecs; ++v) hn::Store(acc[r][v], d, buffer + v * kLanes);
          double const scale = args.block_scale[(r0 + r) * blocks + b];
          double* HWY_RESTRICT row = out + (r0 + r) * width + p;
          for (std::int64_t lane = 0; lane < kPanel<T>; ++lane) row[lane] += scale * static_cast<double>(buffer[lane]);
        }
      }
    }
  }
}

// HWY_EXPORT takes plain functions.
#define MONGE_STRIPE_FUNCTIONS(T, Suffix)                                                                          \
  void ExponentiateRows##Suffix(StripeArgs<T> const& args, double* row_max, double* row_sum, double* row_moment) { \
    ExponentiateRows(args, row_max, row_sum, row_moment);                                                          \
  }                                                                                                                \
  void AddToColumns##Suffix(StripeArgs<T> const& args, std::int64_t count, double const* weight, double* sums) {   \
    AddToColumns(args, count, weight, sums);                                                                       \
  }                                                                                                                \
  void AverageRows##Suffix(StripeArgs<T> const& args, T const* values, std::int64_t width, double* out) {          \
    AverageRows(args, values, width, out);                                                                         \
  }
MONGE_STRIPE_FUNCTIONS(float, F32)
MONGE_STRIPE_FUNCTIONS(double, F64)
#undef MONGE_STRIPE_FUNCTIONS

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(ExponentiateRowsF32);
HWY_EXPORT(ExponentiateRowsF64);
HWY_EXPORT(AddToColumnsF32);
HWY_EXPORT(AddToColumnsF64);
HWY_EXPORT(AverageRowsF32);
HWY_EXPORT(AverageRowsF64);

template <>
void exponentiate_rows(StripeArgs<float> const& args, double* row_max, double* row_sum, double* row_moment) {
  HWY_DYNAMIC_DISPATCH(ExponentiateRowsF32)(args, row_max, row_sum, row_moment);
}
template <>
void exponentiate_rows(StripeArgs<double> const& args, double* row_max, double* row_sum, double* row_moment) {
  HWY_DYNAMIC_DISPATCH(ExponentiateRowsF64)(args, row_max, row_sum, row_moment);
}
template <>
void add_to_columns(StripeArgs<float> const& args, std::int64_t count, double const* weight, double* sums) {
  HWY_DYNAMIC_DISPATCH(AddToColumnsF32)(args, count, weight, sums);
}
template <>
void add_to_columns(StripeArgs<double> const& args, std::int64_t count, double const* weight, double* sums) {
  HWY_DYNAMIC_DISPATCH(AddToColumnsF64)(args, count, weight, sums);
}
template <>
void average_rows(StripeArgs<float> const& args, float const* values, std::int64_t width, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageRowsF32)(args, values, width, out);
}
template <>
void average_rows(StripeArgs<double> const& args, double const* values, std::int64_t width, double* out) {
  HWY_DYNAMIC_DISPATCH(AverageRowsF64)(args, values, width, out);
}

std::string instruction_set() {
  // Of the targets compiled above, the best that this processor has: the lowest bit.
  std::int64_t const targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

}  // namespace monge::cpu
#endif
