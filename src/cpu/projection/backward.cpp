// The backward pass over a range of matrices. It repeats the half-steps, keeps the scalings, and undoes them in
// reverse.
#include "cpu/pass/simd_targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/projection/backward.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include "cpu/projection/sequence-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

struct Backward {
  static constexpr bool kBackward = true;

  template <class Domain, class G>
  HWY_INLINE static bool run(G& g, std::int64_t first) {
    if (!iterate<Domain, true>(g, first)) return false;
    g.read(g.range.gradient, first, g.d_out);
    clear(g.rows.bar, g.rows.size());
    clear(g.columns.bar, g.columns.size());
    Domain::start_back(g);
    if constexpr (Domain::weighted) forget_chains(g);
    if constexpr (Domain::uniform) {
      unrolled<Domain>(g, Set(-1));
    } else {
      Pack const limit = g.problem.implicit ? converged<Domain>(g) : Set(1);
      unrolled<Domain>(g, Sub(Set(0), limit));
      if (g.problem.implicit) implicit<Domain>(g, limit);
    }
    finish<Domain>(g, first);
    return true;
  }

 private:
  template <class P>
  HWY_INLINE static void clear(P& packs, int size) {
    for (int i = 0; i < size; ++i) packs.set(i, Set(0));
  }
  template <class G>
  HWY_INLINE static void forget_chains(G& g) {
    clear(g.rows.chain, g.rows.size());
    clear(g.columns.chain, g.columns.size());
  }

  /// Undoes the half-steps of each matrix, in the lanes where wanted < 0.
  template <class Domain, class G>
  MONGE_STEP static void unrolled(G& g, Pack const& wanted) {
    auto const row_back = [&](int entry, Pack const& active) {
      Domain::back(g, g.rows, g.columns, g.scalings(entry), g.scalings(entry - 1), active);
    };
    auto const column_back = [&](int entry, Pack const& active) {
      Domain::back(g, g.columns, g.rows, g.scalings(entry), g.scalings(entry - 1), active);
    };
    if (g.problem.trail) row_back(2 * g.pairs + 2, wanted);
    for (int pair = g.pairs - 1; pair >= 0; --pair) {
      Pack active = wanted;
      if constexpr (!Domain::uniform) active = SelectLess(Set(static_cast<float>(pair)), g.count, wanted, Set(1));
      column_back(2 * pair + 3, active);
      row_back(2 * pair + 2, active);
    }
    if (g.problem.lead) column_back(1, wanted);
  }

  /// -1 in the lanes where the sums of the first side are within the implicit tolerance, 1 in the others.
  template <class Domain, class G>
  MONGE_STEP static Pack converged(G const& g) {
    bool const by_rows = !g.problem.columns_first;
    Pack error = Set(0);
    for (int i = 0; i < (by_rows ? g.rows.size() : g.columns.size()); ++i) {
      Pack sum = Set(0);
      for (int j = 0; j < (by_rows ? g.columns.size() : g.rows.size()); ++j)
        sum = Add(sum, by_rows ? Domain::entry(g, i, j) : Domain::entry(g, j, i));
      float const marginal = by_rows ? g.rows.marginal(i) : g.columns.marginal(i);
      if (marginal > 0) error = Larger(Abs(Sub(Mul(sum, Set(1 / marginal)), Set(1))), error);
    }
    return SelectLess(error, above(g.problem.implicit_tolerance), Set(-1), Set(1));
  }

  /// The gradient of the limit: undoes the last pair of half-steps until the gradient that it passes on vanishes.
  template <class Domain, class G>
  MONGE_STEP static void implicit(G& g, Pack active) {
    int const u = g.problem.trail ? 2 * g.pairs + 2 : 2 * g.pairs, v = 2 * g.pairs + 1;
    bool const log_domain = g.problem.log_domain;
    forget_chains(g);
    if (g.problem.trail) Domain::back(g, g.rows, g.columns, g.scalings(u), g.scalings(v), active);
    forget_chains(g);
    int const most = 10 * (g.problem.pairs + 1) + 100;
    for (int step = 0; step < most && AnyLess(active, Set(0)); ++step) {
      Pack before = Set(0), after = Set(0);
      for (int e = 0; e < g.entries(); ++e)
        before = Larger(Abs(Mul(g.d_k.get(e), log_domain ? Set(1) : g.k.get(e))), before);
      Domain::back(g, g.columns, g.rows, g.scalings(v), g.scalings(u), active);
      Domain::back(g, g.rows, g.columns, g.scalings(u), g.scalings(v), active);
      forget_chains(g);
      for (int j = 0; j < g.columns.size(); ++j) {
        Pack const bar = g.columns.bar.get(j);
        after = Larger(Abs(log_domain ? bar : Mul(bar, g.columns.scaling.get(j))), after);
      }
      active = SelectLess(after, Mul(before, Set(1e-8f)), Set(1), active);
      active = SelectLess(after, Set(1e-30f), Set(1), active);
    }
  }

  template <class Domain, class G>
  MONGE_STEP static void finish(G& g, std::int64_t first) {
    Domain::finish_back(g);
    for (int e = 0; e < g.entries(); ++e) g.staging.set(e, Mul(g.staging.get(e), Set(g.problem.inverse_temperature)));
    g.write(g.range.result, first);
    if (g.range.d_dustbin_score == nullptr) return;
    int const n = g.rows.size(), m = g.columns.size();
    Pack sum = g.staging.get(n * m - 1);
    for (int i = 0; i + 1 < n; ++i) sum = Add(sum, g.staging.get(i * m + m - 1));
    for (int j = 0; j + 1 < m; ++j) sum = Add(sum, g.staging.get((n - 1) * m + j));
    g.staging.set(0, sum);
    std::copy_n(g.staging.values, g.lanes(first), g.range.d_dustbin_score + first);
  }
};

void project_backward_range(ProjectionRange const& range) {
  for_each_group<Backward>(range);
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(project_backward_range);

void project_backward_range(ProjectionRange const& range) {
  HWY_DYNAMIC_DISPATCH(project_backward_range)(range);
}

}  // namespace monge::cpu
#endif
