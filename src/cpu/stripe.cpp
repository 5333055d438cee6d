// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/stripe.cpp"
// SSSE3 and AVX3_DL bring these kernels nothing over SSE4 and AVX3 but build time; vectors of unknown length (SVE, RVV)
// cannot form the register tiles.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include <hwy/highway.h>

#include <hwy/cache_control.h>

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
    constexpr double kCoefficients[] = {4.4549605981865186e-10, 7.072585949269223e-09, 1.0178062445845774e-07,
                                        1.321544258792169e-06,  1.525273382983612e-05, 0.0001540353044173605,
                                        0.0013333558146416936,  0.009618129107606888,  0.0555041086648216,
                                        0.24022650695910097,    0.6931471805599453,    1.0};
    auto p = hn::Set(d, kCoefficients[0]);
    HWY_UNROLL(16)
    for (int k = 1; k < 12; ++k) p = hn::MulAdd(p, r, hn::Set(d, kCoefficients[k]));
    return p;
  }
}

// Sums of exponentials start from here, and the exponentials are at least twice this: a result below it would cost the
// processor a hundred cycles (a denormal number), and no sum can see it.
template <class T>
inline constexpr T kLeast = std::numeric_limits<T>::min();

// 2^(t - shift), shift an integer: twice the smallest normal number where t is below shift - 125 (float), and of no use
// where it is above shift + 127. Adding 1.5 * 2^(mantissa bits) rounds to an integer that then sits in the low bits,
// from where a left shift moves it to the exponent. With `shift` in the same constant no subtraction is needed, and t -
// round(t) is exact.
template <class T>
struct ShiftedExp2 {
  static constexpr bool kFloat = sizeof(T) == 4;
  T magic, least;

  ShiftedExp2() = default;
  explicit ShiftedExp2(T shift)
      : magic((kFloat ? T(12582912.0) : T(6755399441055744.0)) - shift), least(shift + (kFloat ? T(-125) : T(-1021))) {}

  template <class D, class V = hn::Vec<D>>
  HWY_INLINE V operator()(D d, V t) const {
    const hn::RebindToSigned<D> di;
    auto const rounding = hn::Set(d, magic);
    t = hn::Max(t, hn::Set(d, least));
    auto const shifted = hn::Add(t, rounding);
    auto const p = Exp2Fraction(d, hn::Sub(t, hn::Sub(shifted, rounding)));
    constexpr int kMantissaBits = kFloat ? 23 : 52;
    auto const exponent = hn::ShiftLeft<kMantissaBits>(hn::BitCast(di, shifted));
    return hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  }
};

// Where element 0 of row r of the panel that column j begins stands in the stripe and in the kept scores.
template <class T>
HWY_INLINE std::int64_t StripeIndex(StripeArgs<T> const& args, std::int64_t j, std::int64_t r) {
  return j * args.row_count + r * kPanel<T>;
}

// Copies the coordinates of the stripe's rows to where the register tile reads them: coordinate k of its row r is
// x[k * kTileRows + r], one tile after the other.
template <class T>
void UnpackRows(StripeArgs<T> const& args) {
  const std::int64_t dimension = args.source.rows->dimension;
  for (std::int64_t r = 0; r < args.row_count; ++r) {
    T* HWY_RESTRICT x = args.row_scratch + r / kTileRows<T> * kTileRows<T> * dimension + r % kTileRows<T>;
    for (std::int64_t k = 0; k < dimension; ++k)
      x[k * kTileRows<T>] = args.source.rows->coordinate(args.first_row + r, k);
  }
}

// The panels and the kept scores come from beyond L2. The processor's own prefetching stops at every page, so they are
// asked for this many bytes ahead.
inline constexpr std::int64_t kAheadInPanels = 8 << 10;
inline constexpr std::int64_t kAheadInScores = 16 << 10;

template <class T>
HWY_INLINE void PrefetchPanelRow(T const* at, std::int64_t bytes_ahead) {
  char const* const line = reinterpret_cast<char const*>(at) + bytes_ahead;
  hwy::Prefetch(line);
  hwy::Prefetch(line + HWY_ALIGNMENT);
}

