// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/regularized/splitting_pass.cpp"
#include "core/numbers.hpp"
#include "cpu/pass/simd_targets.hpp"
// foreach_target.h must come first.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <type_traits>

#include "cpu/regularized/hypentropy-inl.hpp"
#include "cpu/regularized/splitting_pass.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The proximal step of V.
enum class Prox { scaled, grouped, hypentropy, grouped_hypentropy };

// The constants of an entry's prox in a pass.
template <class T, Prox kProx>
using EntryRule = std::conditional_t<kProx == Prox::hypentropy, HypentropyProx<T>, EntryProx<T>>;

// The prox of a group with hypentropy, of a column's entries V, which it replaces.
template <class T>
class GroupProx {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

 public:
  // `values` has room for whole vectors, with zeros after its `size` entries. `norm` is |V|_2, `count` the number of
  // positive entries.
  GroupProx(EntryProx<T> const& prox, T threshold, T* values, std::int64_t size, T norm, std::int64_t count)
      : rule_{prox, threshold}, values_(values), size_(size) {
    T root = 0;
    if (norm > threshold)
      root = rule_.solve(norm, static_cast<T>(count), [this](EntryProx<T> const& of_group) { return Sums(of_group); });
    HypentropyProx<T> const last(prox.within_group(threshold, root));
    D const d;
    for (std::int64_t r = 0; r < size; r += hn::MaxLanes(d))
      hn::StoreU(root > 0 ? last(hn::LoadU(d, values + r)) : hn::Zero(d), d, values + r);
  }

 private:
  HWY_INLINE typename GroupNorm<T>::Sums Sums(EntryProx<T> const& of_group) const {
    D const d;
    HypentropyProx<T> const entry(of_group);
    V const alone = hn::Set(d, 1 / rule_.prox.shrink), inverse = hn::Set(d, 1 / of_group.shrink);
    V const h = hn::Set(d, of_group.hypentropy), width = hn::Set(d, of_group.width * of_group.width);
    V squares = hn::Zero(d), rises = hn::Zero(d);
    for (std::int64_t r = 0; r < size_; r += hn::MaxLanes(d)) {
      V const x = entry(hn::LoadU(d, values_ + r)), square = hn::Mul(x, x), root = hn::Sqrt(hn::Add(square, width));
      squares = hn::Add(squares, square);
      V const rise = hn::Div(hn::MulAdd(root, alone, h), hn::MulAdd(root, inverse, h));
      rises = hn::MulAdd(square, rise, rises);
    }
    return {hn::GetLane(hn::SumOfLanes(d, squares)), hn::GetLane(hn::SumOfLanes(d, rises))};
  }

  GroupNorm<T> rule_;
  T* values_;
  std::int64_t size_;
};

// Neighbouring columns of a pass.
template <class T, int kColumns, PassKind kKind, Prox kProx>
class Columns {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

 public:
  HWY_INLINE Columns(SplittingPass<T> const& pass, EntryRule<T, kProx> const& rule, std::int64_t first, T* scratch)
      : pass_(pass),
        rule_(rule),
        x_(pass.x + first * pass.stride),
        costs_(pass.costs + first * pass.stride),
        psi_(pass.psi + first),
        factors_(scratch),
        norms_(scratch + kColumns * pass.scratch_stride()) {}

  HWY_INLINE void Run(T* row_sums, double* column_sums) const {
    if constexpr (kProx == Prox::grouped) FindFactors();
    if constexpr (kProx == Prox::grouped_hypentropy) FindEntries();
    std::fill_n(column_sums, kColumns, 0.0);
    for (std::int64_t begin = 0; begin < pass_.rows; begin += kRowsOfSum)
      Update(begin, std::min(begin + kRowsOfSum, pass_.rows), row_sums, column_sums);
  }

 private:
  static constexpr std::int64_t kLanes = hn::MaxLanes(D());

  // S of column k, if this kind of pass reads it.
  HWY_INLINE V Costs(int k, std::int64_t r) const {
    if constexpr (kKind == PassKind::from_difference) return hn::Zero(D());
    return hn::LoadU(D(), costs_ + k * pass_.stride + r);
  }
  // x - s S, with the same rounding everywhere.
  HWY_INLINE V Difference(V x, V costs) const { return hn::NegMulAdd(hn::Set(D(), pass_.step), costs, x); }
  // [X - s S + phi + psi]_+
  HWY_INLINE V Positive(int k, std::int64_t r, V costs, V phi) const {
    V const x = hn::LoadU(D(), x_ + k * pass_.stride + r);
    V const difference = kKind == PassKind::from_difference ? x : Difference(x, costs);
    return hn::Max(hn::Add(hn::Add(difference, phi), hn::Set(D(), psi_[k])), hn::Zero(D()));
  }

