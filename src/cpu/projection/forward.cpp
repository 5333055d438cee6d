// The forward pass over a range of matrices. Highway compiles this file once for each instruction set and picks one at
// run time.
#include "cpu/pass/simd_targets.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/projection/forward.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come first.
#include "cpu/projection/sequence-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

struct Forward {
  static constexpr bool kBackward = false;

  template <class Domain, class G>
  HWY_INLINE static bool run(G& g, std::int64_t first) {
    if (!iterate<Domain, false>(g, first)) return false;
    int const n = g.rows.size(), m = g.columns.size();
    MONGE_UNROLL(4)
    for (int i = 0; i < n; ++i) {
      MONGE_UNROLL(4)
      for (int j = 0; j < m; ++j) g.staging.set(i * m + j, Domain::entry(g, i, j));
    }
    g.write(g.range.result, first);
    return true;
  }
};

void project_range(ProjectionRange const& range) {
  for_each_group<Forward>(range);
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(project_range);

void project_range(ProjectionRange const& range) {
  HWY_DYNAMIC_DISPATCH(project_range)(range);
}

}  // namespace monge::cpu
#endif