template <class T, ScoreForm kForm, int kRows, int kVecs>
HWY_INLINE void TileScores(StripeArgs<T> const& args, std::int64_t j, std::int64_t r0,
                           hn::Vec<Tag<T>> (&acc)[kRows][kVecs]) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  HWY_UNROLL(32)
  for (int r = 0; r < kRows; ++r) {
    T const* HWY_RESTRICT kept = kForm == ScoreForm::kept ? args.scores + StripeIndex(args, j, r0 + r) : nullptr;
    HWY_UNROLL(32)
    for (int v = 0; v < kVecs; ++v) acc[r][v] = kForm == ScoreForm::kept ? hn::Load(d, kept + v * kLanes) : hn::Zero(d);
    if constexpr (kForm == ScoreForm::kept) PrefetchPanelRow(kept, kAheadInScores);
  }
  if constexpr (kForm == ScoreForm::kept) return;
  const std::int64_t dimension = args.source.columns->dimension;
  T const* HWY_RESTRICT panel = args.source.columns->panel(j / kPanel<T>);
  T const* HWY_RESTRICT x = args.row_scratch + r0 * dimension;
  for (std::int64_t k = 0; k < dimension; ++k) {
    PrefetchPanelRow(panel + k * kPanel<T>, kAheadInPanels);
    hn::Vec<Tag<T>> y[kVecs];
    HWY_UNROLL(32)
    for (int v = 0; v < kVecs; ++v) y[v] = hn::Load(d, panel + k * kPanel<T> + v * kLanes);
    HWY_UNROLL(32)
    for (int r = 0; r < kRows; ++r) {
      auto const xr = hn::Set(d, x[k * kRows + r]);
      HWY_UNROLL(32)
      for (int v = 0; v < kVecs; ++v) {
        if constexpr (kForm == ScoreForm::differences) {
          auto const difference = hn::Sub(xr, y[v]);
          acc[r][v] = hn::MulAdd(difference, difference, acc[r][v]);
        } else {
          acc[r][v] = hn::MulAdd(xr, y[v], acc[r][v]);
        }
      }
    }
  }
}

// Calls visit(j, r0, acc) with the scores of every register tile of columns [begin, end), panel by panel.
template <class T, ScoreForm kForm, class Visit>
HWY_INLINE void ForEachTile(StripeArgs<T> const& args, std::int64_t begin, std::int64_t end, Visit const& visit) {
  for (std::int64_t j = begin; j < end; j += kPanel<T>) {
    for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kTileRows<T>) {
      hn::Vec<Tag<T>> acc[kTileRows<T>][kVectors<T>];
      TileScores<T, kForm>(args, j, r0, acc);
      visit(j, r0, acc);
    }
  }
}

// What a stripe's rows have in one block of columns, lane by lane.
template <class T>
struct alignas(128) LaneSums {
  static constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  T value[kMaxStripeRows * kLanes];

  HWY_INLINE void Fill(std::int64_t rows, T with) {
    for (std::int64_t r = 0; r < rows; ++r) Put(r, hn::Set(Tag<T>(), with));
  }
  HWY_INLINE hn::Vec<Tag<T>> Get(std::int64_t r) const { return hn::Load(Tag<T>(), value + r * kLanes); }
  HWY_INLINE void Put(std::int64_t r, hn::Vec<Tag<T>> v) { hn::Store(v, Tag<T>(), value + r * kLanes); }
  HWY_INLINE double Sum(std::int64_t r) const {
    return static_cast<double>(hn::GetLane(hn::SumOfLanes(Tag<T>(), Get(r))));
  }
  HWY_INLINE T Max(std::int64_t r) const { return hn::GetLane(hn::MaxOfLanes(Tag<T>(), Get(r))); }
};

// Where bounds of the rows are known: scores, logits and, unless they are stored, exponentials never leave the
// registers.
template <class T, ScoreForm kForm, bool kStore>
HWY_NOINLINE void ExponentiateBelow(StripeArgs<T> const& args, ShiftedExp2<T> const* exps, std::int64_t begin,
                                    std::int64_t end, LaneSums<T>& sums) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  auto const multiplier = hn::Set(d, args.multiplier);
  sums.Fill(args.row_count, kLeast<T>);
  ForEachTile<T, kForm>(args, begin, end, [&](std::int64_t j, std::int64_t r0, auto const& acc) {
    HWY_UNROLL(32)
    for (int r = 0; r < kTileRows<T>; ++r) {
      ShiftedExp2<T> const& exp2 = exps[r0 + r];
      [[maybe_unused]] T* HWY_RESTRICT out = args.stripe + StripeIndex(args, j, r0 + r);
      auto sum = sums.Get(r0 + r);
      HWY_UNROLL(32)
      for (int v = 0; v < kVectors<T>; ++v) {
        auto const e = exp2(d, hn::MulAdd(acc[r][v], multiplier, hn::Load(d, args.h + j + v * kLanes)));
        if constexpr (kStore) hn::Store(e, d, out + v * kLanes);
        sum = hn::MulAdd(e, hn::Load(d, args.beta + j + v * kLanes), sum);
      }
      sums.Put(r0 + r, sum);
    }
  });
}

