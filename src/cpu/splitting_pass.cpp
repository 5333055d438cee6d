// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/splitting_pass.cpp"
#include "cpu/simd_targets.hpp"
// foreach_target.h must come first.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "cpu/splitting_pass.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors of rows, the last of which may hold fewer than its lanes. Those beyond are 0 and stay out of memory.
template <class D>
struct Whole {
  using T = hn::TFromD<D>;
  static HWY_INLINE hn::Vec<D> load(T const* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE void store(hn::Vec<D> value, T* to) { hn::StoreU(value, D(), to); }
  static HWY_INLINE hn::Vec<D> only(hn::Vec<D> value) { return value; }
};
template <class D>
struct Part {
  using T = hn::TFromD<D>;
  hn::Mask<D> mask;
  HWY_INLINE hn::Vec<D> load(T const* from) const { return hn::MaskedLoad(mask, D(), from); }
  HWY_INLINE void store(hn::Vec<D> value, T* to) const { hn::BlendedStore(value, mask, D(), to); }
  HWY_INLINE hn::Vec<D> only(hn::Vec<D> value) const { return hn::IfThenElseZero(mask, value); }
};

template <class D, class Visit>
HWY_INLINE void VisitRows(std::int64_t begin, std::int64_t end, Visit&& visit) {
  D const d;
  std::int64_t const lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t r = begin;
  for (; r + lanes <= end; r += lanes) visit(r, Whole<D>());
  if (r < end) visit(r, Part<D>{hn::FirstN(d, static_cast<std::size_t>(end - r))});
}

// Some neighbouring columns of a pass.
template <class T, int kColumns, PassKind kKind, bool kHypentropy>
class Columns {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static constexpr std::int64_t kMostLanes = HWY_MAX_BYTES / sizeof(T);

 public:
  HWY_INLINE Columns(SplittingPass<T> const& pass, std::int64_t first)
      : pass_(pass),
        x_(pass.x + first * pass.stride),
        costs_(pass.costs + first * pass.stride),
        psi_(pass.psi + first) {}

  HWY_INLINE void Run(T* row_sums, double* column_sums) {
    double totals[kColumns] = {};
    std::fill_n(sums_, kColumns * kMostLanes, T(0));
    std::int64_t summed = 0;
    for (PassGroup<T> const& group : pass_.groups) {
      T factor[kColumns];
      std::fill_n(factor, kColumns, T(1));
      if (group.threshold > 0) FindFactors(group, factor);
      for (int k = 0; k < kColumns; ++k) factor[k] *= kHypentropy ? T(1) : pass_.prox.shrink;
      for (std::int64_t begin = group.begin; begin < group.end; begin += kRowsOfSum) {
        std::int64_t const end = std::min(begin + kRowsOfSum, group.end);
        Update(begin, end, factor, row_sums);
        summed += end - begin;
        if (summed >= kRowsOfSum || end == pass_.rows) {
          Widen(totals);
          summed = 0;
        }
      }
    }
    std::copy_n(totals, kColumns, column_sums);
  }

 private:
  // S of column k, where this kind of pass reads it.
  template <class Rows>
  HWY_INLINE V Costs(Rows rows, int k, std::int64_t r) const {
    if constexpr (kKind == PassKind::from_difference) return hn::Zero(D());
    return rows.load(costs_ + k * pass_.stride + r);
  }
  // x - s S, rounded alike wherever it is made.
  HWY_INLINE V Difference(V x, V costs) const { return hn::NegMulAdd(hn::Set(D(), pass_.step), costs, x); }
  // [X - s S + phi + psi]_+
  template <class Rows>
  HWY_INLINE V Positive(Rows rows, int k, std::int64_t r, V costs, V phi) const {
    V const x = rows.load(x_ + k * pass_.stride + r);
    V const difference = kKind == PassKind::from_difference ? x : Difference(x, costs);
    return hn::Max(hn::Add(hn::Add(difference, phi), hn::Set(D(), psi_[k])), hn::Zero(D()));
  }

  HWY_INLINE void FindFactors(PassGroup<T> const& group, T* factor) const {
    V squares[kColumns];
    for (int k = 0; k < kColumns; ++k) squares[k] = hn::Zero(D());
    VisitRows<D>(group.begin, group.end, [&](std::int64_t r, auto rows) HWY_ATTR {
      V const phi = rows.load(pass_.phi + r);
      HWY_UNROLL(4)
      for (int k = 0; k < kColumns; ++k) {
        V const v = rows.only(Positive(rows, k, r, Costs(rows, k, r), phi));
        squares[k] = hn::MulAdd(v, v, squares[k]);
      }
    });
    for (int k = 0; k < kColumns; ++k)
      factor[k] = group_factor(std::sqrt(hn::GetLane(hn::SumOfLanes(D(), squares[k]))), group.threshold);
  }