  // Computes in factors_ the factor of each V: group_factor() times that of the quadratic term.
  HWY_INLINE void FindFactors() const {
    D const d;
    std::int64_t const stride = pass_.scratch_stride(), groups = std::ssize(pass_.group_begin) - 1;
    for (std::int64_t g = 0; g < groups; ++g) {
      V squares[kColumns];
      for (int k = 0; k < kColumns; ++k) squares[k] = hn::Zero(d);
      std::int64_t const end = GroupBegin(g + 1);
      for (std::int64_t r = GroupBegin(g); r < end; r += kLanes) {
        auto const is_inside = hn::FirstN(d, to_size(end - r));
        V const phi = hn::LoadU(d, pass_.phi + r);
        HWY_UNROLL(4)
        for (int k = 0; k < kColumns; ++k) {
          V const v = hn::IfThenElseZero(is_inside, Positive(k, r, Costs(k, r), phi));
          squares[k] = hn::MulAdd(v, v, squares[k]);
        }
      }
      for (int k = 0; k < kColumns; ++k) norms_[k * stride + g] = hn::GetLane(hn::SumOfLanes(d, squares[k]));
    }
    for (int k = 0; k < kColumns; ++k) {
      T* const norms = norms_ + k * stride;
      for (std::int64_t g = 0; g < groups; g += kLanes) {
        V const norm = hn::Sqrt(hn::LoadU(d, norms + g)), threshold = hn::LoadU(d, pass_.thresholds.data() + g);
        V const kept = hn::Sub(hn::Set(d, T(1)), hn::Div(threshold, norm));
        V const factor = hn::IfThenElseZero(hn::Gt(norm, threshold), hn::Mul(hn::Set(d, pass_.prox.shrink), kept));
        hn::StoreU(factor, d, norms + g);
      }
      // Writes whole vectors. Excess lanes belong to the next group, or to padding, where no factor may be infinite.
      for (std::int64_t g = 0; g < groups; ++g) {
        V const factor = hn::Set(d, norms[g]);
        for (std::int64_t r = GroupBegin(g); r < GroupBegin(g + 1); r += kLanes)
          hn::StoreU(factor, d, factors_ + k * stride + r);
      }
      std::fill(factors_ + k * stride + pass_.rows, factors_ + (k + 1) * stride, T(0));
    }
  }
  // Computes in factors_ the entries themselves.
  HWY_INLINE void FindEntries() const {
    D const d;
    std::int64_t const stride = pass_.scratch_stride(), groups = std::ssize(pass_.group_begin) - 1;
    for (int k = 0; k < kColumns; ++k) {
      T* const column = factors_ + k * stride;
      // Writes whole vectors. Excess lanes belong to the next group, which comes later, or to padding.
      for (std::int64_t g = 0; g < groups; ++g) {
        std::int64_t const begin = GroupBegin(g), end = GroupBegin(g + 1);
        V squares = hn::Zero(d);
        std::int64_t count = 0;
        for (std::int64_t r = begin; r < end; r += kLanes) {
          auto const is_inside = hn::FirstN(d, to_size(end - r));
          V const v = hn::IfThenElseZero(is_inside, Positive(k, r, Costs(k, r), hn::LoadU(d, pass_.phi + r)));
          squares = hn::MulAdd(v, v, squares);
          count += static_cast<std::int64_t>(hn::CountTrue(d, hn::Gt(v, hn::Zero(d))));
          hn::StoreU(v, d, column + r);
        }
        T const norm = std::sqrt(hn::GetLane(hn::SumOfLanes(d, squares)));
        GroupProx<T>(pass_.prox, pass_.thresholds[to_size(g)], column + begin, end - begin, norm, count);
      }
      std::fill(column + pass_.rows, column + stride, T(0));
    }
  }
  HWY_INLINE std::int64_t GroupBegin(std::int64_t g) const { return pass_.group_begin[to_size(g)]; }

  HWY_INLINE V Apply(int k, std::int64_t r, V v) const {
    if constexpr (kProx == Prox::scaled) return hn::Mul(v, hn::Set(D(), pass_.prox.shrink));
    if constexpr (kProx == Prox::grouped) return hn::Mul(v, hn::LoadU(D(), factors_ + k * pass_.scratch_stride() + r));
    if constexpr (kProx == Prox::hypentropy) return rule_(v);
    if constexpr (kProx == Prox::grouped_hypentropy) return hn::LoadU(D(), factors_ + k * pass_.scratch_stride() + r);
  }

