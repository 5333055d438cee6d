// The register tile of scores: part of every kernel of stripe.hpp, for each instruction set.
#if defined(MONGE_CPU_SCORE_TILE) == defined(HWY_TARGET_TOGGLE)
#ifdef MONGE_CPU_SCORE_TILE
#undef MONGE_CPU_SCORE_TILE
#else
#define MONGE_CPU_SCORE_TILE
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "cpu/stored_costs-inl.hpp"
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
  constexpr bool kRead = kForm == ScoreForm::kept || kForm == ScoreForm::stored;
  HWY_UNROLL(32)
  for (int r = 0; r < kRows; ++r) {
    T const* HWY_RESTRICT made = nullptr;
    if constexpr (kForm == ScoreForm::kept) made = args.scores + StripeIndex(args, j, r0 + r);
    if constexpr (kForm == ScoreForm::stored) made = args.row_scratch + (r0 + r) * kPanel<T>;
    HWY_UNROLL(32)
    for (int v = 0; v < kVecs; ++v) acc[r][v] = kRead ? hn::Load(d, made + v * kLanes) : hn::Zero(d);
    if constexpr (kForm == ScoreForm::kept) PrefetchPanelRow(made, kAheadInScores);
  }
  if constexpr (kRead) return;
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
    if constexpr (kForm == ScoreForm::stored) LoadPanel(args, j);
    for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kTileRows<T>) {
      hn::Vec<Tag<T>> acc[kTileRows<T>][kVectors<T>];
      TileScores<T, kForm>(args, j, r0, acc);
      visit(j, r0, acc);
    }
  }
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
