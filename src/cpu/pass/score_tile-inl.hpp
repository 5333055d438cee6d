// The register tile of scores: part of every kernel in stripe.hpp, compiled for each instruction set.
#if defined(MONGE_CPU_SCORE_TILE) == defined(HWY_TARGET_TOGGLE)
#ifdef MONGE_CPU_SCORE_TILE
#undef MONGE_CPU_SCORE_TILE
#else
#define MONGE_CPU_SCORE_TILE
#endif

#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "cpu/pass/stored_costs-inl.hpp"
#include "cpu/pass/stripe.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of at most one panel row: 128 bytes. The register tile is kTileRows rows x kVectors vectors: 16 accumulators
// with 32 registers (AVX-512, NEON), 8 with 16 registers.
template <class T>
using Tag = hn::CappedTag<T, kPanel<T>>;
template <class T>
inline constexpr int kVectors = static_cast<int>(kPanel<T> / static_cast<std::int64_t>(hn::MaxLanes(Tag<T>())));
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
inline constexpr int kAccumulators = 16;
#else
inline constexpr int kAccumulators = 8;
#endif
// Loops over a register tile are unrolled, but for processors without vector instructions that Highway knows: there the
// code would take longer to compile than that of all instruction sets together.
#undef MONGE_UNROLL_TILE
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define MONGE_UNROLL_TILE
#else
#define MONGE_UNROLL_TILE HWY_UNROLL(32)
#endif
template <class T>
inline constexpr int kTileRows = kAccumulators / kVectors<T> < 1 ? 1 : kAccumulators / kVectors<T>;

// The index, in the stripe and in the kept scores, of row r of the panel that begins at column j of the stripe.
template <class T>
HWY_INLINE std::int64_t StripeIndex(StripeArgs<T> const& args, std::int64_t j, std::int64_t r) {
  return j * args.row_count + r * kPanel<T>;
}

// Copies the coordinates of the stripe's rows to row_scratch, one register tile after the other: coordinate k of row r
// of a tile goes to x[k * kTileRows + r].
template <class T>
void UnpackRows(StripeArgs<T> const& args) {
  const std::int64_t dimension = args.source.rows->dimension;
  for (std::int64_t r = 0; r < args.row_count; ++r) {
    T* HWY_RESTRICT x = args.row_scratch + r / kTileRows<T> * kTileRows<T> * dimension + r % kTileRows<T>;
    for (std::int64_t k = 0; k < dimension; ++k)
      x[k * kTileRows<T>] = args.source.rows->coordinate(args.first_row + r, k);
  }
}

// Panels and kept scores come from beyond L2. The processor's prefetcher stops at page boundaries, so the kernels
// prefetch this many bytes ahead.
inline constexpr std::int64_t kAheadInPanels = 8 << 10;
inline constexpr std::int64_t kAheadInScores = 16 << 10;

template <class T>
HWY_INLINE void PrefetchPanelRow(T const* at, std::int64_t bytes_ahead) {
  char const* const line = reinterpret_cast<char const*>(at) + bytes_ahead;
  hwy::Prefetch(line);
  hwy::Prefetch(line + HWY_ALIGNMENT);
}

template <class T, int kRows, int kVecs>
using TileVectors = hn::Vec<Tag<T>>[kRows][kVecs];

// acc = combine(acc, x_rk, y_ck, r, v) for each coordinate k in order and the panel of columns that begins at c.
template <class T, int kRows, int kVecs, class Combine>
HWY_INLINE void ForEachCoordinate(StripeArgs<T> const& args, std::int64_t c, std::int64_t r0,
                                  TileVectors<T, kRows, kVecs>& acc, Combine const& combine) {
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  const std::int64_t dimension = args.source.columns->dimension;
  T const* HWY_RESTRICT panel = args.source.columns->panel(c / kPanel<T>);
  T const* HWY_RESTRICT x = args.row_scratch + r0 * dimension;
  for (std::int64_t k = 0; k < dimension; ++k) {
    PrefetchPanelRow(panel + k * kPanel<T>, kAheadInPanels);
    hn::Vec<Tag<T>> y[kVecs];
    MONGE_UNROLL_TILE
    for (int v = 0; v < kVecs; ++v) y[v] = hn::Load(d, panel + k * kPanel<T> + v * kLanes);
    MONGE_UNROLL_TILE
    for (int r = 0; r < kRows; ++r) {
      auto const xr = hn::Set(d, x[k * kRows + r]);
      MONGE_UNROLL_TILE
      for (int v = 0; v < kVecs; ++v) acc[r][v] = combine(acc[r][v], xr, y[v], r, v);
    }
  }
}

