// Exact optimal transport, without regularisation:
//   min <C, P>   subject to  P 1 = a,  P^T 1 = b,  P >= 0.
// Potentials of an entropic solve choose candidate pairs, the network simplex method finds the optimum on these, and a
// pass over all pairs in float64 finds pairs that would lower it. They join the candidates until there are none.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <monge/context.hpp>
#include <monge/geometry.hpp>
#include <monge/options.hpp>

namespace monge {

/// How an exact solve ended.
enum class ExactStatus {
  optimal,      ///< The pass over all pairs has proved the plan optimal, to the tolerance.
  round_limit,  ///< `rounds` passes did not prove it. The plan has its marginals, and the gap bounds what it lacks.
  stopped,      ///< The progress callback asked to stop. Mass may be missing from the plan; the dual value is a bound.
};
constexpr auto names_of(ExactStatus) {
  using enum ExactStatus;
  return std::to_array<Named<ExactStatus>>({{optimal, "optimal"}, {round_limit, "round_limit"}, {stopped, "stopped"}});
}

/// Argument of a progress callback, called in each round and now and then within it.
struct ExactProgress {
  int iteration = 0;                                       ///< Passes over all pairs so far.
  std::int64_t candidates = 0;                             ///< Pairs.
  double missing = 1;                                      ///< Share of the mass that the plan lacks so far.
  double dual = -std::numeric_limits<double>::infinity();  ///< The best lower bound so far.
  double seconds = 0;                                      ///< Since the solve began.
};

/// Options of solve_exact().
struct ExactOptions {
  /// A plan is optimal if each C_ij - f_i - g_j is at least -tolerance times ExactReport::cost_scale. > 0; below 1e-14
  /// rounding may prevent a proof.
  double tolerance = 1e-12;
  /// Candidates of each row and of each column at the start, >= 1.
  int candidates = 12;
  /// Limit of the passes over all pairs, >= 1.
  int rounds = 100;

  VectorView f = {};  ///< Warm start (n), with g: potentials of this problem or of one like it. Finite where a_i > 0.
  VectorView g = {};  ///< Warm start (m).
  std::function<bool(ExactProgress const&)> progress = {};  ///< Return false to stop.
};

/// Calls visit(Field, member), in this order, for each field that a name and a value can set.
template <class Options, class Visitor>
void visit_exact_options(Options& options, Visitor&& visit) {
  visit(Field{"tolerance", kPositive, "largest violation of a reduced cost, as a share of the scale of the costs"},
        options.tolerance);
  visit(Field{"candidates", at_least(1), "pairs of each row and of each column that the first round takes"},
        options.candidates);
  visit(Field{"rounds", at_least(1), "at most this many passes over all pairs"}, options.rounds);
}

/// The result of a solve. Values are float64, for the costs as given and in their units.
struct ExactReport {
  ExactStatus status = ExactStatus::optimal;
  std::string message;            ///< One sentence: the end and, if short of a proof, a remedy.
  int rounds = 0;                 ///< Passes over all pairs that looked for better ones.
  std::int64_t candidates = 0;    ///< Pairs of the last round.
  std::int64_t pivots = 0;        ///< Of the network simplex method.
  std::int64_t nonzeros = 0;      ///< Of the plan.
  double mass = 0;                ///< sum a.
  double transported_mass = 0;    ///< sum P: less than the mass only if the solve was stopped.
  double transport_cost = 0;      ///< <C, P>
  double dual = 0;                ///< <a, f> + <b, g>, a lower bound of the optimum.
  double gap = 0;                 ///< sum_ij P_ij (C_ij - f_i - g_j): transport_cost - dual without cancellation.
  double worst_reduced_cost = 0;  ///< The least C_ij - f_i - g_j that the last pass met, or 0 if none was negative.
  double cost_scale = 0;          ///< The largest |C_ij| of a candidate.
  struct {
    double start = 0, search = 0, pricing = 0, total = 0;
  } seconds;
};

/// An optimal plan with at most n + m - 1 positive entries, as a CSR matrix, and optimal potentials. Equal n and m with
/// uniform weights give a permutation. Points of zero weight have no entries; their potentials are the largest that all
/// pairs allow, +infinity where no finite cost bounds them.
struct ExactPlan {
  ExactReport report;
  std::vector<std::int64_t> row_begin;       ///< n + 1: the entries in the rows before each.
  std::vector<std::int64_t> column_indices;  ///< j of each entry, ascending within a row.
  std::vector<double> values;                ///< P_ij of each entry.
  /// Potentials in units of C: f (n), g (m). They are derivatives of the optimum by a and b, up to the constant t of
  /// (f + t, g - t). The derivative by C_ij is P_ij.
  std::vector<double> f, g;

  std::int64_t rows() const { return static_cast<std::int64_t>(f.size()); }
  std::int64_t columns() const { return static_cast<std::int64_t>(g.size()); }
};

/// Solves the problem at the head of this file. a (n) and b (m) are non-negative with positive totals, equal to 1e-6
/// relative; b is scaled to the total of a. An empty a or b is uniform with total 1, or with the total of the other if
/// that one is given. Masses are exact: whole weights give whole entries. Pairs of infinite cost have no mass. Memory
/// is O((n + m) (d + candidates)) beside a cost matrix; the passes over all pairs run on the device of the context, the
/// rest on one thread of the host. Throws Error (invalid_argument: also if forbidden pairs leave no plan; unsupported;
/// out_of_memory; device_failure).
ExactPlan solve_exact(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
                      ExactOptions const& options = {});

}  // namespace monge
