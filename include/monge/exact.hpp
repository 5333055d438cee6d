// Exact optimal transport, without regularisation:
//   min <C, P>   subject to  P 1 = a,  P^T 1 = b,  P >= 0,
// or a problem that leaves some of the mass where it is, by penalties or by the mass to transport:
//   min <C, P> + penalty_a |P 1 - a|_1 + penalty_b |P^T 1 - b|_1              (unbalanced, of total variation)
//   min <C, P>   subject to  P 1 <= a,  P^T 1 <= b,  sum P = mass              (partial)
// The potentials of an entropic solve choose candidate pairs. The network simplex method finds the optimum on the
// candidates, and a pass over all pairs in float64 finds pairs that would lower the cost. These pairs join the
// candidates. The solve ends when a pass finds no such pair.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <monge/context.hpp>
#include <monge/export.hpp>
#include <monge/geometry.hpp>
#include <monge/options.hpp>

namespace monge {

/// The end of an exact solve.
enum class ExactStatus {
  optimal,          ///< The pass over all pairs has proved the plan optimal, to the tolerance.
  precision_limit,  ///< No pair would lower the cost, but the gap, with a bound of its rounding error, exceeds a
                    ///< millionth of the cost of the plan, since the costs of other pairs are far larger.
  round_limit,      ///< `rounds` passes did not prove the plan optimal. It has the given marginals, and costs at most
                    ///< the gap more than the optimum.
  stopped,          ///< The callback asked to stop. Mass may be missing from the plan; the potentials are feasible and
                    ///< have the best dual value so far, a lower bound of the optimum.
};
constexpr auto names_of(ExactStatus) {
  using enum ExactStatus;
  return std::to_array<Named<ExactStatus>>(
      {{optimal, "optimal"}, {precision_limit, "precision_limit"}, {round_limit, "round_limit"}, {stopped, "stopped"}});
}

/// Argument of a progress callback, called in each round and now and then within it.
struct ExactProgress {
  int iteration = 0;                                       ///< Passes over all pairs so far.
  std::int64_t candidates = 0;                             ///< Candidate pairs.
  double missing = 1;                                      ///< Fraction of the mass that the plan lacks so far.
  double dual = -std::numeric_limits<double>::infinity();  ///< The best lower bound so far.
  double seconds = 0;                                      ///< Time since the solve began.
};

/// The costs of some pairs, as a CSR matrix in host memory; all other pairs are forbidden. A pair of cost 0 is a pair.
struct SparseCost {
  std::int64_t columns = 0;
  IndexView row_begin;       ///< n + 1: the pairs in the rows before each.
  IndexView column_indices;  ///< j of each pair, in any order within a row, without repetition.
  VectorView values;         ///< C_ij of each pair: finite, or +infinity to forbid it.

  std::int64_t rows() const { return row_begin.size - 1; }
};

struct ExactPlan;

/// Options of solve_exact().
struct ExactOptions {
  /// A plan is optimal under two conditions. Reduced costs: each C_ij - f_i - g_j is at least -tolerance times the
  /// smaller of the largest potential and ExactReport::cost_scale. Gap: with a bound of its rounding error, the gap is
  /// at most 1e-6 sum_ij P_ij |C_ij| + tolerance times mass times a typical cost. The typical cost is the geometric
  /// mean of the least costs of some rows, weighted by the mass that these rows move. > 0; below 1e-14 rounding may
  /// prevent a proof.
  double tolerance = 1e-12;
  /// Candidates of each row and of each column at the start, >= 1.
  int candidates = 12;
  /// Limit of the passes over all pairs, >= 1.
  int rounds = 100;

  /// Unbalanced transport: the penalties of |P 1 - a|_1 and |P^T 1 - b|_1, in units of C for each unit of mass. > 0;
  /// infinity makes the marginal a constraint. With equal penalties and costs >= 0 a unit of mass either moves or
  /// stays, and staying costs penalty_a + penalty_b. So P 1 <= a, P^T 1 <= b, and no pair of a higher cost has mass.
  /// The totals may differ.
  double penalty_a = std::numeric_limits<double>::infinity();
  double penalty_b = std::numeric_limits<double>::infinity();
  /// Partial transport: the mass of the plan, > 0 and at most the smaller total. Infinity: all of it.
  double mass = std::numeric_limits<double>::infinity();

