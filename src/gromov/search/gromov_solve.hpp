// The search of one solve_gromov(): steps from several starts, and the report of the best (docs/math.md, section 21).
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include <monge/gromov.hpp>
#include <monge/solver.hpp>

#include "core/numbers.hpp"
#include "core/stopwatch.hpp"
#include "geometry/validation.hpp"
#include "gromov/gromov_problem.hpp"

namespace monge {

/// A search from each start. It ends with the best plan.
class GromovSolve {
 public:
  GromovSolve(Context const& context, std::unique_ptr<GromovProblem const> problem, GromovOptions const& options);

  Gromov run();

 private:
  static constexpr double kRounding = 0x1p-40;    // A difference of values, as a fraction of the problem's size.
  static constexpr double kLeastFraction = 1e-3;  // Smaller fractions of the largest value or image count as this.

  /// One start and where it has got to.
  struct Search {
    GromovStartKind kind{};
    DenseMatrix image;      // The image at which the next step linearises.
    DenseMatrix used;       // The image of the last step.
    DenseMatrix sum;        // All images at which the proximal method has linearised, added,
    double shares = 0;      // and unbalanced their factors 1 / mass,
    DenseVector r, c;       // and the terms of rows and columns that complete their costs and the proximal entropy.
    double rescaling = 1;   // The factor of the last unbalanced plan.
    DenseMatrix move;       // The last unbalanced step, from `used` to the image of its plan,
    double length = 1;      // and the fraction of it that is taken.
    double at = kInfinity;  // The objective there or an upper bound, where it is known; balanced without entropy.
    bool mixed = false;     // Whether the last plan without entropy lies within a step, not at its end.
    bool is_plan = false;   // Whether the image is that of a plan that is known, not of a start in part.
    std::vector<double> f, g;
    std::optional<Plan> plan;
    std::optional<ExactPlan> exact;
    std::optional<ExactPlan> blend;  // The plan of `image` where it is mixed and the image is no plan. Until `is_plan`
                                     // it lacks the part of the start.
    double eps = 0, value = kInfinity, change = 1, stationarity = kNaN;
    double halved = 1;  // A change, at most half of the one before it,
    int stuck = 0;      // and the steps since, whose changes are above its half.
    int iterations = 0;
    int rested = 0;  // The iterations at the first small change.
    bool finished = false, converged = false;
    bool is_short = false;  // Whether the last partial plan with entropy has missed its marginal error.
  };

  bool is_exact() const { return options_.eps == 0; }
  bool is_proximal() const { return options_.method == GromovMethod::proximal; }
  bool is(GromovMarginals marginals) const { return options_.marginals == marginals; }
  bool is_last(Search const& search) const { return search.iterations >= options_.iterations; }
  /// Call only where the marginals are open.
  OpenObjective const& open() const { return *problem_.open(); }
  Search& best();

  void begin();
  void first_steps(std::vector<Search*> const& searches);
  /// Chooses the searches that continue after their first steps, from all searches. Of searches with the same plan it
  /// chooses one. It leaves out values far above the least one, but not the search from the product plan, whose value
  /// falls late.
  std::vector<Search*> worthwhile(std::vector<Search*> order) const;
  void finish(std::vector<Search*> const& searches);
  void finish(Search& search);
  double change_between(DenseMatrix const& one, DenseMatrix const& other) const;
  /// Notes the change of a step and its image.
  void note(Search& search, DenseMatrix image);
  /// Calls the progress function, on the thread of the caller alone.
  bool goes_on(int start, double change);
  bool goes_on(Search const& search) { return goes_on(static_cast<int>(&search - searches_.data()), search.change); }
  /// Changes numbers that progress reads.
  template <class Change>
  void count(Change const& change) {
    std::lock_guard const lock(counts_);
    change();
  }
  Gromov result(Search& best);
  /// Status and message.
  void conclude(Search const& best);

  static Geometry geometry_of(DenseMatrix const& u, DenseMatrix const& v) {
    if (v.size() == 0) return CostMatrix{view_of(u)};
    return PointCloud{.x = view_of(u), .y = view_of(v), .cost_function = CostFunction::dot};
  }
  Geometry geometry() const { return geometry_of(u_, v_); }

