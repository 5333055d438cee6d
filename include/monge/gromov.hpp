// Gromov-Wasserstein transport: two clouds that lie in different spaces are matched by the distances within each, or
// two spaces by matrices that stand for distances.
//   min_P  alpha E(P) + (1 - alpha) <M, P> + eps KL(P | a b^T)   subject to  P 1 = a,  P^T 1 = b,  P >= 0,
//   E(P) = sum_ijkl (|x_i - x_k|^2 - |y_j - y_l|^2)^2 P_ij P_kl,      M_ij = |s_i - t_j|^2,
// with features s and t that live in one space (fused), or without them (alpha = 1). KL as in entropic.hpp; without eps
// the plan is exact.
//
// E is not convex. A solve descends from several starts and ends where no step lowers the objective: at a stationary
// plan, as a rule a local optimum. The report has a lower bound of the global optimum, which in few dimensions meets it
// (GromovOptions::gap). Each step solves a linear problem. The cost of a pair is the dot product of two vectors, which
// have min(p, q) + 1 coordinates, and r more for features. Memory is therefore O((n + m) (p + q)). docs/math.md,
// section 21. Sources: Memoli 2011; Peyre, Cuturi, Solomon 2016; Vayer et al. 2020; Rioux, Goldfeld, Kato 2023.
//
// For matrices C (n x n) and D (m x m), E(P) = sum_ijkl L(C_ik, D_jl) P_ij P_kl with a loss L (GromovLoss), and M is
// any matrix. Memory is then O(n^2 + m^2 + n m). E need not be concave, so a step may end within a segment between two
// plans.
//
// The marginals may be open (GromovMarginals). Then E need not be concave either, and the costs have two more features.
// Sources: Vincent-Cuaz et al. 2022; Chapel, Alaya, Gasso 2020; Sejourne, Vialard, Peyre 2021.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <monge/array.hpp>
#include <monge/context.hpp>
#include <monge/exact.hpp>
#include <monge/export.hpp>
#include <monge/options.hpp>
#include <monge/plan.hpp>
#include <monge/report.hpp>