  HWY_INLINE void Update(std::int64_t begin, std::int64_t end, T* row_sums, double* column_sums) const {
    D const d;
    V sums[kColumns];
    for (int k = 0; k < kColumns; ++k) sums[k] = hn::Zero(d);
    for (std::int64_t r = begin; r < end; r += kLanes) {
      V const phi = hn::LoadU(d, pass_.phi + r);
      V row_sum = hn::LoadU(d, row_sums + r);
      HWY_UNROLL(4)
      for (int k = 0; k < kColumns; ++k) {
        V const costs = Costs(k, r);
        V const x = Apply(k, r, Positive(k, r, costs, phi));
        hn::StoreU(kKind == PassKind::keep_difference ? Difference(x, costs) : x, d, x_ + k * pass_.stride + r);
        row_sum = hn::Add(row_sum, x);
        sums[k] = hn::Add(sums[k], x);
      }
      hn::StoreU(row_sum, d, row_sums + r);
    }
    for (int k = 0; k < kColumns; ++k) column_sums[k] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sums[k])));
  }

  SplittingPass<T> const& pass_;
  EntryRule<T, kProx> const& rule_;
  T* const x_;
  T const* const costs_;
  T const* const psi_;
  T* const factors_;  // One for each row, column by column; with grouped_hypentropy the entries.
  T* const norms_;    // Column by column, one for each group.
};

template <class T, PassKind kKind, Prox kProx>
HWY_NOINLINE void PassOverColumns(SplittingPass<T> const& pass, std::int64_t first, std::int64_t columns, T* row_sums,
                                  double* column_sums, T* scratch) {
  EntryRule<T, kProx> const rule(pass.prox);
  std::int64_t k = 0;
  for (; k + kPassColumns <= columns; k += kPassColumns)
    Columns<T, kPassColumns, kKind, kProx>(pass, rule, first + k, scratch).Run(row_sums, column_sums + k);
  for (; k < columns; ++k) Columns<T, 1, kKind, kProx>(pass, rule, first + k, scratch).Run(row_sums, column_sums + k);
}

template <class T, Prox kProx>
void PassOfKind(SplittingPass<T> const& pass, std::int64_t first, std::int64_t columns, T* row_sums,
                double* column_sums, T* scratch) {
  switch (pass.kind) {
    case PassKind::keep_difference:
      return PassOverColumns<T, PassKind::keep_difference, kProx>(pass, first, columns, row_sums, column_sums, scratch);
    case PassKind::from_difference:
      return PassOverColumns<T, PassKind::from_difference, kProx>(pass, first, columns, row_sums, column_sums, scratch);
    case PassKind::plain:
      return PassOverColumns<T, PassKind::plain, kProx>(pass, first, columns, row_sums, column_sums, scratch);
  }
}

template <class T>
void Pass(SplittingPass<T> const& pass, std::int64_t first, std::int64_t columns, T* row_sums, double* column_sums,
          T* scratch) {
  std::fill_n(row_sums, padded_to_vectors<T>(pass.rows), T(0));
  bool const grouped = !pass.thresholds.empty();
  if (pass.prox.hypentropy > 0 && grouped) {
    PassOfKind<T, Prox::grouped_hypentropy>(pass, first, columns, row_sums, column_sums, scratch);
  } else if (pass.prox.hypentropy > 0) {
    PassOfKind<T, Prox::hypentropy>(pass, first, columns, row_sums, column_sums, scratch);
  } else if (grouped) {
    PassOfKind<T, Prox::grouped>(pass, first, columns, row_sums, column_sums, scratch);
  } else {
    PassOfKind<T, Prox::scaled>(pass, first, columns, row_sums, column_sums, scratch);
  }
}

void PassF32(SplittingPass<float> const& pass, std::int64_t first, std::int64_t columns, float* row_sums,
             double* column_sums, float* scratch) {
  Pass(pass, first, columns, row_sums, column_sums, scratch);
}
void PassF64(SplittingPass<double> const& pass, std::int64_t first, std::int64_t columns, double* row_sums,
             double* column_sums, double* scratch) {
  Pass(pass, first, columns, row_sums, column_sums, scratch);
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(PassF32);
HWY_EXPORT(PassF64);

template <>
void pass_over_columns(SplittingPass<float> const& pass, std::int64_t first, std::int64_t columns, float* row_sums,
                       double* column_sums, float* scratch) {
  HWY_DYNAMIC_DISPATCH(PassF32)(pass, first, columns, row_sums, column_sums, scratch);
}
template <>
void pass_over_columns(SplittingPass<double> const& pass, std::int64_t first, std::int64_t columns, double* row_sums,
                       double* column_sums, double* scratch) {
  HWY_DYNAMIC_DISPATCH(PassF64)(pass, first, columns, row_sums, column_sums, scratch);
}

}  // namespace monge::cpu
#endif