  // entropic_steps.cpp
  /// Notes the image at which the next proximal step linearises.
  void accumulate(Search& search);
  /// Makes the costs of the last step.
  void linearise(Search const& search);
  /// The marginal error that a step is allowed after one with this change.
  double marginal_error_after(double change) const;
  /// Throws for a value that is lost.
  void require_digits(double value) const;
  /// One step with entropy, to this marginal error.
  void step(Search& search, double tolerance, int sweeps, bool keep);
  /// Whether a semi-relaxed proximal plan whose change is small has a small Frank-Wolfe gap, too: entries that are
  /// almost 0 grow slowly, so that a search may rest near a saddle point.
  bool is_stationary(Search& search);
  /// Moves points of no weight to others. Far away they would cost the scores of the others digits in float32.
  void hide_idle_points();
  /// The plan of the linear problem with this entropy, to this marginal error.
  Plan solved(Search& search, double tolerance, int sweeps, bool keep);
  SolveOptions penalties() const;
  /// The same with open columns: half of a sweep, from g = 0.
  Plan softmin_plan(Search& search);
  /// The same of partial plans, for matrices.
  Plan partial_plan(Search& search, double tolerance, int sweeps);
  /// The plan of the search's potentials.
  Plan plan_of_potentials(Search const& search) const;
  /// Ends an unbalanced step, after which the objective is bilinear in the last plan and the next.
  void rescale(Search& search, DenseMatrix image);
  /// The weight of the entropy in the objective.
  double entropy_weight() const { return is_proximal() ? 0 : options_.eps; }
  double divergence_weight() const { return options_.penalty_a + options_.penalty_b + entropy_weight(); }
  /// The objective of an unbalanced problem.
  double objective(UnbalancedTerms const& terms) const;
  void evaluate(Search& best);

  // exact_steps.cpp
  /// The plan that takes each row to its column of the least cost. Points of no weight, which may lie far away, take no
  /// part.
  ExactPlan nearest_plan(DenseMatrix const& of_rows, DenseMatrix const& of_columns) const;
  /// The plan of the linear problem without entropy whose costs are u and v.
  ExactPlan exact_plan(Search const& search, DenseMatrix const& u, DenseMatrix const& v);
  /// How much the objective, linearised at a plan of this image and value, falls from there to its minimum.
  double frank_wolfe_gap(Search const& search, DenseMatrix const& image, double value);
  /// Steps of each search, at most `most`, until it ends. On the CPU several searches run side by side, a thread each.
  void exact_steps(std::vector<Search*> const& searches, int most);
  /// One step without entropy, to the least value on the segment to the next plan. The search ends when this is no
  /// better than the last: then no step lowers the value.
  void exact_step(Search& search);
  /// Takes the part of the start out of a mixed plan: the other steps get all of the mass, or the last one if they have
  /// none.
  GromovValue leave_start(Search& search, ExactPlan const& last);
  /// Makes the plan of a search that has not converged, and its stationarity.
  void settle(Search& best);
  /// Raises the lower bound to the value of the best plan, less the gap, and looks for better plans on the way.
  void branch_and_bound();
  void evaluate_exact(Search& best);

  Context const& context_;
  GromovOptions const& options_;
  Stopwatch const watch_;
  std::unique_ptr<GromovProblem const> problem_at_;
  GromovProblem const& problem_;
  GromovReport report_;
  std::vector<Search> searches_;
  DenseMatrix u_, v_;  // The features of the last step with entropy, which the solver reads.
  std::optional<Solver> solver_;
  std::optional<ImagePolytope> polytope_;  // The images of plans, for branch and bound.
  std::thread::id const caller_ = std::this_thread::get_id();
  std::mutex counts_;
  std::atomic<bool> stopped_ = false;
  bool late_ = false, met_ = false;
};

inline double weighted_sum(DenseVector const& weights, std::vector<double> const& values) {
  double sum = 0;
  for (std::int64_t i = 0; i < weights.size(); ++i)
    if (weights(i) > 0) sum += weights(i) * values[to_size(i)];  // Others may be infinite.
  return sum;
}

}  // namespace monge
