// Optimal transport with regularisers that keep plans sparse or grouped:
//   min_X  <C, X> + h(X)   subject to  X 1 = p,  X^T 1 = q,  X >= 0,
// with h a sum of the terms of Regularizer. Symbols as in docs/math.md. Source: Lindback, Wang, Johansson, "Bringing
// regularized optimal transport to lightspeed", NeurIPS 2023 (RDROT), whose weights docs/regularized.md maps to these.
#pragma once
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <monge/context.hpp>
#include <monge/export.hpp>
#include <monge/geometry.hpp>
#include <monge/options.hpp>
#include <monge/report.hpp>

namespace monge {

/// A term that the caller defines: sum_ij phi(X_ij), with phi convex, phi(0) = 0 and phi >= 0 on x >= 0. Each function
/// writes a result for each number of its argument: x and v are masses, z has the units of C, phi has those of C times
/// mass. One thread at a time calls the functions, but not always the same one. Their exceptions end the solve and
/// reach its caller.
struct SeparableTerm {
  /// x = argmin_{x >= 0} (x - v)^2 / 2 + step phi(x), for v > 0.
  std::function<void(double step, std::span<double const> v, std::span<double> x)> prox = {};
  std::function<void(std::span<double const> x, std::span<double> phi)> value = {};
  /// phi*(z) = sup_{x >= 0} z x - phi(x), for z >= 0; may be +infinity. Without it there is no certificate: dual and
  /// gap are NaN, and the criterion must be `residual`.
  std::function<void(std::span<double const> z, std::span<double> conjugate)> conjugate = {};
};

/// h: the sum of all terms with a positive weight. The other members of a term are checked at weight 0 too. Weights
/// have the units of C; the weight of `quadratic` has the units of C over mass.
struct Regularizer {
  double quadratic = 0;    ///< lambda / 2 sum_ij X_ij^2
  double group_lasso = 0;  ///< lambda sum_j sum_g w_g |(X_ij), i in group g|_2
  IndexView groups = {};   ///< (n) the group of each row, from 0 to n - 1; in host memory.
  /// (n x m) the group of each pair, instead of `groups`: from 0 to n m - 1, or -1 for a pair in none; in host memory.
  /// The term is then lambda sum_g w_g |(X_ij), (i, j) in group g|_2: a group may have pairs of many columns. Without
  /// hypentropy, on the CPU; a CUDA context throws unsupported.
  IndexMatrixView pair_groups = {};
  VectorView group_weights = {};  ///< w_g >= 0; empty: 1 for each.
  double l1 = 0;                  ///< lambda sum_ij W_ij X_ij
  MatrixView l1_weights = {};     ///< W (n x m), finite and >= 0.
  double hypentropy = 0;          ///< lambda sum_ij (X_ij asinh(X_ij / beta) - sqrt(X_ij^2 + beta^2) + beta)
  double hypentropy_width = 1;    ///< beta, in units of mass: 1e-100 to 1e100 times the mass, in float32 1e-30 to 1e20.
  MatrixView mask = {};           ///< (n x m) 0 forbids the pair, like C_ij = +infinity; empty: no mask.
  SeparableTerm separable = {};   ///< With l1 and mask alone, on the CPU; a CUDA context throws unsupported.
  /// (k x 2) A term that the caller defines by a table, on every device: sum_ij phi(X_ij), phi(0) = 0, whose slope phi'
  /// is linear between the points of the table. A row is a mass and the slope there, in units of C. Masses begin at 0,
  /// slopes are >= 0, and neither decreases. Two rows of equal mass make a step of the slope. Beyond the last mass the
  /// slope keeps its last value. If the last slope is +infinity, at the mass of the row before, no entry exceeds that
  /// mass. With l1 and mask alone.
  MatrixView slopes = {};
};

/// The method by which a regularised plan is found.
enum class RegularizedMethod {
  automatic,  ///< "auto": newton if `quadratic` is the only term or there is none (a mask is allowed), the precision is
              ///< not float32 and the tolerance is not 0; otherwise splitting.
  splitting,  ///< Douglas-Rachford splitting (RDROT, eq. 6, 8-10; docs/math.md, section 17). It stores X and the costs,
              ///< n x m numbers each, also for points.
  newton,     ///< Annealed, damped semismooth Newton on the dual of a quadratic term (section 18). Without any term the
              ///< weight goes to 0.
};
constexpr auto names_of(RegularizedMethod) {
  using enum RegularizedMethod;
  return std::to_array<Named<RegularizedMethod>>({{automatic, "auto"}, {splitting, "splitting"}, {newton, "newton"}});
}

/// The quantity that the tolerance bounds.
enum class RegularizedCriterion {
  /// Both RegularizedReport::primal_residual, relative to |(p, q)|_2, and |gap|, relative to the larger of two numbers.
  /// The first is the primal value, for costs shifted so that the least is 0. The second is 1e-6 (after float32 1e-3)
  /// of the mass times the range of the costs between points with mass. The range leaves out costs above 100 c if
  /// pairs with a sixteenth of the allowed mass cost at most c. If all costs are equal, the slope of h at equal entries
  /// takes its place.
  gap,
  residual,  ///< The residual alone.
};
constexpr auto names_of(RegularizedCriterion) {
  using enum RegularizedCriterion;
  return std::to_array<Named<RegularizedCriterion>>({{gap, "gap"}, {residual, "residual"}});
}

/// Argument of a progress callback, at each check.
struct RegularizedProgress {
  int iteration = 0;
  double weight = 0;           ///< Weight of the quadratic term; above the target while Newton's method anneals.
  double primal_residual = 0;  ///< Relative, like the tolerance.
  double seconds = 0;          ///< Time since the solve began.
  int problem = 0;             ///< Index in a batch, from 0.
};

/// Options of solve_regularized().
struct RegularizedOptions {
  RegularizedMethod method = RegularizedMethod::automatic;
  double tolerance = 1e-4;  ///< Bound of the quantity of `criterion`. 0: run `iterations` iterations.
  RegularizedCriterion criterion = RegularizedCriterion::gap;
  int iterations = 20000;  ///< Limit of the iterations of splitting, or of Newton's passes over all pairs. >= 1.
  double step = 2;  ///< rho of splitting, from 1e-6 to 1e6: its step is rho / (n + m), for costs of range 1 and mass 1.
                    ///< Far from the default X or the potentials converge slowly, and rounding may stop float32. Large
                    ///< weights reduce it (docs/math.md, section 17); the report has the value used. With method newton
                    ///< step, accelerate and check_every must keep their defaults.
  /// Runs a second splitting recursion, with restarts and adapted steps, in turns with the plain one, from iteration
  /// 300 on. The first recursion to converge ends both. Both together take at most twice the iterations of the plain
  /// one alone, and often a fraction of them. `iterations` limits the plain one; the better result is returned. Takes
  /// two more n x m arrays. With method auto it is ignored when Newton's method is chosen.
  bool accelerate = false;
  /// Arithmetic of splitting, not tf32. auto is float32 for a tolerance of 1e-5 or more, and float64 for a smaller one
  /// or if hypentropy_width needs it. Newton's method is always float64.
  Precision precision = Precision::automatic;
  int check_every = 20;  ///< Iterations of splitting between checks of the residual. >= 1.
  VectorView u = {};     ///< Warm start (n) in units of C, with v. Finite.
  VectorView v = {};     ///< Warm start (m).
  MatrixView plan = {};  ///< Warm start of splitting (n x m) in units of mass, with or without u and v. Finite. With
                         ///< method auto it is ignored when Newton's method is chosen; newton refuses it.
  std::function<bool(RegularizedProgress const&)> progress = {};  ///< Called at each check; return false to stop.
};

/// Calls visit(Field, member), in this order, for each field that a name and a value can set.
template <class Options, class Visitor>
void visit_regularized_options(Options& options, Visitor&& visit) {
  visit(Field{"method", OneOf<RegularizedMethod>(), "how the plan is found; auto is newton for a quadratic term alone"},
        options.method);
  visit(Field{"tolerance", kNotNegative,
              "stop when the quantity of the criterion is at most this; 0 runs all iterations"},
        options.tolerance);
  visit(
      Field{"criterion", OneOf<RegularizedCriterion>(),
            "quantity that the tolerance bounds: relative residual of the marginals and relative gap, or the residual"},
      options.criterion);
  visit(Field{"iterations", at_least(1), "at most this many iterations, or passes of Newton's method"},
        options.iterations);
  visit(Field{"step", Bounds{.least = 1e-6, .most = 1e6, .least_open = false, .most_open = false},
              "step of splitting, times n + m, for costs of range 1"},
        options.step);
  visit(
      Field{"accelerate", OneOf<bool>(), "run a second splitting recursion in turns, with restarts and adapted steps"},
      options.accelerate);
  visit(Field{"precision", OneOf<Precision>(), "arithmetic of the iterations of splitting; not tf32"},
        options.precision);
  visit(Field{"check_every", at_least(1), "iterations of splitting between checks of the residual"},
        options.check_every);
}

/// One check, for a convergence plot.
struct RegularizedCheck {
  int iteration;
  double weight;                                          ///< Weight of the quadratic term.
  double primal_residual;                                 ///< Relative, like the tolerance.
  double gap = std::numeric_limits<double>::quiet_NaN();  ///< Relative; NaN where it was not evaluated.
  double step;                                            ///< rho of splitting; NaN for Newton's method.
  std::int64_t nonzeros;                                  ///< Positive entries of X.
  double seconds;                                         ///< Time since the solve began.
};

/// The result of a solve. Values are float64 evaluations of the returned plan and potentials, for the costs as given
/// and in their units.
struct RegularizedReport {
  Status status = Status::completed;
  std::string message;  ///< One sentence: the end and, if short of the tolerance, a remedy.
  RegularizedMethod method = RegularizedMethod::splitting;  ///< The method that ran.
  int iterations = 0;                        ///< Iterations of splitting, or Newton's passes over all pairs.
  int newton_steps = 0;                      ///< Directions that Newton's method found.
  int linear_iterations = 0;                 ///< Steps of conjugate gradients for these directions.
  bool newton_on_host = false;               ///< As in Report.
  double step = 0;                           ///< rho of the last iteration of splitting; NaN for Newton's method.
  double weight = 0;                         ///< Weight of the quadratic term at the end of Newton's method.
  Precision precision = Precision::float32;  ///< Arithmetic of the iterations.
  double mass = 0;                           ///< sum p.
  double transported_mass = 0;               ///< sum X.
  double primal_residual = 0;                ///< |(X 1 - p, X^T 1 - q)|_2
  double marginal_error = 0;                 ///< |X 1 - p|_1 + |X^T 1 - q|_1
  double transport_cost = 0;                 ///< <C, X>
  double regularization = 0;                 ///< h(X)
  /// <C, X> + h(X) + (mass - transported_mass) c, with c the least cost of an allowed pair of points with mass. The
  /// mass that X lacks counts at this cost, so an offset of the costs changes primal and dual by the same amount,
  /// offset times mass.
  double primal = 0;
  double dual = 0;            ///< p'u + q'v - h*(u + v - C), a lower bound of the optimum: u and v are feasible.
  double gap = 0;             ///< primal - dual. It may be negative if X does not have its marginals.
  std::int64_t nonzeros = 0;  ///< Positive entries of X.
  /// The most memory that the library's arrays took at one time during the call, on its device; as in Report.
  std::int64_t peak_bytes = 0;
  struct {
    double setup = 0, iterations = 0, evaluation = 0, total = 0;
  } seconds;
  std::vector<RegularizedCheck> history;
};

/// X with its dual potentials. It keeps copies of the costs and weights that it needs, except of a cost matrix that the
/// context can reach: this must not change while the plan exists. Move-only. Outputs may be float32 or float64, on the
/// host or on the plan's device.
class MONGE_API RegularizedPlan {
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