// Where they are not, in two goes. The first: logits and their maxima.
template <class T, ScoreForm kForm>
HWY_NOINLINE void ComputeLogits(StripeArgs<T> const& args, std::int64_t begin, std::int64_t end, LaneSums<T>& largest) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  auto const multiplier = hn::Set(d, args.multiplier);
  bool const keep = kForm != ScoreForm::kept && args.scores != nullptr;
  largest.Fill(args.row_count, kNoWeight<T>);
  ForEachTile<T, kForm>(args, begin, end, [&](std::int64_t j, std::int64_t r0, auto const& acc) {
    HWY_UNROLL(32)
    for (int r = 0; r < kTileRows<T>; ++r) {
      const std::int64_t at = StripeIndex(args, j, r0 + r);
      auto row_largest = largest.Get(r0 + r);
      HWY_UNROLL(32)
      for (int v = 0; v < kVectors<T>; ++v) {
        if (keep) hn::Store(acc[r][v], d, args.scores + at + v * kLanes);
        auto const t = hn::MulAdd(acc[r][v], multiplier, hn::Load(d, args.h + j + v * kLanes));
        hn::Store(t, d, args.stripe + at + v * kLanes);
        row_largest = hn::Max(row_largest, t);
      }
      largest.Put(r0 + r, row_largest);
    }
  });
}

// The second: exponentials below the block's own maxima.
template <class T, bool kMoment>
HWY_NOINLINE void ExponentiateLogits(StripeArgs<T> const& args, T const* largest, std::int64_t begin, std::int64_t end,
                                     LaneSums<T>& sums, LaneSums<T>& moments) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  sums.Fill(args.row_count, kLeast<T>);
  if constexpr (kMoment) moments.Fill(args.row_count, T(0));
  for (std::int64_t j = begin; j < end; j += kPanel<T>) {
    for (std::int64_t r = 0; r < args.row_count; ++r) {
      T* HWY_RESTRICT row = args.stripe + StripeIndex(args, j, r);
      // Logits too large to share a constant with the rounding (tiny eps, stray potentials) are brought near 0 first.
      bool const huge = !(std::abs(largest[r]) < kLargestBound<T>);
      ShiftedExp2<T> const exp2(huge ? T(0) : largest[r]);
      auto const far = hn::Set(d, huge ? largest[r] : T(0));
      auto sum = sums.Get(r);
      HWY_UNROLL(32)
      for (int v = 0; v < kVectors<T>; ++v) {
        auto const t = hn::Load(d, row + v * kLanes);
        auto const e = exp2(d, hn::Sub(t, far));
        hn::Store(e, d, row + v * kLanes);
        auto const weighted = hn::Mul(e, hn::Load(d, args.beta + j + v * kLanes));
        sum = hn::Add(sum, weighted);
        if constexpr (kMoment) {
          moments.Put(r,
                      hn::MulAdd(weighted, hn::Sub(t, hn::Load(d, args.log2_weight + j + v * kLanes)), moments.Get(r)));
        }
      }
      sums.Put(r, sum);
    }
  }
}

// Adds a block to the row: row_max is the largest exponent so far, the sums are relative to it.
HWY_INLINE void Accumulate(double largest, double sum, double moment, double& row_max, double& row_sum,
                           double* row_moment) {
  double const next = std::max(row_max, largest);
  double const keep = std::exp2(row_max - next), take = std::exp2(largest - next);
  row_max = next;
  row_sum = row_sum * keep + sum * take;
  if (row_moment != nullptr) *row_moment = *row_moment * keep + moment * take;
}