// acc = change(acc, r, v).
template <class T, int kRows, int kVecs, class Change>
HWY_INLINE void ForEachScore(TileVectors<T, kRows, kVecs>& acc, Change const& change) {
  MONGE_UNROLL_TILE
  for (int r = 0; r < kRows; ++r) {
    MONGE_UNROLL_TILE
    for (int v = 0; v < kVecs; ++v) acc[r][v] = change(acc[r][v], r, v);
  }
}

template <class T>
struct AddSquare {
  using V = hn::Vec<Tag<T>>;
  HWY_INLINE V operator()(V sum, V x, V y, int, int) const {
    auto const difference = hn::Sub(x, y);
    return hn::MulAdd(difference, difference, sum);
  }
};

template <class T>
struct LargestDifference {
  using V = hn::Vec<Tag<T>>;
  HWY_INLINE V operator()(V largest, V x, V y, int, int) const { return hn::Max(largest, hn::Abs(hn::Sub(x, y))); }
};

// The square root of s >= 0, off by at most a unit. AVX-512 has an estimate of 1 / sqrt(s) with 14 bits; Newton's
// steps, which double them, take about half of the time of the instruction for square roots.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V SquareRoot(D d, V s) {
#if HWY_TARGET <= HWY_AVX3
  using T = hn::TFromD<D>;
  auto const half = hn::Set(d, T(0.5)), positive = hn::Max(s, hn::Set(d, std::numeric_limits<T>::min()));
  V inverse;
  if constexpr (sizeof(T) == 4) {
    inverse = hn::ApproximateReciprocalSqrt(positive);
  } else {
    inverse = V{_mm512_rsqrt14_pd(positive.raw)};
  }
  auto root = hn::Mul(s, inverse), half_inverse = hn::Mul(half, inverse);
  if constexpr (sizeof(T) == 8) {
    auto const step = hn::NegMulAdd(root, half_inverse, half);
    root = hn::MulAdd(root, step, root);
    half_inverse = hn::MulAdd(half_inverse, step, half_inverse);
  }
  return hn::MulAdd(hn::NegMulAdd(root, root, s), half_inverse, root);
#else
  (void)d;
  return hn::Sqrt(s);
#endif
}

// value^exponent for positive normal values; power = exponent log 2. A call of its own: a copy for each vector of each
// tile would take half of the time in which the files of passes compile.
template <class T>
HWY_NOINLINE hn::Vec<Tag<T>> Power(hn::Vec<Tag<T>> value, hn::Vec<Tag<T>> power) {
  Tag<T> const d;
  return hn::Exp(d, hn::Mul(power, hn::Log2(d, value)));
}

// From zeros to (sum_k |x_rk - y_jk|^p)^(1/p). Unless p is 1, 2 or infinity, the differences are first divided by the
// largest: no power overflows, and powers that underflow do not count. The logarithm of a ratio t has a relative error
// of 2 units, so t^p has an error of at most 2 p |ln t| t^p <= 2 / e units, and the sum is at least 1.
template <class T, int kRows, int kVecs>
HWY_INLINE void TileDistances(StripeArgs<T> const& args, std::int64_t c, std::int64_t r0,
                              TileVectors<T, kRows, kVecs>& acc) {
  using V = hn::Vec<Tag<T>>;
  Tag<T> const d;
  double const p = args.source.p;
  if (p == 1) {
    ForEachCoordinate<T, kRows, kVecs>(args, c, r0, acc,
                                       [](V sum, V x, V y, int, int) { return hn::Add(sum, hn::Abs(hn::Sub(x, y))); });
    return;
  }
  if (p == 2) {
    ForEachCoordinate<T, kRows, kVecs>(args, c, r0, acc, AddSquare<T>());
    ForEachScore<T, kRows, kVecs>(acc, [&](V sum, int, int) { return SquareRoot(d, sum); });
    return;
  }
  ForEachCoordinate<T, kRows, kVecs>(args, c, r0, acc, LargestDifference<T>());
  if (std::isinf(p)) return;
  constexpr double kLargestPower = 1e30;  // For larger p, too, the power of every ratio below 1 is 0.
  auto const least = hn::Set(d, std::numeric_limits<T>::min()), one = hn::Set(d, T(1));
  auto const power = hn::Set(d, static_cast<T>(std::min(p, kLargestPower) * std::numbers::ln2));
  auto const root = hn::Set(d, static_cast<T>(std::numbers::ln2 / p));
  V largest[kRows][kVecs], inverse[kRows][kVecs];
  ForEachScore<T, kRows, kVecs>(acc, [&](V value, int r, int v) {
    largest[r][v] = value;
    inverse[r][v] = hn::IfThenElseZero(hn::Ge(value, least), hn::Div(one, hn::Max(value, least)));
    return hn::Zero(d);
  });
  ForEachCoordinate<T, kRows, kVecs>(args, c, r0, acc, [&](V sum, V x, V y, int r, int v) {
    auto const ratio = hn::Mul(hn::Abs(hn::Sub(x, y)), inverse[r][v]);
    return hn::Add(sum, Power<T>(hn::Min(hn::Max(ratio, least), one), power));
  });
  ForEachScore<T, kRows, kVecs>(
      acc, [&](V sum, int r, int v) { return hn::Mul(largest[r][v], Power<T>(hn::Max(sum, one), root)); });
}

