#include "exact/exact_solve.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace monge {
namespace {

/// The largest gap of an optimal plan, as a fraction of its cost.
constexpr double kMostGap = 1e-6;

}  // namespace

ExactSolve::Proof ExactSolve::proof_of(std::vector<PlanEntry> const& entries) {
  CompensatedSum gap;
  Proof proof{};
  for (PlanEntry const& entry : entries) {
    double const value = masses_.weight(entry.mass), f = f_[to_size(entry.row)], g = g_[to_size(entry.column)];
    gap.add(value * (entry.cost - f - g));
    proof.rounding += 0x1p-52 * value * std::abs(entry.cost) + 0x1p-52 * value * std::abs(f) +
                      0x1p-52 * value * std::abs(g);  // Terms apart, since a sum may overflow.
    proof.allowed += kMostGap * value * std::abs(entry.cost);
  }
  proof.gap = gap.value();
  if (!proof.holds(hidden_)) proof.allowed += tolerated(entries);
  return proof;
}

double ExactSolve::tolerated(std::vector<PlanEntry> const& entries) {
  std::vector<double> least(to_size(n_), kInfinity);
  std::vector<bool> is_sampled(to_size(n_), false);
  for (Arc const& arc : sample()) {
    is_sampled[to_size(arc.row)] = true;
    if (arc.cost != 0) least[to_size(arc.row)] = std::min(least[to_size(arc.row)], std::abs(arc.cost));
  }
  double const total = static_cast<double>(total_of(masses_.a));
  double moved = 0, at_cost = 0, logarithms = 0;  // Shares of the mass: all, and of rows with a least.
  for (PlanEntry const& entry : entries) {
    if (is_dustbin(entry) || !is_sampled[to_size(entry.row)]) continue;
    double const share = static_cast<double>(entry.mass) / total;
    moved += share;
    if (std::isinf(least[to_size(entry.row)])) continue;
    at_cost += share;
    logarithms += share * std::log(least[to_size(entry.row)]);
  }
  double const typical = at_cost > 0 ? at_cost / moved * std::exp(logarithms / at_cost) : 0;
  return options_.tolerance * std::min(marginals_.total_a, options_.mass) * typical;
}

void ExactSolve::complete_potentials() {
  complete(Side::columns);
  complete(Side::rows);
}

void ExactSolve::complete(Side side) {
  bool const by_rows = side == Side::rows;
  std::vector<double>&own = by_rows ? f_ : g_, &others = by_rows ? g_ : f_;
  std::vector<Mass> const &mass = by_rows ? masses_.a : masses_.b, &other_mass = by_rows ? masses_.b : masses_.a;
  if (std::find(mass.begin(), mass.end(), Mass{0}) == mass.end()) return;
  // Columns have their potentials before rows do.
  auto const counts = [&](std::size_t j) { return other_mass[j] > 0 || (by_rows && std::isfinite(others[j])); };
  std::vector<double> const& price = by_rows ? leaving_.price : lacking_.price;
  for (std::size_t i = 0; i < to_size(by_rows ? n_ : m_); ++i) {
    if (mass[i] == 0) own[i] = price.empty() ? kInfinity : price[i] - others.back();
  }
  for_each_pair(
      side, [&](std::size_t i) { return mass[i] == 0; }, counts,
      [&](Arc const& arc) {
        double& potential = own[to_size(by_rows ? arc.row : arc.column)];
        potential = std::min(potential, arc.cost - others[to_size(by_rows ? arc.column : arc.row)]);
      });
}

void ExactSolve::hide_dropped() {
  auto const add = [&](std::vector<double> const& weights, std::vector<Mass> const& masses,
                       std::vector<double> const& potentials) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      bool const is_dropped = masses[i] == 0 && weights[i] > 0 && weights[i] < masses_.weight(1);
      if (is_dropped && std::isfinite(potentials[i]))
        dropped_ += weights[i] * std::abs(potentials[i]) + weights[i] * potential_scale_;
    }
  };
  add(marginals_.a, masses_.a, f_);
  add(marginals_.b, masses_.b, g_);
  hidden_ += dropped_;
  best_dual_ -= dropped_;
}