template <class T, ScoreForm kForm>
void ExponentiateRowsFrom(StripeArgs<T> const& args, double* row_max, double* row_sum, double* row_moment) {
  LaneSums<T> sums, moments;
  T largest[kMaxStripeRows];
  ShiftedExp2<T> exps[kMaxStripeRows];
  const std::int64_t padded = padded_to_panel<T>(args.column_count);
  const std::int64_t blocks = column_blocks<T>(args.column_count);
  bool const bounded = args.bound != nullptr;
  for (std::int64_t r = 0; r < args.row_count; ++r) {
    largest[r] = bounded ? static_cast<T>(std::ceil(args.bound[r])) : T(0);
    exps[r] = ShiftedExp2<T>(largest[r]);
    row_max[r] = bounded ? static_cast<double>(largest[r]) : -std::numeric_limits<double>::infinity();
    row_sum[r] = 0;
    if (row_moment != nullptr) row_moment[r] = 0;
  }
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t begin = b * kColumnBlock;
    const std::int64_t end = std::min(padded, begin + kColumnBlock);
    if (bounded && args.store) {
      ExponentiateBelow<T, kForm, true>(args, exps, begin, end, sums);
    } else if (bounded) {
      ExponentiateBelow<T, kForm, false>(args, exps, begin, end, sums);
    } else {
      ComputeLogits<T, kForm>(args, begin, end, sums);
      for (std::int64_t r = 0; r < args.row_count; ++r) largest[r] = std::ceil(sums.Max(r));
      if (row_moment != nullptr) {
        ExponentiateLogits<T, true>(args, largest, begin, end, sums, moments);
      } else {
        ExponentiateLogits<T, false>(args, largest, begin, end, sums, moments);
      }
    }
    for (std::int64_t r = 0; r < args.row_count; ++r) {
      args.block_scale[r * blocks + b] = static_cast<double>(largest[r]);
      Accumulate(static_cast<double>(largest[r]), sums.Sum(r), row_moment == nullptr ? 0 : moments.Sum(r), row_max[r],
                 row_sum[r], row_moment == nullptr ? nullptr : row_moment + r);
    }
  }
  for (std::int64_t r = 0; r < args.row_count; ++r) {
    for (std::int64_t b = 0; b < blocks; ++b) {
      double& scale = args.block_scale[r * blocks + b];
      scale = std::exp2(scale - row_max[r]);
    }
  }
}

template <class T>
void ExponentiateRows(StripeArgs<T> const& args, double* row_max, double* row_sum, double* row_moment) {
  if (args.scores != nullptr && args.scores_ready) {
    ExponentiateRowsFrom<T, ScoreForm::kept>(args, row_max, row_sum, row_moment);
    return;
  }
  UnpackRows(args);
  if (args.source.form == ScoreForm::differences) {
    ExponentiateRowsFrom<T, ScoreForm::differences>(args, row_max, row_sum, row_moment);
  } else {
    ExponentiateRowsFrom<T, ScoreForm::products>(args, row_max, row_sum, row_moment);
  }
}

// Rows in T (a stripe has few), stripes in float64.
template <class T>
void AddToColumns(StripeArgs<T> const& args, std::int64_t count, double const* weight, double unit,
                  double* HWY_RESTRICT column_sums) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kVecs = kVectors<T>;
  const std::int64_t padded = padded_to_panel<T>(args.column_count);
  const std::int64_t blocks = column_blocks<T>(args.column_count);
  for (std::int64_t b = 0; b < blocks; ++b) {
    T scaled[kMaxStripeRows];
    for (std::int64_t r = 0; r < count; ++r) scaled[r] = static_cast<T>(weight[r] * args.block_scale[r * blocks + b]);
    const std::int64_t end = std::min(padded, (b + 1) * kColumnBlock);
    for (std::int64_t j = b * kColumnBlock; j < end; j += kPanel<T>) {
      hn::Vec<Tag<T>> sums[kVecs];
      HWY_UNROLL(32)
      for (int v = 0; v < kVecs; ++v) sums[v] = hn::Set(d, kLeast<T>);
      for (std::int64_t r = 0; r < count; ++r) {
        T const* HWY_RESTRICT e = args.stripe + StripeIndex(args, j, r);
        auto const w = hn::Set(d, scaled[r]);
        HWY_UNROLL(32)
        for (int v = 0; v < kVecs; ++v) sums[v] = hn::MulAdd(w, hn::Load(d, e + v * kLanes), sums[v]);
      }
      HWY_ALIGN T buffer[kPanel<T>];
      HWY_UNROLL(32)
      for (int v = 0; v < kVecs; ++v) hn::Store(sums[v], d, buffer + v * kLanes);
      for (std::int64_t lane = 0; lane < kPanel<T>; ++lane)
        column_sums[j + lane] += unit * static_cast<double>(buffer[lane]);
    }
  }
}

