// Copies scores of a cost matrix from the caller's memory into cache, panel by panel, for each instruction set.
//
// If the rows of the stripe are rows in memory, a panel is one short run for each row. If they are columns in memory, a
// panel is kPanel lines of memory, each with the stripe's rows side by side; registers transpose sixteen lines at a
// time. Either way a pass reads each line of the matrix once.
#if defined(MONGE_CPU_STORED_COSTS) == defined(HWY_TARGET_TOGGLE)
#ifdef MONGE_CPU_STORED_COSTS
#undef MONGE_CPU_STORED_COSTS
#else
#define MONGE_CPU_STORED_COSTS
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "cpu/pass/stripe.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Computes (C - origin) / unit. The unit is a power of two, so the multiply-add rounds like a subtraction.
template <class T, class S>
class ScoreReader {
  using Wide = std::conditional_t<(sizeof(S) > sizeof(T)), S, T>;

 public:
  using Tag = hn::CappedTag<Wide, kPanel<T>>;
  using Scores = hn::Rebind<T, Tag>;
  static constexpr std::int64_t kLanes = hn::MaxLanes(Tag());

  explicit ScoreReader(StoredCosts const& stored)
      : factor_(static_cast<Wide>(1 / stored.unit)), term_(static_cast<Wide>(-stored.origin / stored.unit)) {}

  HWY_INLINE T One(S const* at) const { return static_cast<T>(static_cast<Wide>(*at) * factor_ + term_); }
  HWY_INLINE hn::Vec<Scores> operator()(S const* at) const {
    Tag const d;
    auto const cost = hn::LoadU(hn::Rebind<S, Tag>(), at);
    if constexpr (std::is_same_v<S, T>) {
      return hn::MulAdd(cost, hn::Set(d, factor_), hn::Set(d, term_));
    } else if constexpr (std::is_same_v<S, Wide>) {
      return hn::DemoteTo(Scores(), hn::MulAdd(cost, hn::Set(d, factor_), hn::Set(d, term_)));
    } else {
      return hn::MulAdd(hn::PromoteTo(d, cost), hn::Set(d, factor_), hn::Set(d, term_));
    }
  }

 private:
  Wide factor_, term_;
};

// Prefetch distances: bytes along a row, and lines down a column.
inline constexpr std::int64_t kAheadInRow = 512;
inline constexpr std::int64_t kAheadInColumn = 32;

// Writes the scores of rows [0, row_count) and one panel of columns to args.row_scratch, kPanel numbers for each row.
// Padding rows repeat the last row; padding columns are 0.
template <class T, class S>
HWY_NOINLINE void LoadRows(StripeArgs<T> const& args, std::int64_t j) {
  using Reader = ScoreReader<T, S>;
  StoredCosts const& stored = args.source.stored;
  Reader const read(stored);
  const std::int64_t columns = std::min(kPanel<T>, args.column_count - j);
  for (std::int64_t r = 0; r < args.row_count; ++r) {
    S const* HWY_RESTRICT row =
        static_cast<S const*>(stored.data) + std::min(args.first_row + r, stored.rows - 1) * stored.row_stride + j;
    T* HWY_RESTRICT out = args.row_scratch + r * kPanel<T>;
    for (std::int64_t byte = 0; byte < kPanel<T> * static_cast<std::int64_t>(sizeof(S)); byte += HWY_ALIGNMENT)
      hwy::Prefetch(reinterpret_cast<char const*>(row) + byte + kAheadInRow);
    std::int64_t k = 0;
    for (; k + Reader::kLanes <= columns; k += Reader::kLanes)
      hn::Store(read(row + k), typename Reader::Scores(), out + k);
    for (; k < kPanel<T>; ++k) out[k] = k < columns ? read.One(row + k) : T(0);
  }
}

// Transposes 16 vectors, each from one column, to 16 numbers for each row: interleaves four by four, twice.
template <class D, class T>
HWY_INLINE void Transpose16(D d, hn::Vec<D> const (&column)[16], T* HWY_RESTRICT rows) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN T quarter[4][4 * kLanes];
  HWY_UNROLL(4)
  for (int q = 0; q < 4; ++q)
    hn::StoreInterleaved4(column[q], column[q + 4], column[q + 8], column[q + 12], d, quarter[q]);
  HWY_UNROLL(4)
  for (int p = 0; p < 4; ++p)
    hn::StoreInterleaved4(hn::Load(d, quarter[0] + p * kLanes), hn::Load(d, quarter[1] + p * kLanes),
                          hn::Load(d, quarter[2] + p * kLanes), hn::Load(d, quarter[3] + p * kLanes), d,
                          rows + 4 * p * kLanes);
}

// LoadRows() for rows that are columns in memory; padding rows are the scores of zero costs.
template <class T, class S>
HWY_NOINLINE void LoadColumns(StripeArgs<T> const& args, std::int64_t j) {
  using Reader = ScoreReader<T, S>;
  using Scores = typename Reader::Scores;
  constexpr std::int64_t kLanes = Reader::kLanes;
  StoredCosts const& stored = args.source.stored;
  Reader const read(stored);
  for (std::int64_t r0 = 0; r0 < args.row_count; r0 += kLanes) {
    const std::int64_t rows = std::clamp(stored.rows - args.first_row - r0, std::int64_t(0), kLanes);
    for (std::int64_t k0 = 0; k0 < kPanel<T>; k0 += 16) {
      hn::Vec<Scores> column[16];
      HWY_UNROLL(16)
      for (int k = 0; k < 16; ++k) {
        column[k] = hn::Zero(Scores());
        if (j + k0 + k >= args.column_count) continue;
        S const* at = static_cast<S const*>(stored.data) + (j + k0 + k) * stored.row_stride + args.first_row + r0;
        hwy::Prefetch(at + kAheadInColumn * stored.row_stride);
        S some[kLanes] = {};
        if (rows < kLanes) {
          std::copy_n(at, rows, some);
          at = some;
        }
        column[k] = read(at);
      }
      HWY_ALIGN T rowwise[16 * kLanes];
      Transpose16(Scores(), column, rowwise);
      for (std::int64_t r = 0; r < std::min(kLanes, args.row_count - r0); ++r)
        std::copy_n(rowwise + 16 * r, 16, args.row_scratch + (r0 + r) * kPanel<T> + k0);
    }
  }
}

template <class T>
HWY_INLINE void LoadPanel(StripeArgs<T> const& args, std::int64_t j) {
  bool const transposed = args.source.stored.transposed;
  if (args.source.stored.type == DataType::float32) {
    transposed ? LoadColumns<T, float>(args, j) : LoadRows<T, float>(args, j);
  } else {
    transposed ? LoadColumns<T, double>(args, j) : LoadRows<T, double>(args, j);
  }
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
