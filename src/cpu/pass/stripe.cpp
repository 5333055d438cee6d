// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/pass/stripe.cpp"
#include "cpu/pass/simd_targets.hpp"
// foreach_target.h must come first.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/pass/score_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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

// Sums of exponentials start from this number, and exponentials are at least twice as large. A smaller result would be
// a denormal number, which costs the processor a hundred cycles and changes no sum.
template <class T>
inline constexpr T kLeast = std::numeric_limits<T>::min();

// 2^(t - shift) for an integer shift. The result is twice the smallest normal number if t is below shift - 125 (float)
// and undefined if t is above shift + 127. Adding 1.5 * 2^(mantissa bits) rounds t to an integer in the low bits; a
// left shift moves it to the exponent. `shift` is part of the same constant, so it needs no subtraction, and t -
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

// One vector of partial results for each row of a stripe, in one block of columns.
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

// Scores that are read may come from a cost matrix, which may forbid pairs.
template <ScoreForm kForm>
inline constexpr bool kMayForbid = kForm == ScoreForm::stored || kForm == ScoreForm::kept;

// With bounds of the rows: scores, logits and, unless stored, exponentials stay in registers.
template <class T, ScoreForm kForm, bool kStore>
HWY_NOINLINE void ExponentiateBelow(StripeArgs<T> const& args, ShiftedExp2<T> const* exps, std::int64_t begin,
                                    std::int64_t end, LaneSums<T>& sums) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  auto const multiplier = hn::Set(d, args.multiplier);
  [[maybe_unused]] auto const forbidden = hn::Set(d, kForbidden<T>);
  sums.Fill(args.row_count, kLeast<T>);
  ForEachTile<T, kForm>(args, begin, end, [&](std::int64_t j, std::int64_t c, std::int64_t r0, auto const& acc) {
    MONGE_UNROLL_TILE
    for (int r = 0; r < kTileRows<T>; ++r) {
      ShiftedExp2<T> const& exp2 = exps[r0 + r];
      [[maybe_unused]] T* HWY_RESTRICT out = args.stripe + StripeIndex(args, j, r0 + r);
      auto sum = sums.Get(r0 + r);
      MONGE_UNROLL_TILE
      for (int v = 0; v < kVectors<T>; ++v) {
        auto const t = hn::MulAdd(acc[r][v], multiplier, hn::Load(d, args.h + c + v * kLanes));
        auto e = exp2(d, t);
        if constexpr (kMayForbid<kForm>) e = hn::IfThenElseZero(hn::Ge(t, forbidden), e);
        if constexpr (kStore) hn::Store(e, d, out + v * kLanes);
        sum = hn::MulAdd(e, hn::Load(d, args.beta + c + v * kLanes), sum);
      }
      sums.Put(r0 + r, sum);
    }
  });
}

// Without bounds, first step: logits and their maxima. With kMoment the stripe receives the scores.
template <class T, ScoreForm kForm, bool kMoment>
HWY_NOINLINE void ComputeLogits(StripeArgs<T> const& args, std::int64_t begin, std::int64_t end, LaneSums<T>& largest) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  auto const multiplier = hn::Set(d, args.multiplier);
  bool const keep = kForm != ScoreForm::kept && args.scores != nullptr;
  largest.Fill(args.row_count, kNoWeight<T>);
  ForEachTile<T, kForm>(args, begin, end, [&](std::int64_t j, std::int64_t c, std::int64_t r0, auto const& acc) {
    MONGE_UNROLL_TILE
    for (int r = 0; r < kTileRows<T>; ++r) {
      const std::int64_t at = StripeIndex(args, j, r0 + r);
      auto row_largest = largest.Get(r0 + r);
      MONGE_UNROLL_TILE
      for (int v = 0; v < kVectors<T>; ++v) {
        if (keep) hn::Store(acc[r][v], d, args.scores + at + v * kLanes);
        auto t = hn::MulAdd(acc[r][v], multiplier, hn::Load(d, args.h + c + v * kLanes));
        if constexpr (kMayForbid<kForm>) t = hn::Max(t, hn::Set(d, kForbidden<T>));
        hn::Store(kMoment ? acc[r][v] : t, d, args.stripe + at + v * kLanes);
        row_largest = hn::Max(row_largest, t);
      }
      largest.Put(r0 + r, row_largest);
    }
  });
}