  /// Dual potentials in units of C: u (n), v (m). They are the derivatives of the optimal value by p and q, up to the
  /// constant t of (u + t, v - t). The derivative by C_ij is X_ij, and so is the derivative by lambda W_ij, the weights
  /// of l1 (RDROT, section 3.3).
  std::vector<double> u() const;
  std::vector<double> v() const;
  void potentials(MutableVectorView u, MutableVectorView v) const;

  /// out (n x m) = X.
  void dense(MutableMatrixView out) const;
  /// Writes the row pointers of a CSR matrix to row_begin (n + 1): the number of non-zero X_ij in the rows before each.
  /// Returns the number of all non-zero X_ij. Waits for the device.
  std::int64_t nonzeros(MutableIndexView row_begin) const;
  /// Writes the non-zero entries, given row_begin of nonzeros(): j to columns and X_ij to values, row by row with
  /// ascending j. Waits for the device.
  void entries(MutableIndexView row_begin, MutableIndexView columns, MutableVectorView values) const;

  /// X 1 (n) and X^T 1 (m).
  void marginals(MutableVectorView row, MutableVectorView column) const;
  /// out (n x k) = X values, values (m x k).
  void apply(MatrixView values, MutableMatrixView out) const;
  /// out (m x k) = X^T values, values (n x k).
  void apply_transpose(MatrixView values, MutableMatrixView out) const;
  /// out (n x k): the average of values (m x k) over each row, sum_j X_ij values_jk / sum_j X_ij. A row of no mass gets
  /// 0.
  void barycentric_projection(MatrixView values, MutableMatrixView out) const;
  /// out (m x k): the same over each column, sum_i X_ij values_ik / sum_i X_ij.
  void barycentric_projection_transpose(MatrixView values, MutableMatrixView out) const;