// Adds the term of the labels. Listed columns have ascending labels, so most register tiles have one label.
template <class T, int kRows, int kVecs>
HWY_INLINE void AddLabels(StripeArgs<T> const& args, std::int64_t c, std::int64_t r0,
                          TileVectors<T, kRows, kVecs>& acc) {
  Tag<T> const d;
  hn::RebindToSigned<Tag<T>> const di;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  LabelTable<T> const& labels = args.source.labels;
  LabelIndex<T> const first = labels.columns[c], last = labels.columns[c + kVecs * kLanes - 1];
  if (args.panels != nullptr && first == last) {
    ForEachScore<T, kRows, kVecs>(acc, [&](auto score, int r, int) {
      return hn::Add(score, hn::Set(d, labels.row(args.first_row + r0 + r)[first]));
    });
    return;
  }
  hn::Vec<decltype(di)> columns[kVecs];
  MONGE_UNROLL_TILE
  for (int v = 0; v < kVecs; ++v) columns[v] = hn::LoadU(di, labels.columns + c + v * kLanes);
  MONGE_UNROLL_TILE
  for (int r = 0; r < kRows; ++r) {
    T const* const row = labels.row(args.first_row + r0 + r);
    MONGE_UNROLL_TILE
    for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Add(acc[r][v], hn::GatherIndex(d, row, columns[v]));
  }
}

template <class T, ScoreForm kForm, int kRows, int kVecs>
HWY_INLINE void TileScores(StripeArgs<T> const& args, std::int64_t j, std::int64_t c, std::int64_t r0,
                           TileVectors<T, kRows, kVecs>& acc) {
  using V = hn::Vec<Tag<T>>;
  Tag<T> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<T>());
  constexpr bool kRead = kForm == ScoreForm::kept || kForm == ScoreForm::stored;
  MONGE_UNROLL_TILE
  for (int r = 0; r < kRows; ++r) {
    T const* HWY_RESTRICT made = nullptr;
    if constexpr (kForm == ScoreForm::kept) made = args.scores + StripeIndex(args, j, r0 + r);
    if constexpr (kForm == ScoreForm::stored) made = args.row_scratch + (r0 + r) * kPanel<T>;
    MONGE_UNROLL_TILE
    for (int v = 0; v < kVecs; ++v) acc[r][v] = kRead ? hn::Load(d, made + v * kLanes) : hn::Zero(d);
    if constexpr (kForm == ScoreForm::kept) PrefetchPanelRow(made, kAheadInScores);
  }
  if constexpr (kForm == ScoreForm::products) {
    ForEachCoordinate<T, kRows, kVecs>(args, c, r0, acc,
                                       [](V sum, V x, V y, int, int) { return hn::MulAdd(x, y, sum); });
  }
  if constexpr (kForm == ScoreForm::differences) {
    ForEachCoordinate<T, kRows, kVecs>(args, c, r0, acc, AddSquare<T>());
  }
  if constexpr (kForm == ScoreForm::distances) TileDistances<T, kRows, kVecs>(args, c, r0, acc);
  if constexpr (!kRead) {
    if (args.source.labels.table != nullptr) AddLabels<T, kRows, kVecs>(args, c, r0, acc);
  }
}

// Calls visit(j, c, r0, acc) with the scores of every register tile in columns [begin, end) of the stripe, panel by
// panel; c is column(j).
template <class T, ScoreForm kForm, class Visit>
HWY_INLINE void ForEachTile(StripeArgs<T> const& args, std::int64_t begin, std::int64_t end, Visit const& visit) {
  for (std::int64_t j = begin; j < end; j += kPanel<T>) {
    const std::int64_t c = args.column(j);
    if constexpr (kForm == ScoreForm::stored) LoadPanel(args, c);
    for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kTileRows<T>) {
      hn::Vec<Tag<T>> acc[kTileRows<T>][kVectors<T>];
      TileScores<T, kForm, kTileRows<T>, kVectors<T>>(args, j, c, r0, acc);
      visit(j, c, r0, acc);
    }
  }
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