// Without bounds, second step: exponentials relative to the maxima of the block. Moments are of multiplier * score_rj:
// a difference of t_rj and h_j would have few digits where eps is far above the costs.
template <class T, ScoreForm kForm, bool kMoment>
HWY_NOINLINE void ExponentiateLogits(StripeArgs<T> const& args, T const* largest, std::int64_t begin, std::int64_t end,
                                     LaneSums<T>& sums, LaneSums<T>& moments) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  [[maybe_unused]] auto const multiplier = hn::Set(d, args.multiplier);
  sums.Fill(args.row_count, kLeast<T>);
  if constexpr (kMoment) moments.Fill(args.row_count, T(0));
  for (std::int64_t j = begin; j < end; j += kPanel<T>) {
    const std::int64_t c = args.column(j);
    for (std::int64_t r = 0; r < args.row_count; ++r) {
      T* HWY_RESTRICT row = args.stripe + StripeIndex(args, j, r);
      // Very large logits (tiny eps, poor warm starts) cannot share a constant with the rounding: shift them to 0.
      bool const huge = !(std::abs(largest[r]) < kLargestBound<T>);
      ShiftedExp2<T> const exp2(huge ? T(0) : largest[r]);
      auto const far = hn::Set(d, huge ? largest[r] : T(0));
      auto sum = sums.Get(r);
      MONGE_UNROLL_TILE
      for (int v = 0; v < kVectors<T>; ++v) {
        auto t = hn::Load(d, row + v * kLanes);
        [[maybe_unused]] auto cost = t;
        if constexpr (kMoment) {
          cost = hn::Mul(t, multiplier);
          t = hn::MulAdd(t, multiplier, hn::Load(d, args.h + c + v * kLanes));
          if constexpr (kMayForbid<kForm>) {
            cost = hn::Max(cost, hn::Set(d, kForbidden<T>));
            t = hn::Max(t, hn::Set(d, kForbidden<T>));
          }
        }
        auto e = exp2(d, hn::Sub(t, far));
        if constexpr (kMayForbid<kForm>) e = hn::IfThenElseZero(hn::Gt(t, hn::Set(d, kForbidden<T>)), e);
        hn::Store(e, d, row + v * kLanes);
        auto const beta = hn::Load(d, args.beta + c + v * kLanes);
        sum = hn::MulAdd(e, beta, sum);  // As with bounds, to the last bit.
        if constexpr (kMoment) moments.Put(r, hn::MulAdd(hn::Mul(e, beta), cost, moments.Get(r)));
      }
      sums.Put(r, sum);
    }
  }
}