namespace monge {

/// The step from a plan to the next.
enum class GromovMethod {
  alternating,  ///< The next plan minimises the objective, linearised at the last plan: mirror descent, or exact plans
                ///< if eps is 0.
  proximal,     ///< The same, with eps KL(P | last plan) as the entropy. The effect of the entropy vanishes in the
                ///< limit, and the value has no entropy term.
};
constexpr auto names_of(GromovMethod) {
  using enum GromovMethod;
  return std::to_array<Named<GromovMethod>>({{alternating, "alternating"}, {proximal, "proximal"}});
}

/// The constraints on the marginals p = P 1 and q = P^T 1.
enum class GromovMarginals {
  balanced,     ///< p = a and q = b.
  semirelaxed,  ///< p = a. b, scaled to the total of a, is the reference of the entropy and of the starts, and columns
                ///< of no weight stay empty.
  partial,  ///< p <= a, q <= b, and the total of P is GromovOptions::mass. With eps > 0 for matrices alone, and where
            ///< this is the total of a and of b, the problem is solved and reported as balanced.
  unbalanced,  ///< None. The objective has the terms penalty_a KL(p p^T | a a^T) / 2, penalty_b KL(q q^T | b b^T) / 2
               ///< and, in the place of eps KL(P | a b^T), eps KL(P P | a b^T a b^T) / 2 of tensor products. eps must
               ///< be > 0; by the proximal method the objective has no entropy.
};
constexpr auto names_of(GromovMarginals) {
  using enum GromovMarginals;
  return std::to_array<Named<GromovMarginals>>(
      {{balanced, "balanced"}, {semirelaxed, "semirelaxed"}, {partial, "partial"}, {unbalanced, "unbalanced"}});
}

/// The point from which a search begins.
enum class GromovStartKind {
  given,        ///< GromovOptions::cross_moment.
  product,      ///< The plan a b^T.
  descriptors,  ///< The exact plan between the distributions of the distances from each point.
  axes,         ///< The principal axes of both clouds, with one choice of their signs.
  random,       ///< A random rotation between the clouds.
  partition,    ///< A better plan that branch and bound has met (GromovOptions::gap).
};
constexpr auto names_of(GromovStartKind) {
  using enum GromovStartKind;
  return std::to_array<Named<GromovStartKind>>({{given, "given"},
                                                {product, "product"},
                                                {descriptors, "descriptors"},
                                                {axes, "axes"},
                                                {random, "random"},
                                                {partition, "partition"}});
}

/// Two clouds, each in a space of its own, and features of their points in a common one.
struct GromovClouds {
  MatrixView x;       ///< n x p.
  MatrixView y;       ///< m x q.
  MatrixView s = {};  ///< n x r features of the points x, with t; empty: none.
  MatrixView t = {};  ///< m x r features of the points y.
};

/// The loss L of an entry c of one matrix and d of the other.
enum class GromovLoss {
  square,  ///< (c - d)^2, of any finite numbers.
  kl,      ///< c log(c / d) - c + d, of numbers >= 0. Both are taken 1e-18 larger, so 0 has a finite loss.
};
constexpr auto names_of(GromovLoss) {
  using enum GromovLoss;
  return std::to_array<Named<GromovLoss>>({{square, "square"}, {kl, "kl"}});
}

/// Two spaces, each given by a matrix, symmetric or not, in the place of distances.
struct GromovMatrices {
  MatrixView source;     ///< C, n x n.
  MatrixView target;     ///< D, m x m.
  MatrixView cost = {};  ///< M, n x m. Empty: the costs of the features s and t; without features alpha is 1.
  MatrixView s = {};     ///< n x r features with M_ij = |s_i - t_j|^2, in the place of `cost`, with t; empty: none.
  MatrixView t = {};     ///< m x r features.
  GromovLoss loss = GromovLoss::square;
};

/// Argument of a progress callback.
struct GromovProgress {
  int start = 0;                                           ///< Index of the start.
  int iteration = 0;                                       ///< Steps of all starts and `problems` so far.
  double value = std::numeric_limits<double>::infinity();  ///< The least objective so far, approximately.
  double change = 1;                                       ///< GromovReport::change of the last step.
  double lower_bound = 0;                                  ///< GromovReport::lower_bound so far.
  double seconds = 0;                                      ///< Time since the solve began.
};

/// Options of solve_gromov().
struct GromovOptions {
  /// Weight of the entropy, >= 0, in the units of the objective: squared distances squared. 0: exact plans.
  double eps = 0;
  /// Weight of E, in [0, 1]. Without features it has no effect: the weight is 1.
  double alpha = 0.5;
  GromovMethod method = GromovMethod::alternating;  ///< proximal needs eps > 0.
  GromovMarginals marginals = GromovMarginals::balanced;
  /// Unbalanced marginals: the weights of their divergences, > 0, in the units of E. Otherwise 0.
  double penalty_a = 0, penalty_b = 0;
  /// Partial marginals: the mass of the plan, > 0 and at most the smaller total. Otherwise 0.
  double mass = 0;
  /// The end of a search, > 0:
  /// - eps > 0: a step changes Gromov::cross_moment by at most this fraction of its norm, or of 1e-3 of the largest
  ///   possible norm if this is larger. Each step is solved to a tenth of the change in the step before, the last one
  ///   to a marginal error of tolerance / 10 of the mass.
  /// - Semi-relaxed and proximal: GromovReport::stationarity, too, is at most 1e-3, or the root of the tolerance if it
  ///   is larger, of the value or of 1e-3 of the largest possible value. Otherwise the search ends, not converged,
  ///   after three times the steps to its first small change (docs/math.md, section 21).
  /// - Exact plans: no step lowers the value; or, for matrices and open marginals, whose steps may end between two
  ///   plans, GromovReport::stationarity is at most this fraction of the value.
  double tolerance = 1e-5;
  int iterations = 1000;  ///< Limit of the steps of a start, >= 1.
  int sweeps = 10000;     ///< Limit of the sweeps of a step, >= 1: SolveOptions::iterations.
  /// Number of starts, >= 0. 1: the product plan alone. Larger numbers add, in this order: the descriptors (up to 4096
  /// points in each cloud), the signs of up to three principal axes, and random rotations. For symmetric matrices the
  /// axes are one start, an exact plan between three coordinates of classical scaling (up to 4096 rows); random starts
  /// of matrices are random plans. 0: all but the random ones; with `cross_moment` this start alone. If there are
  /// several starts, each takes three steps, with loose tolerances if eps > 0. Then starts with a value of at most
  /// twice the least go on: the best two if eps > 0, otherwise all. The product plan always goes on. On the CPU
  /// searches for exact plans run side by side, a thread each.
  int starts = 0;
  int seed = 0;  ///< Seed of the random rotations, >= 0.
  Precision precision = Precision::automatic;
  /// A finite number asks for the global optimum: after the searches, branch and bound over the cross moment raises the
  /// lower bound and goes on from better plans until value - lower_bound <= gap value, or until both differ by
  /// rounding. Each of its steps is an exact problem: some 100 for curves in the plane and a gap of 0.01, up to 10^5 in
  /// space. Needs points, eps = 0, and dimensions (ranks of the clouds) whose product is at most 9. > 0.
  double gap = std::numeric_limits<double>::infinity();
  /// Branch and bound also ends when the solve has taken this time; the status is then iteration_limit. > 0. Infinity
  /// without `gap`.
  double seconds = std::numeric_limits<double>::infinity();

