// Optimal transport with regularisers that keep plans sparse or grouped:
//   min_X  <C, X> + h(X)   subject to  X 1 = p,  X^T 1 = q,  X >= 0,
// h a sum of the terms of Regularizer. Symbols as in docs/math.md. Source: Lindback, Wang, Johansson, "Bringing
// regularized optimal transport to lightspeed", NeurIPS 2023 (RDROT), whose weights docs/regularized.md maps to these.
#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <monge/context.hpp>
#include <monge/geometry.hpp>
#include <monge/options.hpp>
#include <monge/report.hpp>

namespace monge {

/// h: each term counts where its weight is positive; what else a term takes is checked at a weight of 0 too. Weights
/// are in the units of C, but that of `quadratic`, which is C over mass. hypentropy does not go with group_lasso, for
/// which this throws unsupported.
struct Regularizer {
  double quadratic = 0;           ///< lambda / 2 sum_ij X_ij^2
  double group_lasso = 0;         ///< lambda sum_j sum_g w_g |(X_ij), i in group g|_2
  IndexView groups = {};          ///< (n) the group of each row, from 0 to n - 1; in host memory.
  VectorView group_weights = {};  ///< w_g >= 0; empty: 1 for each.
  double l1 = 0;                  ///< lambda sum_ij W_ij X_ij
  MatrixView l1_weights = {};     ///< W (n x m), finite and >= 0.
  double hypentropy = 0;          ///< lambda sum_ij (X_ij asinh(X_ij / beta) - sqrt(X_ij^2 + beta^2) + beta)
  double hypentropy_width = 1;    ///< beta, in units of mass: from 1e-100 to 1e100 of it, in float32 1e-30 to 1e20.
  MatrixView mask = {};           ///< (n x m) X_ij = 0 where it is 0, as where C_ij is +infinity; empty: none.
};

/// How a regularised plan is found.
enum class RegularizedMethod {
  automatic,  ///< "auto": newton where `quadratic` is the only term or there is none, but for a mask, and neither
              ///< precision float32 nor a tolerance of 0 is asked for; splitting elsewhere.
  splitting,  ///< Douglas-Rachford splitting (RDROT, eq. 6, 8-10; docs/math.md, section 17). Costs are a matrix.
  newton,     ///< Annealed, damped semismooth Newton on the dual of a quadratic term (section 18); without any term, of
              ///< a weight that goes to 0.
};
constexpr auto names_of(RegularizedMethod) {
  using enum RegularizedMethod;
  return std::to_array<Named<RegularizedMethod>>({{automatic, "auto"}, {splitting, "splitting"}, {newton, "newton"}});
}

/// What the tolerance is on.
enum class RegularizedCriterion {
  gap,  ///< Both RegularizedReport::primal_residual, relative to |(p, q)|_2, and |gap|, relative to the primal value
        ///< of costs that begin at 0 or to 1e-6 (after float32 1e-3) of the mass times their range,
        ///< whichever is larger.
  residual,  ///< The first of these alone.
};
constexpr auto names_of(RegularizedCriterion) {
  using enum RegularizedCriterion;
  return std::to_array<Named<RegularizedCriterion>>({{gap, "gap"}, {residual, "residual"}});
}

/// What a progress callback sees at each check.
struct RegularizedProgress {
  int iteration = 0;
  double weight = 0;           ///< Of the quadratic term; above the target while Newton's method anneals.
  double primal_residual = 0;  ///< Relative, as the tolerance is.
  double seconds = 0;          ///< Since the solve began.
  int problem = 0;             ///< In a batch, which one, from 0 on.
};

/// Options of solve_regularized().
struct RegularizedOptions {
  RegularizedMethod method = RegularizedMethod::automatic;
  double tolerance = 1e-4;  ///< On what `criterion` says. 0: run `iterations` iterations.
  RegularizedCriterion criterion = RegularizedCriterion::gap;
  int iterations = 20000;  ///< Cap on the iterations of splitting, or on Newton's passes over all pairs. >= 1.
  double step = 2;  ///< rho of splitting, from 1e-6 to 1e6: its step is rho / (n + m), for costs of range 1 and mass 1.
                    ///< Far from the default either X or the potentials move slowly, and rounding may stop float32.
                    ///< A large weight makes it smaller (docs/math.md, section 17); the report says which it was.
  bool accelerate = false;  ///< Beside the recursion of splitting runs a second one, with restarts and steps of its
                            ///< own, from the 300th iteration on and in turns; the first to converge ends both. At most
                            ///< twice the iterations, and often a fraction; never a worse end: `iterations` caps the
                            ///< first, and the better one is returned. Two more matrices of memory. With method auto
                            ///< it is for problems that splitting takes; newton refuses it, as step and check_every.
  Precision precision = Precision::automatic;  ///< Of the iterations of splitting: auto is float32 down to a tolerance
                                               ///< of 1e-5 and float64 below, and where float32 does not hold
                                               ///< hypentropy_width. Newton's are float64. Not tf32.
  int check_every = 20;                        ///< Iterations of splitting between checks of the residual. >= 1.
  VectorView u = {};                           ///< Warm start of Newton's method (n) in units of C, with v. Finite.
  VectorView v = {};                           ///< Warm start (m).
  std::function<bool(RegularizedProgress const&)> progress = {};  ///< Called at each check; return false to stop.
};

/// The list of the fields that a name and a value can set: visit(Field, member) for each, in this order.
template <class Options, class Visitor>
void visit_regularized_options(Options& options, Visitor&& visit) {
  visit(Field{"method", OneOf<RegularizedMethod>(), "how the plan is found; auto is newton for a quadratic term alone"},
        options.method);
  visit(Field{"tolerance", kNotNegative, "stop when what the criterion says is at most this; 0 runs all iterations"},
        options.tolerance);
  visit(Field{"criterion", OneOf<RegularizedCriterion>(),
              "what the tolerance is on: the relative residual of the marginals and the relative gap, or the residual"},
        options.criterion);
  visit(Field{"iterations", at_least(1), "at most this many iterations, or passes of Newton's method"},
        options.iterations);
  visit(Field{"step", Bounds{.least = 1e-6, .most = 1e6, .least_open = false, .most_open = false},
              "of splitting, times n + m, for costs of range 1"},
        options.step);
  visit(Field{"accelerate", OneOf<bool>(), "a second run of splitting, with restarts and adapted steps, in turns"},
        options.accelerate);
  visit(Field{"precision", OneOf<Precision>(), "arithmetic of the iterations of splitting; not tf32"},
        options.precision);
  visit(Field{"check_every", at_least(1), "iterations of splitting between checks of the residual"},
        options.check_every);
}

/// One check, for a convergence plot.
struct RegularizedCheck {
  int iteration;
  double weight;                                          ///< Of the quadratic term.
  double primal_residual;                                 ///< Relative, as the tolerance is.
  double gap = std::numeric_limits<double>::quiet_NaN();  ///< Relative; NaN where it was not evaluated.
  double step;                                            ///< rho of splitting; NaN of Newton's method.
  double seconds;                                         ///< Since the solve began.
};

/// What a solve reached. Values are float64 evaluations of the plan and the potentials that are returned, for the
/// costs as given and in their units.
struct RegularizedReport {
  Status status = Status::completed;
  std::string message;  ///< One sentence: what happened and, if short of the tolerance, what would help.
  RegularizedMethod method = RegularizedMethod::splitting;  ///< The one that ran.
  int iterations = 0;                        ///< Of splitting, or passes of Newton's method over all pairs.
  int newton_steps = 0;                      ///< Directions that Newton's method found.
  int linear_iterations = 0;                 ///< Steps of conjugate gradients in them.
  double step = 0;                           ///< rho of the last iteration of splitting; NaN of Newton's method.
  double weight = 0;                         ///< Of the quadratic term that Newton's method ended with.
  Precision precision = Precision::float32;  ///< Of the iterations.
  double mass = 0;                           ///< sum p.
  double transported_mass = 0;               ///< sum X.
  double primal_residual = 0;                ///< |(X 1 - p, X^T 1 - q)|_2
  double marginal_error = 0;                 ///< |X 1 - p|_1 + |X^T 1 - q|_1
  double transport_cost = 0;                 ///< <C, X>
  double regularization = 0;                 ///< h(X)
  /// <C, X> + h(X) + (mass - transported_mass) c, c the least cost of a pair that is allowed: mass that X lacks is
  /// counted at that cost, so that an offset of the costs moves primal and dual by as much, offset times mass.
  double primal = 0;
  double dual = 0;            ///< p'u + q'v - h*(u + v - C), a lower bound of the optimum: u and v are feasible.
  double gap = 0;             ///< primal - dual. Where X is off its marginals it may be negative.
  std::int64_t nonzeros = 0;  ///< Of X.
  struct {
    double setup = 0, iterations = 0, evaluation = 0, total = 0;
  } seconds;
  std::vector<RegularizedCheck> history;
};

/// X with its dual potentials. Keeps what it needs of the costs and weights, but for a cost matrix that the context can
/// reach, which must stay. Move-only. Outputs may be float32 or float64, on the host or on the plan's device.
class RegularizedPlan {
 public:
  struct State;  // src/regularized/regularized_state.hpp
  explicit RegularizedPlan(std::unique_ptr<State> state);
  RegularizedPlan(RegularizedPlan&&) noexcept;
  RegularizedPlan& operator=(RegularizedPlan&&) noexcept;
  ~RegularizedPlan();