// Adds a block to the sums of a row, which are relative to row_max, the largest exponent so far.
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
    largest[r] = bounded ? static_cast<T>(reference_above(args.bound[r])) : T(0);
    exps[r] = ShiftedExp2<T>(largest[r]);
    row_max[r] = bounded ? static_cast<double>(largest[r]) : -std::numeric_limits<double>::infinity();
    row_sum[r] = 0;
    if (row_moment != nullptr) row_moment[r] = 0;
  }
  const std::int64_t first_block = args.first_column / kColumnBlock;
  for (std::int64_t b = first_block; b < blocks; ++b) {
    const std::int64_t begin = std::max(args.first_column, b * kColumnBlock);
    const std::int64_t end = std::min(padded, (b + 1) * kColumnBlock);
    if (bounded && args.store) {
      ExponentiateBelow<T, kForm, true>(args, exps, begin, end, sums);
    } else if (bounded) {
      ExponentiateBelow<T, kForm, false>(args, exps, begin, end, sums);
    } else {
      if (row_moment != nullptr) {
        ComputeLogits<T, kForm, true>(args, begin, end, sums);
      } else {
        ComputeLogits<T, kForm, false>(args, begin, end, sums);
      }
      if (args.logits) continue;
      for (std::int64_t r = 0; r < args.row_count; ++r)
        largest[r] = static_cast<T>(reference_above(static_cast<double>(sums.Max(r))));
      if (row_moment != nullptr) {
        ExponentiateLogits<T, kForm, true>(args, largest, begin, end, sums, moments);
      } else {
        ExponentiateLogits<T, kForm, false>(args, largest, begin, end, sums, moments);
      }
    }
    for (std::int64_t r = 0; r < args.row_count; ++r) {
      args.block_scale[r * blocks + b] = static_cast<double>(largest[r]);
      Accumulate(static_cast<double>(largest[r]), sums.Sum(r), row_moment == nullptr ? 0 : moments.Sum(r), row_max[r],
                 row_sum[r], row_moment == nullptr ? nullptr : row_moment + r);
    }
  }
  for (std::int64_t r = 0; r < args.row_count && !args.logits; ++r) {
    for (std::int64_t b = first_block; b < blocks; ++b) {
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
  if (args.source.form == ScoreForm::stored) {
    ExponentiateRowsFrom<T, ScoreForm::stored>(args, row_max, row_sum, row_moment);
    return;
  }
  UnpackRows(args);
  switch (args.source.form) {
    case ScoreForm::differences:
      return ExponentiateRowsFrom<T, ScoreForm::differences>(args, row_max, row_sum, row_moment);
    case ScoreForm::distances:
      return ExponentiateRowsFrom<T, ScoreForm::distances>(args, row_max, row_sum, row_moment);
    default:
      return ExponentiateRowsFrom<T, ScoreForm::products>(args, row_max, row_sum, row_moment);
  }
}

// Sums over the few rows of a stripe are in T, sums over stripes in float64.
template <class T, bool kMeasures>
void AddToColumns(StripeArgs<T> const& args, std::int64_t count, double const* weight, double unit,
                  double* HWY_RESTRICT column_sums, [[maybe_unused]] TileMeasure const* measure) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr int kVecs = kVectors<T>;
  const std::int64_t padded = padded_to_panel<T>(args.column_count);
  const std::int64_t blocks = column_blocks<T>(args.column_count);
  for (std::int64_t b = args.first_column / kColumnBlock; b < blocks; ++b) {
    T scaled[kMaxStripeRows];
    for (std::int64_t r = 0; r < count; ++r) scaled[r] = static_cast<T>(weight[r] * args.block_scale[r * blocks + b]);
    const std::int64_t end = std::min(padded, (b + 1) * kColumnBlock);
    for (std::int64_t j = std::max(args.first_column, b * kColumnBlock); j < end; j += kPanel<T>) {
      const std::int64_t c = args.column(j);
      hn::Vec<Tag<T>> sums[kVecs];
      MONGE_UNROLL_TILE
      for (int v = 0; v < kVecs; ++v) sums[v] = hn::Set(d, kLeast<T>);
      [[maybe_unused]] double of_rows = 0, of_columns = 0;
      for (std::int64_t r = 0; r < count; ++r) {
        T const* HWY_RESTRICT e = args.stripe + StripeIndex(args, j, r);
        auto const w = hn::Set(d, scaled[r]);
        [[maybe_unused]] auto row = hn::Zero(d);
        MONGE_UNROLL_TILE
        for (int v = 0; v < kVecs; ++v) {
          auto const power = hn::Load(d, e + v * kLanes);
          sums[v] = hn::MulAdd(w, power, sums[v]);
          if constexpr (kMeasures) row = hn::MulAdd(power, hn::Load(d, args.beta + c + v * kLanes), row);
        }
        if constexpr (kMeasures)
          of_rows = std::max(of_rows, measure->row_factor[r] * args.block_scale[r * blocks + b] *
                                          static_cast<double>(hn::GetLane(hn::SumOfLanes(d, row))));
      }
      HWY_ALIGN T buffer[kPanel<T>];
      MONGE_UNROLL_TILE
      for (int v = 0; v < kVecs; ++v) hn::Store(sums[v], d, buffer + v * kLanes);
      for (std::int64_t lane = 0; lane < kPanel<T>; ++lane) {
        column_sums[c + lane] += unit * static_cast<double>(buffer[lane]);
        if constexpr (kMeasures)
          of_columns = std::max(of_columns, measure->column_factor[c + lane] * static_cast<double>(buffer[lane]));
      }
      if constexpr (kMeasures) {
        // A tile of double has two panels, whose rows with the largest sums may differ.
        std::int64_t const tile = j / kTilePoints;
        measure->of_rows[tile] += of_rows;
        measure->of_columns[tile] = std::max(measure->of_columns[tile], of_columns);
      }
    }
  }
}