  /// Warm start (n), with g (m): potentials of this problem or of one like it. Finite where a_i > 0. A start with
  /// entries above a thousand times the costs has no effect.
  VectorView f = {};
  VectorView g = {};  ///< Warm start (m).
  /// Warm start: the plan of an earlier problem with as many rows and columns. Its pairs are the first basis, and its
  /// potentials replace f and g where these are empty. With equal weights the plan is feasible at once. The object must
  /// outlive the solve.
  ExactPlan const* start = nullptr;
  std::function<bool(ExactProgress const&)> progress = {};  ///< Return false to stop.
};

/// Calls visit(Field, member), in this order, for each field that a name and a value can set.
template <class Options, class Visitor>
void visit_exact_options(Options& options, Visitor&& visit) {
  visit(Field{"tolerance", kPositive, "largest violation of a reduced cost, as a fraction of the scale of the costs"},
        options.tolerance);
  visit(Field{"candidates", at_least(1), "pairs of each row and of each column that the first round takes"},
        options.candidates);
  visit(Field{"rounds", at_least(1), "at most this many passes over all pairs"}, options.rounds);
  visit(Field{"penalty_a", kPositiveOrInfinite, "penalty of |P 1 - a|_1; infinity: a constraint"}, options.penalty_a);
  visit(Field{"penalty_b", kPositiveOrInfinite, "penalty of |P^T 1 - b|_1; infinity: a constraint"}, options.penalty_b);
  visit(Field{"mass", kPositiveOrInfinite, "mass to transport, at most the smaller total; infinity: all"},
        options.mass);
}

/// The result of a solve. Values are float64, for the costs as given and in their units.
struct ExactReport {
  ExactStatus status = ExactStatus::optimal;
  std::string message;            ///< One sentence: the end and, if short of a proof, a remedy.
  int rounds = 0;                 ///< Passes over all pairs that looked for better ones.
  std::int64_t candidates = 0;    ///< Pairs of the last round.
  std::int64_t pivots = 0;        ///< Pivots of the network simplex method.
  std::int64_t nonzeros = 0;      ///< Positive entries of the plan.
  double mass = 0;                ///< sum a.
  double transported_mass = 0;    ///< sum P
  double missing_mass = 0;        ///< Mass that the plan lacks: 0 unless the solve was stopped.
  double transport_cost = 0;      ///< <C, P>
  double value = 0;               ///< The objective: the transport cost and the penalties.
  double mass_price = 0;          ///< Partial transport: the derivative of the optimum by the mass, from below.
  double dual = 0;                ///< A lower bound of the optimum: <a, f> + <b, g>, less (sum a + sum b - 2 mass) / 2
                                  ///< times mass_price for partial transport, less a bound of the rounding error.
  double gap = 0;                 ///< The plan costs at most this more than the optimum: value - <a, f> - <b, g>, from
                                  ///< reduced costs without cancellation, plus a bound of the rounding error. NaN if
                                  ///< mass is missing.
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
  /// Potentials in units of C: f (n), g (m), with f_i + g_j <= C_ij. They are derivatives of the optimum by a and b,
  /// for a balanced problem up to the constant t of (f + t, g - t). With penalties |f| <= penalty_a and |g| <=
  /// penalty_b. For partial transport f and g are at most mass_price / 2, and the derivatives are f - mass_price / 2
  /// and g - mass_price / 2. If all mass of a side moves, these are derivatives from above. The derivative by C_ij is
  /// P_ij.
  std::vector<double> f, g;

  std::int64_t rows() const { return static_cast<std::int64_t>(f.size()); }
  std::int64_t columns() const { return static_cast<std::int64_t>(g.size()); }
};

/// Solves the problem at the head of this file. a (n) and b (m) are non-negative with positive totals. Without
/// penalties and `mass` the totals must be equal to 1e-6 relative, and b is scaled to the total of a. An empty a or b
/// is uniform with total 1, or with the total of the other if that one is given. Masses are multiples of a unit, about
/// 2^-100 of the total, so integer weights give integer entries. A weight below half of the unit counts as 0, and the
/// gap includes its cost. Pairs of infinite cost have no mass; if they split the points into parts whose totals differ
/// by rounding, up to 1e-12 of the total, the plan lacks the difference. Finite costs are at most 1e307 / (n + m + 2)
/// in absolute value. Memory is O((n + m) (d + candidates)) beside a cost matrix; the passes over all pairs run on the
/// device of the context, the rest on one thread of the host. Throws Error (invalid_argument: also if forbidden pairs
/// leave no plan; unsupported; out_of_memory; device_failure).
MONGE_API ExactPlan solve_exact(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
                                ExactOptions const& options = {});

/// The same over the pairs of a sparse matrix. All of them are candidates, so memory and proof are O(n + m + pairs).
/// One thread of the host does the work. The problem is a linear sum assignment if n = m and weights are uniform, or
/// for other shapes if weights are 1 and ExactOptions::mass = min(n, m).
MONGE_API ExactPlan solve_exact(Context const& context, SparseCost const& cost, VectorView a, VectorView b,
                                ExactOptions const& options = {});

}  // namespace monge
