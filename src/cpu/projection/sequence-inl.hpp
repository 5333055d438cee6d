// Code of both passes: the sequence of half-steps (projection/problem.hpp), and the choice of the code for a problem.
#if defined(MONGE_CPU_PROJECTION_SEQUENCE) == defined(HWY_TARGET_TOGGLE)
#ifdef MONGE_CPU_PROJECTION_SEQUENCE
#undef MONGE_CPU_PROJECTION_SEQUENCE
#else
#define MONGE_CPU_PROJECTION_SEQUENCE
#endif

#include "cpu/projection/group-inl.hpp"
#include "cpu/projection/linear-inl.hpp"
#include "cpu/projection/log-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

/// Does all half-steps of the group that begins at `first`. kRemember: keeps the scalings after each. False: the steps
/// of this domain do not serve the group (Linear::clamps).
template <class Domain, bool kRemember, class G>
HWY_INLINE bool iterate(G& g, std::int64_t first) {
  ProjectionProblem const& problem = g.problem;
  g.load(first, Domain::neutral_scaling);
  Domain::start(g);
  bool const checks = !Domain::uniform && problem.tolerance > 0;
  auto const row_step = [&](int entry, bool check) {
    Domain::step(g, g.rows, g.columns, check);
    if constexpr (kRemember) g.remember(entry, g.rows);
  };
  auto const column_step = [&](int entry, bool check) {
    Domain::step(g, g.columns, g.rows, check);
    if constexpr (kRemember) g.remember(entry, g.columns);
  };
  if constexpr (kRemember) {
    g.remember(0, g.rows);
    g.remember(1, g.columns);
  }
  if (problem.lead) column_step(1, false);
  g.pairs = 0;
  while (g.pairs < problem.pairs) {
    row_step(2 * g.pairs + 2, checks && !problem.columns_first && (g.pairs > 0 || problem.lead));
    column_step(2 * g.pairs + 3, checks && problem.columns_first);
    ++g.pairs;
    if constexpr (Domain::tentative) {
      if (g.pairs == 1 && Domain::clamps(g)) return false;
    }
    if constexpr (!Domain::uniform) {
      g.count = SelectLess(g.done, Set(0), Add(g.count, Set(1)), g.count);
      if (checks && !AnyLess(g.done, Set(0))) break;
    }
  }
  if (problem.trail) row_step(2 * g.pairs + 2, false);
  return true;
}

/// Calls Pass::run<Domain>(group, first) for each group of [first, last), and again with general steps where that
/// returns false. The group is local, so that its numbers can lie in registers.
template <class Pass, class Domain, int kSize>
HWY_NOINLINE void run_groups(ProjectionRange const& range, std::int64_t first, std::int64_t last) {
  Group<kSize> group(range, Pass::kBackward);
  for (; first < last; first += kLanes) {
    [[maybe_unused]] bool const done = Pass::template run<Domain>(group, first);
    if constexpr (Domain::tentative) {
      if (!done) run_groups<Pass, Linear<Steps::general>, kSize>(range, first, first + 1);
    }
  }
}

template <class Pass>
void for_each_group(ProjectionRange const& range) {
  ProjectionProblem const& problem = *range.problem;
  auto const linear = [&](auto domain) {
    using Domain = decltype(domain);
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM  // Where there are enough registers.
    if (problem.rows == 4 && problem.columns == 4 && !problem.dustbin())
      return run_groups<Pass, Domain, 4>(range, range.first, range.last);
#endif
    run_groups<Pass, Domain, 0>(range, range.first, range.last);
  };
  if (problem.log_domain) return run_groups<Pass, Logarithmic, 0>(range, range.first, range.last);
  switch (steps_of(problem)) {
    case Steps::plain:
      return linear(Linear<Steps::plain>());
    case Steps::guarded:
      return linear(Linear<Steps::guarded>());
    case Steps::general:
      return linear(Linear<Steps::general>());
  }
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