template <class T>
void ReadLogits(StripeArgs<T> const& args, std::int64_t r, T const* log_beta, T* HWY_RESTRICT row,
                T* HWY_RESTRICT largest) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  auto const weight = hn::Set(d, kNoWeight<T> / 2), none = hn::Set(d, -std::numeric_limits<T>::infinity());
  const std::int64_t padded = padded_to_panel<T>(args.column_count);
  for (std::int64_t begin = 0; begin < padded; begin += kLogitGroup) {
    auto most = none;
    for (std::int64_t j = begin; j < std::min(begin + kLogitGroup, padded); j += kPanel<T>) {
      T const* HWY_RESTRICT panel = args.stripe + StripeIndex(args, j, r);
      T const* HWY_RESTRICT log_betas = log_beta + args.column(j);
      for (std::int64_t lane = 0; lane < kPanel<T>; lane += kLanes) {
        auto const t = hn::Load(d, panel + lane);
        auto const logit = hn::IfThenElse(hn::Gt(t, weight), hn::Add(t, hn::LoadU(d, log_betas + lane)), none);
        hn::StoreU(logit, d, row + j + lane);
        most = hn::Max(most, logit);
      }
    }
    largest[begin / kLogitGroup] = hn::GetLane(hn::MaxOfLanes(d, most));
  }
}

// HWY_EXPORT needs plain functions, not templates.
// NOLINTBEGIN(bugprone-macro-parentheses): T is a type.
#define MONGE_STRIPE_FUNCTIONS(T, Suffix)                                                                          \
  void ExponentiateRows##Suffix(StripeArgs<T> const& args, double* row_max, double* row_sum, double* row_moment) { \
    ExponentiateRows(args, row_max, row_sum, row_moment);                                                          \
  }                                                                                                                \
  void AddToColumns##Suffix(StripeArgs<T> const& args, std::int64_t count, double const* weight, double unit,      \
                            double* sums, TileMeasure const* measure) {                                            \
    measure != nullptr ? AddToColumns<T, true>(args, count, weight, unit, sums, measure)                           \
                       : AddToColumns<T, false>(args, count, weight, unit, sums, nullptr);                         \
  }                                                                                                                \
  void ReadLogits##Suffix(StripeArgs<T> const& args, std::int64_t r, T const* log_beta, T* row, T* largest) {      \
    ReadLogits(args, r, log_beta, row, largest);                                                                   \
  }
MONGE_STRIPE_FUNCTIONS(float, F32)
MONGE_STRIPE_FUNCTIONS(double, F64)
#undef MONGE_STRIPE_FUNCTIONS
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(ExponentiateRowsF32);
HWY_EXPORT(ExponentiateRowsF64);
HWY_EXPORT(AddToColumnsF32);
HWY_EXPORT(AddToColumnsF64);
HWY_EXPORT(ReadLogitsF32);
HWY_EXPORT(ReadLogitsF64);

template <>
void exponentiate_rows(StripeArgs<float> const& args, double* row_max, double* row_sum, double* row_moment) {
  HWY_DYNAMIC_DISPATCH(ExponentiateRowsF32)(args, row_max, row_sum, row_moment);
}
template <>
void exponentiate_rows(StripeArgs<double> const& args, double* row_max, double* row_sum, double* row_moment) {
  HWY_DYNAMIC_DISPATCH(ExponentiateRowsF64)(args, row_max, row_sum, row_moment);
}
template <>
void add_to_columns(StripeArgs<float> const& args, std::int64_t count, double const* weight, double unit, double* sums,
                    TileMeasure const* measure) {
  HWY_DYNAMIC_DISPATCH(AddToColumnsF32)(args, count, weight, unit, sums, measure);
}
template <>
void add_to_columns(StripeArgs<double> const& args, std::int64_t count, double const* weight, double unit, double* sums,
                    TileMeasure const* measure) {
  HWY_DYNAMIC_DISPATCH(AddToColumnsF64)(args, count, weight, unit, sums, measure);
}

template <>
void read_logits(StripeArgs<float> const& args, std::int64_t r, float const* log_beta, float* row, float* largest) {
  HWY_DYNAMIC_DISPATCH(ReadLogitsF32)(args, r, log_beta, row, largest);
}
template <>
void read_logits(StripeArgs<double> const& args, std::int64_t r, double const* log_beta, double* row, double* largest) {
  HWY_DYNAMIC_DISPATCH(ReadLogitsF64)(args, r, log_beta, row, largest);
}

std::string instruction_set() {
  // The best target of this processor is the lowest bit.
  std::int64_t const targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

}  // namespace monge::cpu
#endif