 private:
  std::unique_ptr<State> state_;
};

/// Solves the problem at the head of this file; p (n) and q (m) are non-negative with equal, positive totals, up to a
/// relative difference of 1e-6 and of half of the tolerance; of 1e-6 alone if p or q is float32 or the tolerance is 0.
/// q is scaled to the total of p. An empty p or q is uniform with total 1, or with the total of the other if that one
/// is given. Costs are a matrix or those of points, and may have any offset and scale. Splitting stores X and the
/// costs. Newton's method stores the active pairs of two iterates, at first about half of all pairs: on the CPU in
/// lists that grow, up to 7 n m bytes, and on CUDA as bits. Throws Error (invalid_argument, unsupported, out_of_memory,
/// device_failure). A solve that does not converge throws nothing: RegularizedReport::status says so.
MONGE_API RegularizedPlan solve_regularized(Context const& context, Geometry const& geometry, VectorView p,
                                            VectorView q, Regularizer const& regularizer,
                                            RegularizedOptions const& options = {});

/// One problem of a batch.
struct RegularizedProblem {
  Geometry geometry;
  VectorView p = {};
  VectorView q = {};
  Regularizer regularizer = {};
};

/// Solves each problem as solve_regularized() does, to the same bits; sizes may differ. Splitting iterates all problems
/// together: on CUDA by one launch for all, on the CPU in parallel where each takes one thread. Newton's method solves
/// in parallel the problems that take one thread of the CPU each (RegularizedReport::newton_on_host on CUDA), and the
/// other problems one after the other. The seconds in a report count each step in which the problem took part, alone or
/// with others. RegularizedOptions::u, v and plan must be empty. progress gets the index of the problem; if it returns
/// false, this problem alone stops. Calls of problems that are solved in parallel have no order among each other.
/// Throws Error as solve_regularized() does. A wrong argument of any problem throws before the first iteration. The
/// message begins with the problem: "problem 3: p: ...".
MONGE_API std::vector<RegularizedPlan> solve_regularized_batch(Context const& context,
                                                               std::span<RegularizedProblem const> problems,
                                                               RegularizedOptions const& options = {});

}  // namespace monge