  RegularizedReport const& report() const;
  Status status() const;
  std::int64_t rows() const;     ///< n
  std::int64_t columns() const;  ///< m

  /// Dual potentials in units of C: u (n), v (m). They are also the derivatives of the optimal value by p and q, up to
  /// a constant that goes from one to the other; by C_ij it is X_ij, and so is the derivative by l1's lambda W_ij
  /// (section 3.3).
  std::vector<double> u() const;
  std::vector<double> v() const;
  void potentials(MutableVectorView u, MutableVectorView v) const;

  /// out (n x m) = X.
  void dense(MutableMatrixView out) const;
  /// row_begin (n + 1): the number of non-zero X_ij in the rows before each, the row pointers of a CSR matrix. Returns
  /// their total. Waits.
  std::int64_t nonzeros(MutableIndexView row_begin) const;
  /// These entries, given row_begin of nonzeros(): j to columns and X_ij to values, row by row and j ascending. Waits.
  void entries(MutableIndexView row_begin, MutableIndexView columns, MutableVectorView values) const;

  /// X 1 (n) and X^T 1 (m).
  void marginals(MutableVectorView row, MutableVectorView column) const;
  /// out (n x k) = X values, values (m x k).
  void apply(MatrixView values, MutableMatrixView out) const;
  /// out (m x k) = X^T values, values (n x k).
  void apply_transpose(MatrixView values, MutableMatrixView out) const;
  /// out (n x k): where the points of the rows go, sum_j X_ij values_jk / sum_j X_ij, values (m x k). A row of no mass
  /// goes to 0.
  void barycentric_projection(MatrixView values, MutableMatrixView out) const;
  /// out (m x k): the same of the columns, sum_i X_ij values_ik / sum_i X_ij.
  void barycentric_projection_transpose(MatrixView values, MutableMatrixView out) const;