std::vector<PlanEntry> ExactSolve::plan_entries(CompensatedSum& penalties) const {
  std::vector<PlanEntry> entries = simplex_.entries();
  for (PlanEntry& entry : entries) {
    if (!is_dustbin(entry)) continue;
    double const value = masses_.weight(entry.mass);
    bool const leaves = entry.row < n_, lacks = entry.column < m_;
    Prices const& prices = leaves ? leaving_ : lacking_;
    std::int32_t const partner = leaves == lacks ? -1 : prices.partner[to_size(leaves ? entry.row : entry.column)];
    double const penalty = partner < 0 ? entry.cost : leaves ? options_.penalty_b : options_.penalty_a;
    penalties.add(value * penalty);
    if (partner < 0) continue;
    (leaves ? entry.column : entry.row) = partner;
    costs_.set({static_cast<Arc*>(&entry), 1});
  }
  std::erase_if(entries, [&](PlanEntry const& entry) { return is_dustbin(entry); });
  std::sort(entries.begin(), entries.end());
  for (std::size_t k = entries.size(); k-- > 1;) {
    if (entries[k].is_same_pair(entries[k - 1])) entries[k - 1].mass += std::exchange(entries[k].mass, 0);
  }
  std::erase_if(entries, [](PlanEntry const& entry) { return entry.mass == 0; });
  return entries;
}

std::string ExactSolve::message(double rounding) const {
  switch (report_.status) {
    case ExactStatus::optimal:
      return "The plan is optimal.";
    case ExactStatus::precision_limit:
      if (dropped_ > report_.gap / 2)
        return fmt::format(
            "The gap is {:.1e}, above a millionth of the cost of the plan, since weights of up to {:.1e} count as 0 "
            "and "
            "may cost {:.1e}; set them to 0.",
            report_.gap, masses_.weight(1) / 2, dropped_);
      return fmt::format(
          "The gap is {:.1e}, of which rounding hides up to {:.1e}, above a millionth of the cost of the plan, since "
          "costs are up to {:.1e}{}.",
          report_.gap, rounding, report_.cost_scale, costs_.may_forbid() ? "; forbid the largest by inf" : "");
    case ExactStatus::round_limit:
      return "The limit of rounds was reached; allow more of them.";
    case ExactStatus::stopped:
      break;
  }
  return "The progress callback stopped the solve.";
}

ExactPlan ExactSolve::result(Proof const& proof) {
  ExactPlan plan;
  CompensatedSum cost, penalties;
  std::vector<PlanEntry> const entries = plan_entries(penalties);
  if (report_.status == ExactStatus::optimal && !proof.holds(hidden_)) report_.status = ExactStatus::precision_limit;
  report_.mass_price = is_partial(options_) ? 0 - 2 * g_.back() : 0;  // 0, not -0.
  f_.resize(to_size(n_));
  g_.resize(to_size(m_));
  plan.f = std::move(f_);
  plan.g = std::move(g_);
  plan.row_begin.assign(to_size(n_ + 1), 0);
  Mass sum = 0;
  for (PlanEntry const& entry : entries) {
    double const value = masses_.weight(entry.mass);
    ++plan.row_begin[to_size(entry.row) + 1];
    plan.column_indices.push_back(entry.column);
    plan.values.push_back(value);
    cost.add(value * entry.cost);
    sum += entry.mass;
  }
  std::partial_sum(plan.row_begin.begin(), plan.row_begin.end(), plan.row_begin.begin());
  report_.candidates = simplex_.arcs();
  report_.pivots = simplex_.pivots();
  report_.nonzeros = static_cast<std::int64_t>(entries.size());
  report_.mass = marginals_.total_a;
  report_.transported_mass = masses_.weight(sum);
  report_.missing_mass = masses_.weight(simplex_.left());
  report_.transport_cost = cost.value();
  report_.value = cost.value() + penalties.value();
  report_.dual = best_dual_;
  report_.gap = simplex_.left() == 0 ? proof.bound(hidden_) : std::numeric_limits<double>::quiet_NaN();
  report_.message = message(proof.rounding + hidden_);
  report_.seconds.total = watch_.seconds();
  plan.report = std::move(report_);
  return plan;
}

}  // namespace monge