  /// A first start (p x q): the cross moment sum_ij P_ij (x_i - mean) (y_j - mean)^T of a plan, as in
  /// Gromov::cross_moment. For matrices the plan itself (n x m). With open marginals also Gromov::cross_moment of
  /// another result with them.
  MatrixView cross_moment = {};
  std::function<bool(GromovProgress const&)> progress = {};  ///< Return false to stop.
};

/// Calls visit(Field, member), in this order, for each field that a name and a value can set.
template <class Options, class Visitor>
void visit_gromov_options(Options& options, Visitor&& visit) {
  visit(Field{"eps", kNotNegative, "weight of the entropy, in the units of the objective; 0: exact plans"},
        options.eps);
  visit(Field{"alpha", Bounds{.least = 0, .most = 1, .least_open = false, .most_open = false},
              "weight of the distances within the clouds, beside the features; 1 without features"},
        options.alpha);
  visit(Field{"method", OneOf<GromovMethod>(), "step from a plan to the next; proximal lets the entropy vanish"},
        options.method);
  visit(Field{"marginals", OneOf<GromovMarginals>(),
              "constraints on the marginals: both, rows alone, at most a and b, or none but penalties"},
        options.marginals);
  visit(
      Field{"penalty_a", kNotNegative, "unbalanced marginals: weight of the KL divergence of rows, in the units of E"},
      options.penalty_a);
  visit(Field{"penalty_b", kNotNegative, "unbalanced marginals: weight of the KL divergence of columns"},
        options.penalty_b);
  visit(Field{"mass", kNotNegative, "partial marginals: mass to transport, at most the smaller total"}, options.mass);
  visit(Field{"tolerance", kPositive, "stop when a step changes the cross moment by at most this fraction of it"},
        options.tolerance);
  visit(Field{"iterations", at_least(1), "at most this many steps of a start"}, options.iterations);
  visit(Field{"sweeps", at_least(1), "at most this many sweeps of a step"}, options.sweeps);
  visit(Field{"starts", at_least(0), "number of starts; 1: the product plan; 0: all but random ones"}, options.starts);
  visit(Field{"seed", at_least(0), "of the random starts"}, options.seed);
  visit(Field{"precision", OneOf<Precision>(), "arithmetic of the sweeps; tf32 is for CUDA only"}, options.precision);
  visit(
      Field{"gap", kPositiveOrInfinite, "(value - lower bound) / value at which branch and bound ends; infinity: none"},
      options.gap);
  visit(Field{"seconds", kPositiveOrInfinite, "time of the solve at which branch and bound ends"}, options.seconds);
}

/// The end of one start.
struct GromovStart {
  GromovStartKind kind = GromovStartKind::product;
  int iterations = 0;     ///< Steps.
  double value = 0;       ///< The objective where it ended; approximate unless it was finished. +infinity where an
                          ///< unbalanced plan has lost its mass.
  bool finished = false;  ///< Whether it went on after the first steps.
};

/// The result of a solve. Values are float64. The objective is evaluated at the plan after its rows and columns were
/// moved to the marginals that are constraints, as in Altschuler, Weed, Rigollet 2017, so its values bound the minimum
/// from above.
struct GromovReport {
  Status status = Status::converged;
  std::string message;  ///< One sentence: the end and, if short of the tolerance, a remedy.
  GromovMethod method = GromovMethod::alternating;
  double eps = 0;                                         ///< GromovOptions::eps.
  double alpha = 1;                                       ///< The weight of E: 1 without features.
  GromovMarginals marginals = GromovMarginals::balanced;  ///< GromovOptions::marginals.
  double penalty_a = 0, penalty_b = 0;                    ///< GromovOptions::penalty_a, penalty_b.
  double value = 0;      ///< alpha quadratic + (1 - alpha) linear + eps entropy + divergence.
  double quadratic = 0;  ///< E(P). Its rounding error is about 1e-15 of E(a b^T).
  double linear = 0;     ///< <M, P>; 0 without features.
  /// KL(P | a b^T), of the plan as it is; 0 without eps and by the proximal method. Unbalanced: KL(P P | a b^T
  /// a b^T) / 2 of tensor products.
  double entropy = 0;
  /// Unbalanced: (penalty_a KL(p p^T | a a^T) + penalty_b KL(q q^T | b b^T)) / 2; otherwise 0.
  double divergence = 0;
  /// A lower bound of the minimum of alpha E + (1 - alpha) <M, .> over all plans, whatever the start, and so of the
  /// objective with entropy. The largest of these bounds: one by norms and principal moments (for matrices by means and
  /// norms), where `starts` includes descriptors one by descriptors, and with `gap` that of branch and bound. With open
  /// marginals E may be 0, so the bound is 0 for points, and for matrices (1 - alpha) times the mass times the least
  /// M_ij. The mass of an unbalanced plan is unknown: then it is 0, or -infinity if an M_ij is negative.
  double lower_bound = 0;
  double gap = 0;             ///< (value - lower_bound) / |value|, 0 where the value is 0.
  std::int64_t problems = 0;  ///< Exact problems of branch and bound.
  /// A measure, in the units of the objective, that is 0 at a stationary plan:
  /// - points, eps > 0: 8 alpha |change of the cross moment|^2; the last step lowered the objective by at least this;
  /// - matrices, eps > 0: eps KL(Q | P) of the last two plans Q and P;
  /// - open marginals, eps > 0: the fall of the last linear problem from the plan before to its minimum;
  /// - eps = 0, or proximal: the Frank-Wolfe gap of the plan; no plan lowers the linearised objective by more. It may
  ///   be large where balanced proximal steps have converged, as their tolerance is one of the change alone. NaN
  ///   by the proximal method for balanced clouds of more than 4096 points and for unbalanced plans, and where the
  ///   progress function has stopped the solve.
  double stationarity = 0;
  double change = 0;  ///< Change of the cross moment in the last step, relative as the tolerance.
  /// |P 1 - a|_1 + |P^T 1 - b|_1 of the plan as it is, semi-relaxed without the second term. Partial: what is above a
  /// and b, plus the error of the mass. Unbalanced: the marginal error of the last linear problem.
  double marginal_error = 0;
  double mass = 0;          ///< sum P.
  int iterations = 0;       ///< Steps of all starts.
  std::int64_t sweeps = 0;  ///< Sweeps of all steps, or passes over all pairs of exact ones.
  int best = 0;             ///< Index of the start that led to the plan.
  std::vector<GromovStart> starts;
  struct {
    double bounds = 0, steps = 0, partition = 0, total = 0;
  } seconds;
};

/// Outputs of Gromov::gradients(), in host memory. An empty view is not computed.
struct GromovGradients {
  MutableMatrixView x = {};  ///< n x p. For matrices by C, n x n.
  MutableMatrixView y = {};  ///< m x q. For matrices by D, m x m. By M: (1 - alpha) P.
  MutableMatrixView s = {};  ///< n x r, of features.
  MutableMatrixView t = {};  ///< m x r.
  MutableVectorView a = {};  ///< n. Defined along directions that keep sum a = sum b.
  MutableVectorView b = {};  ///< m.
};

/// A plan and how far it may be from the best one.
struct MONGE_API Gromov {
  GromovReport report;
  /// If eps > 0: the plan of the last linear problem, with the potentials and the report of this problem. For points
  /// its cost is C_ij = -<u_i, v_j>, for u (n x k) and v (m x k) below, up to terms of i and of j alone. With open
  /// marginals it has these terms, too, and for an unbalanced plan it is divided by the mass of the plan before. For
  /// matrices `state` keeps the costs, so a plan that is moved out of this object must not outlive `state`.
  std::optional<Plan> plan;
  std::optional<ExactPlan> exact;    ///< The same if eps is 0. For matrices and open marginals its entries may lie
                                     ///< between two plans. Semi-relaxed: f is +infinity where a is 0.
  std::vector<double> u, v;          ///< Row-major. For matrices u is the cost itself (n x m), and v is empty.
  std::vector<double> cross_moment;  ///< p x q: sum_ij P_ij (x_i - mean) (y_j - mean)^T, a start for a similar problem.
                                     ///< For matrices P itself, n x m. With open marginals (3 + p + q) x (2 + p + q):
                                     ///< sum_ij P_ij w w^T of w = (1, |x|^2 - |y|^2, x, y) at x_i - mean and y_j -
                                     ///< mean, and a row with <M, P> and the divergences of an unbalanced problem.