 private:
  std::unique_ptr<State> state_;
};

/// Solves the problem at the head of this file; p (n) and q (m) are non-negative with equal, positive totals: equal to
/// 1e-6 relative and to half of the tolerance, or to 1e-6 alone where p or q is float32. q is scaled to the total of p.
/// An empty p or q means uniform with total 1 (with the total of the other, if that one is given). Costs are a matrix,
/// or points where Newton's method runs; they may have any offset and scale. Throws Error (invalid_argument,
/// unsupported, out_of_memory, device_failure). Not converging is a Status.
RegularizedPlan solve_regularized(Context const& context, Geometry const& geometry, VectorView p, VectorView q,
                                  Regularizer const& regularizer, RegularizedOptions const& options);

/// One problem of a batch.
struct RegularizedProblem {
  Geometry geometry;
  VectorView p = {};
  VectorView q = {};
  Regularizer regularizer = {};
};

/// Solves each problem as solve_regularized() does, to the same bits; sizes may differ. The iterations of splitting are
/// taken together, on CUDA by one launch for all problems, on the CPU side by side where each is worth one thread;
/// those of Newton's method go one problem after the other, on the CPU side by side where each is worth one thread and
/// nobody watches their progress. Seconds in the reports are those of the steps that the problem took part in, whoever
/// else did. Of the options, u and v must be empty, and progress says of which problem;
/// false stops that one. Throws Error as solve_regularized() does, before any iteration where an argument is wrong; the
/// line begins with the problem: "problem 3: p: ...".
std::vector<RegularizedPlan> solve_regularized_batch(Context const& context,
                                                     std::span<RegularizedProblem const> problems,
                                                     RegularizedOptions const& options);

}  // namespace monge