// The same register tile as the scores, with the columns as the inner dimension: one block in T, blocks in float64.
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
        HWY_UNROLL(32)
        for (int r = 0; r < kRows; ++r) {
          HWY_UNROLL(32)
          for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(d);
        }
        for (std::int64_t j = begin; j < end; ++j) {
          T const* HWY_RESTRICT e = args.stripe + StripeIndex(args, j / kPanel<T> * kPanel<T>, r0) + j % kPanel<T>;
          HWY_UNROLL(32)
          for (int r = 0; r < kRows; ++r) {
            auto const weight = hn::Set(d, e[r * kPanel<T>]);
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

// One column of V after the other: a vector of exponentials meets a vector of its values.
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
        HWY_UNROLL(32)
        for (int r = 0; r < kRows; ++r) {
          HWY_UNROLL(32)
          for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(d);
        }
        for (std::int64_t j = b * kColumnBlock; j < end; j += kPanel<T>) {
          T const* HWY_RESTRICT e = args.stripe + StripeIndex(args, j, r0);
          HWY_UNROLL(32)
          for (int v = 0; v < kVecs; ++v) {
            auto const value = hn::Load(d, values + j * width + p * kPanel<T> + v * kLanes);
            HWY_UNROLL(32)
            for (int r = 0; r < kRows; ++r)
              acc[r][v] = hn::MulAdd(hn::Load(d, e + r * kPanel<T> + v * kLanes), value, acc[r][v]);
          }
        }
        for (int r = 0; r < kRows; ++r) {
          auto sum = acc[r][0];
          HWY_UNROLL(32)
          for (int v = 1; v < kVecs; ++v) sum = hn::Add(sum, acc[r][v]);
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
  ForEachTile<T, ScoreForm::products>(factors, 0, padded, [&](std::int64_t j, std::int64_t r0, auto const& acc) {
    HWY_UNROLL(32)
    for (int r = 0; r < kTileRows<T>; ++r) {
      T* HWY_RESTRICT e = args.stripe + StripeIndex(args, j, r0 + r);
      HWY_UNROLL(32)
      for (int v = 0; v < kVectors<T>; ++v)
        hn::Store(hn::Mul(acc[r][v], hn::Load(d, e + v * kLanes)), d, e + v * kLanes);
    }
  });
}

// HWY_EXPORT takes plain functions.
#define MONGE_STRIPE_FUNCTIONS(T, Suffix)                                                                          \
  void ExponentiateRows##Suffix(StripeArgs<T> const& args, double* row_max, double* row_sum, double* row_moment) { \
    ExponentiateRows(args, row_max, row_sum, row_moment);                                                          \
  }                                                                                                                \
  void AddToColumns##Suffix(StripeArgs<T> const& args, std::int64_t count, double const* weight, double unit,      \
                            double* sums) {                                                                        \
    AddToColumns(args, count, weight, unit, sums);                                                                 \
  }                                                                                                                \
  void AverageRows##Suffix(StripeArgs<T> const& args, ValueLayout<T> layout, T const* values, double* out) {       \
    AverageRows(args, layout, values, out);                                                                        \
  }                                                                                                                \
  void MultiplyByProducts##Suffix(StripeArgs<T> const& args, PackedPoints<T> const& left,                          \
                                  PackedPoints<T> const& right) {                                                  \
    MultiplyByProducts(args, left, right);                                                                         \
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
HWY_EXPORT(MultiplyByProductsF32);
HWY_EXPORT(MultiplyByProductsF64);

template <>
void exponentiate_rows(StripeArgs<float> const& args, double* row_max, double* row_sum, double* row_moment) {
  HWY_DYNAMIC_DISPATCH(ExponentiateRowsF32)(args, row_max, row_sum, row_moment);
}
template <>
void exponentiate_rows(StripeArgs<double> const& args, double* row_max, double* row_sum, double* row_moment) {
  HWY_DYNAMIC_DISPATCH(ExponentiateRowsF64)(args, row_max, row_sum, row_moment);
}
template <>
void add_to_columns(StripeArgs<float> const& args, std::int64_t count, double const* weight, double unit,
                    double* sums) {
  HWY_DYNAMIC_DISPATCH(AddToColumnsF32)(args, count, weight, unit, sums);
}
template <>
void add_to_columns(StripeArgs<double> const& args, std::int64_t count, double const* weight, double unit,
                    double* sums) {
  HWY_DYNAMIC_DISPATCH(AddToColumnsF64)(args, count, weight, unit, sums);
}
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

std::string instruction_set() {
  // Of the targets compiled above, the best that this processor has: the lowest bit.
  std::int64_t const targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

}  // namespace monge::cpu
#endif