  struct State;  // src/gromov/gromov_state.hpp
  std::shared_ptr<State const> state;

  /// Derivatives of the value at a local minimum. By points and features they are derivatives of the objective while
  /// the plan stays as it is. By weights they are the potentials of the marginals. Takes two products of the plan.
  /// Throws unsupported for the proximal method, whose plan is no minimiser, and by weights where marginals are open.
  void gradients(GromovGradients const& out) const;
  /// Writes the vectors u of new points, at the costs of the last step, to out (k x columns of u). `points` is k x p,
  /// and `features` is k x r like s. Plan::potential() and c_transform() take these vectors in the place of points. All
  /// arguments lie in host memory. Throws unsupported for matrices, and for unbalanced proximal plans.
  void source_features(MatrixView points, MatrixView features, MutableMatrixView out) const;
};

/// Solves the problem at the head of this file. a (n) and b (m) are non-negative with positive totals, equal to 1e-6
/// relative; b is scaled to the total of a. The totals of open marginals may differ. Empty ones are uniform, as in
/// solve(). Memory is O((n + m) (p + q)), plus that of solve_exact() if eps is 0. Throws Error (invalid_argument,
/// unsupported, out_of_memory). A solve that does not converge throws nothing: GromovReport::status says so.
MONGE_API Gromov solve_gromov(Context const& context, GromovClouds const& clouds, VectorView a, VectorView b,
                              GromovOptions const& options = {});
inline Gromov solve_gromov(Context const& context, GromovClouds const& clouds, GromovOptions const& options = {}) {
  return solve_gromov(context, clouds, {}, {}, options);
}

/// The same with E(P) = sum_ijkl L(C_ik, D_jl) P_ij P_kl of matrices. Memory is O(n^2 + m^2 + n m), for each start
/// O(n m); a step takes O(n m (n + m)) on the host, beside its linear problem.
MONGE_API Gromov solve_gromov(Context const& context, GromovMatrices const& matrices, VectorView a, VectorView b,
                              GromovOptions const& options = {});
inline Gromov solve_gromov(Context const& context, GromovMatrices const& matrices, GromovOptions const& options = {}) {
  return solve_gromov(context, matrices, {}, {}, options);
}

}  // namespace monge
