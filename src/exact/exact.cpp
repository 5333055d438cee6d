#include <monge/exact.hpp>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/numbers.hpp"
#include "core/require.hpp"
#include "exact/exact_solve.hpp"
#include "geometry/validation.hpp"

namespace monge {
namespace {

/// Up to this many pairs all are candidates.
constexpr std::int64_t kAllPairs = 1 << 17;

}  // namespace

ExactSolve::ExactSolve(Context const& context, Geometry const* geometry, PairCosts costs, Shape shape, VectorView a,
                       VectorView b, ExactOptions const& options)
    : context_(context),
      geometry_(geometry),
      options_(options),
      n_(shape.rows),
      m_(shape.columns),
      marginals_(marginals_of(backend_of(context), a, b, shape, options)),
      reachable_(marginals_),
      masses_(masses_of(marginals_, options)),
      costs_(std::move(costs)),
      simplex_(masses_.a, masses_.b) {
  if (is_relaxed(options_)) open_dustbin();
  WarmStart const warm = warm_start();
  has_all_candidates_ = costs_.is_sparse() || n_ * m_ <= kAllPairs;
  if (has_all_candidates_) {
    take_all_pairs(warm.g);
  } else if (warm.f.empty()) {
    take_entropic_candidates();
  } else if (options_.start) {
    v_ = warm.g;
    take(best_pairs(), warm.g);
  } else {
    take_candidates_near(warm);
  }
  report_.seconds.start = watch_.seconds();
}

ExactPlan ExactSolve::solve() {
  while (!improve()) {
  }
  if (stopped_ && best_dual_ < 0) price_of_zero();
  std::vector<PlanEntry> const entries = simplex_.entries();
  Proof proof = proof_of(entries);
  split_mass_price();
  complete_potentials();
  hide_dropped();
  if (dropped_ > 0 && !proof.holds(hidden_) && proof.holds(hidden_ - dropped_)) proof.allowed += tolerated(entries);
  return result(proof);
}

std::vector<Arc> ExactSolve::priced(std::vector<Arc> arcs) {
  std::erase_if(arcs, [&](Arc const& arc) { return !has_mass(arc.row, arc.column); });
  costs_.set(arcs);
  return finite(std::move(arcs));
}

std::vector<Arc> ExactSolve::finite(std::vector<Arc> arcs) {
  std::erase_if(arcs, [](Arc const& arc) { return std::isinf(arc.cost); });
  for (Arc const& arc : arcs) report_.cost_scale = std::max(report_.cost_scale, std::abs(arc.cost));
  double const most = std::numeric_limits<double>::max() / 16 / static_cast<double>(n_ + m_ + 2);
  require(report_.cost_scale <= most, "cost: is up to {}, with penalties; must be at most {:.1e}: sums must be finite",
          report_.cost_scale, most);
  return arcs;
}

namespace {

void validate_start(ExactPlan const& plan, Shape shape) {
  std::int64_t const n = plan.rows(), m = plan.columns(), count = std::ssize(plan.column_indices);
  require(n == shape.rows && m == shape.columns, "start: is a plan of {} x {} points; must be one of {} x {}", n, m,
          shape.rows, shape.columns);
  std::vector<std::int64_t> const& begin = plan.row_begin;
  require(std::ssize(begin) == n + 1 && begin.front() == 0 && begin.back() == count && std::ranges::is_sorted(begin) &&
              std::ssize(plan.values) == count &&
              std::ranges::all_of(plan.column_indices, [&](std::int64_t j) { return j >= 0 && j < m; }),
          "start: is no CSR matrix; must be a plan of solve_exact()");
}

void add(Digests& inputs, Geometry const& geometry) {
  inputs.add(geometry);
}

void add(Digests& inputs, SparseCost const& cost) {
  inputs.add("columns", cost.columns);
  inputs.add("row_begin", cost.row_begin);
  inputs.add("column_indices", cost.column_indices);
  inputs.add("values", cost.values);
}

Shape shape_of(SparseCost const& cost) {
  return {cost.rows(), cost.columns, 0};
}

void validate(SparseCost const& cost, Device context) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;  // Pairs are counted in 32 bits.
  require(cost.rows() >= 1 && cost.columns >= 1, "cost: is {} x {}; must have rows and columns", cost.rows(),
          cost.columns);
  for (auto const& [field, view] : {std::pair{"row_begin", cost.row_begin}, {"column_indices", cost.column_indices}})
    require(view.device.type == DeviceType::cpu && (view.data != nullptr || view.empty()),
            "{}: lies on {}; must be in host memory", field, to_string(view.device));
  require(cost.column_indices.size <= kMost, "column_indices: has {} pairs; must have at most {}",
          cost.column_indices.size, kMost);
  require(cost.values.size() == cost.column_indices.size, "values: has size {}; must be {}, one of each pair",
          cost.values.size(), cost.column_indices.size);
  if (!cost.values.empty()) validate_vector("values", cost.values, cost.values.size(), context);
}

/// Checks the arguments and calls make(), which solves.
template <class Cost, class Make>
ExactPlan solve_any(Context const& context, Cost const& cost, VectorView a, VectorView b, ExactOptions const& options,
                    Make const& make) {
  auto const inputs = [&](Digests& inputs) {
    visit_exact_options(options, inputs);
    inputs.add("progress", static_cast<bool>(options.progress));
    add(inputs, cost);
    inputs.add("a", a);
    inputs.add("b", b);
    inputs.add("f", options.f);
    inputs.add("g", options.g);
    inputs.add("start", options.start != nullptr);
    if (options.start) {
      auto const indices = [&](std::vector<std::int64_t> const& of) { return IndexView{of.data(), std::ssize(of)}; };
      inputs.add("start.row_begin", indices(options.start->row_begin));
      inputs.add("start.column_indices", indices(options.start->column_indices));
      inputs.add("start.values", options.start->values);
      inputs.add("start.f", options.start->f);
      inputs.add("start.g", options.start->g);
      inputs.add("start.mass_price", options.start->report.mass_price);
    }
  };
  return in_step(context, "solve_exact", inputs, [&] {
    visit_exact_options(options, kCheckField);
    validate(cost, context.device());
    Shape const shape = shape_of(cost);
    if (options.start) validate_start(*options.start, shape);
    constexpr std::int64_t kMost = std::int64_t{1} << 27;  // Candidates are counted in 32 bits.
    require(std::max(shape.rows, shape.columns) <= kMost, "cost: is {} x {}; must have at most {} rows and columns",
            shape.rows, shape.columns, kMost);
    require(std::max(shape.rows, shape.columns) <= kMost / options.candidates,
            "candidates: is {} for {} x {} points; must be at most {}, of a side's points", options.candidates,
            shape.rows, shape.columns, kMost / std::max(shape.rows, shape.columns));
    ExactOptions now = options;
    now.progress = agreed(context, options.progress);
    return make(shape, now);
  });
}

}  // namespace

ExactPlan solve_exact(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
                      ExactOptions const& options) {
  return solve_any(context, geometry, a, b, options, [&](Shape shape, ExactOptions const& now) {
    return ExactSolve(context, &geometry, PairCosts(backend_of(context), geometry), shape, a, b, now).solve();
  });
}

ExactPlan solve_exact(Context const& context, SparseCost const& cost, VectorView a, VectorView b,
                      ExactOptions const& options) {
  return solve_any(context, cost, a, b, options, [&](Shape shape, ExactOptions const& now) {
    return ExactSolve(context, nullptr, PairCosts(backend_of(context), cost), shape, a, b, now).solve();
  });
}

}  // namespace monge