  HWY_INLINE V Prox(V v, V factor) const {
    if constexpr (!kHypentropy) return hn::Mul(v, factor);
    HWY_ALIGN T lanes[kMostLanes];
    hn::Store(v, D(), lanes);
    for (std::size_t l = 0; l < hn::Lanes(D()); ++l) lanes[l] = pass_.prox(lanes[l]);
    return hn::Load(D(), lanes);
  }

  HWY_INLINE void Update(std::int64_t begin, std::int64_t end, T const* factor, T* row_sums) {
    V sums[kColumns], factors[kColumns];
    for (int k = 0; k < kColumns; ++k) {
      sums[k] = hn::Load(D(), sums_ + k * kMostLanes);
      factors[k] = hn::Set(D(), factor[k]);
    }
    VisitRows<D>(begin, end, [&](std::int64_t r, auto rows) HWY_ATTR {
      V const phi = rows.load(pass_.phi + r);
      V row_sum = rows.load(row_sums + r);
      HWY_UNROLL(4)
      for (int k = 0; k < kColumns; ++k) {
        V const costs = Costs(rows, k, r);
        V const x = rows.only(Prox(Positive(rows, k, r, costs, phi), factors[k]));
        rows.store(kKind == PassKind::keep_difference ? Difference(x, costs) : x, x_ + k * pass_.stride + r);
        row_sum = hn::Add(row_sum, x);
        sums[k] = hn::Add(sums[k], x);
      }
      rows.store(row_sum, row_sums + r);
    });
    for (int k = 0; k < kColumns; ++k) hn::Store(sums[k], D(), sums_ + k * kMostLanes);
  }

  HWY_INLINE void Widen(double* totals) {
    for (int k = 0; k < kColumns; ++k) {
      for (std::size_t l = 0; l < hn::Lanes(D()); ++l) totals[k] += static_cast<double>(sums_[k * kMostLanes + l]);
      std::fill_n(sums_ + k * kMostLanes, kMostLanes, T(0));
    }
  }

  SplittingPass<T> const& pass_;
  T* const x_;
  T const* const costs_;
  T const* const psi_;
  HWY_ALIGN T sums_[kColumns * kMostLanes];  // Of the columns, since the last return to float64.
};

template <class T, PassKind kKind, bool kHypentropy>
HWY_NOINLINE void PassOverColumns(SplittingPass<T> const& pass, std::int64_t first, std::int64_t columns, T* row_sums,
                                  double* column_sums) {
  std::int64_t k = 0;
  for (; k + kPassColumns <= columns; k += kPassColumns)
    Columns<T, kPassColumns, kKind, kHypentropy>(pass, first + k).Run(row_sums, column_sums + k);
  for (; k < columns; ++k) Columns<T, 1, kKind, kHypentropy>(pass, first + k).Run(row_sums, column_sums + k);
}

template <class T, bool kHypentropy>
void PassOfKind(SplittingPass<T> const& pass, std::int64_t first, std::int64_t columns, T* row_sums,
                double* column_sums) {
  switch (pass.kind) {
    case PassKind::keep_difference:
      return PassOverColumns<T, PassKind::keep_difference, kHypentropy>(pass, first, columns, row_sums, column_sums);
    case PassKind::from_difference:
      return PassOverColumns<T, PassKind::from_difference, kHypentropy>(pass, first, columns, row_sums, column_sums);
    case PassKind::plain:
      return PassOverColumns<T, PassKind::plain, kHypentropy>(pass, first, columns, row_sums, column_sums);
  }
}

template <class T>
void Pass(SplittingPass<T> const& pass, std::int64_t first, std::int64_t columns, T* row_sums, double* column_sums) {
  std::fill_n(row_sums, pass.rows, T(0));
  if (pass.prox.hypentropy > 0) {
    PassOfKind<T, true>(pass, first, columns, row_sums, column_sums);
  } else {
    PassOfKind<T, false>(pass, first, columns, row_sums, column_sums);
  }
}

void PassF32(SplittingPass<float> const& pass, std::int64_t first, std::int64_t columns, float* row_sums,
             double* column_sums) {
  Pass(pass, first, columns, row_sums, column_sums);
}
void PassF64(SplittingPass<double> const& pass, std::int64_t first, std::int64_t columns, double* row_sums,
             double* column_sums) {
  Pass(pass, first, columns, row_sums, column_sums);
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(PassF32);
HWY_EXPORT(PassF64);

template <>
void pass_over_columns(SplittingPass<float> const& pass, std::int64_t first, std::int64_t columns, float* row_sums,
                       double* column_sums) {
  HWY_DYNAMIC_DISPATCH(PassF32)(pass, first, columns, row_sums, column_sums);
}
template <>
void pass_over_columns(SplittingPass<double> const& pass, std::int64_t first, std::int64_t columns, double* row_sums,
                       double* column_sums) {
  HWY_DYNAMIC_DISPATCH(PassF64)(pass, first, columns, row_sums, column_sums);
}

}  // namespace monge::cpu
#endif
