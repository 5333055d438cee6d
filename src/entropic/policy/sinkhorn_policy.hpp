// The decisions of a solve by Sinkhorn's algorithm and Newton's method, apart from the operator that carries them out.
#pragma once
#include <limits>
#include <optional>

#include <monge/entropic.hpp>

#include "entropic/policy/eps_ladder.hpp"
#include "entropic/policy/error_trend.hpp"
#include "entropic/policy/mixing_choice.hpp"
#include "entropic/policy/newton_choice.hpp"
#include "entropic/policy/relaxation.hpp"
#include "entropic/policy/rounding_limit.hpp"
#include "second_order/newton.hpp"

namespace monge {

/// The next action on one problem, and the member of the policy that is told its outcome.
enum class SinkhornAction {
  sweep,    ///< `count` sweeps of the kind `sweep`, which is one if `mixing` is not off; then swept().
  newton,   ///< NewtonMethod::advance() at the eps of `sweep`, of at most `count` passes; then stepped().
  splr,     ///< run_splr() at the eps of `sweep` with SplrLimits::passes = `count`; then ended().
  certify,  ///< A float64 evaluation of the potentials; then certified().
  refine,   ///< A float64 operator takes over the potentials; then refined().
  finish,   ///< Nothing: the solve has ended with `status`.
};

struct SinkhornStep {
  SinkhornAction action;
  Sweep sweep{};
  int count = 0;
  Status status = Status::completed;
  Mixing mixing = Mixing::off;
  bool recentres = false;  // Whether a large constant may have come into the potentials.
};

/// Decides about one problem: whether it needs the eps ladder and when a rung is done, when a sweep is plain, when to
/// evaluate a certificate, when to end and with which status. Its parts decide the rest: EpsLadder, AdaptiveRelaxation,
/// NewtonChoice and RoundingLimit. The policy is a state machine over numbers alone: next() gives the action, and the
/// caller passes the outcome to the member function that SinkhornAction names. A batch is a vector of policies. Each
/// policy ends by itself.
class SinkhornPolicy {
 public:
  /// `mass`: the larger of the totals of a and b. Errors are relative to it, or to the mass of the plan where penalties
  /// let it be smaller, once that is known. `cost_bound` and `level`: of the LogitScale. `times`: of passes
  /// of this problem. `precision`: of the first sweeps, not `automatic`. `is_warm`: the potentials are given, and may
  /// be the solution. `is_self`: EntropicOperator::is_self(). The options outlive the policy.
  SinkhornPolicy(SolveOptions const& options, double mass, double cost_bound, double level, PassTimes times,
                 Precision precision, bool is_warm = false, bool is_self = false);

  SinkhornStep const& next() const { return step_; }

  /// The plan has this mass and L1 error. Certificates tell it; without them the caller does before swept().
  void weigh(double mass, double error);
  /// The sweeps are done; `errors` are those of the last.
  void swept(SweepErrors const& errors);
  /// Whether the last sweep, a mixed one, has left the best potentials. The caller goes back to the best otherwise.
  bool is_best() const { return mixing_.is_best(); }
  /// Errors at the start of the sweep that made the present potentials.
  SweepErrors const& errors() const { return last_.errors; }
  /// The kind of the last sweeps or of the last step of Newton's method. It does not note steps of SPLR.
  StepKind kind() const { return kind_; }
  void stepped(NewtonProgress const& progress);
  /// Newton's method, once the policy is_short(), has returned to its best potentials, whose L1 error is `error`.
  void returned(double error) { last_.errors = {0, error}; }
  /// SPLR has ended; `error` is the L1 error.
  void ended(Status status, int steps, int passes, double error);
  /// The evaluation is in float64.
  void certified(Evaluation const& evaluation);
  void refined();
  /// The caller wants to stop. One sweep at eps and a certificate may still be due.
  void stop();

  /// Whether the solve is ending: at most one sweep at eps and a certificate are left.
  bool is_short() const { return shortfall_.has_value(); }
  int iterations() const { return iterations_; }
  int annealing_iterations() const { return annealing_iterations_; }
  int newton_steps() const { return newton_steps_; }
  int newton_iterations() const { return newton_iterations_; }
  int refinement_iterations() const { return iterations_ - refined_at_.value_or(iterations_); }
  /// The precision of the sweeps so far; after refined(), of the next sweeps.
  Precision precision() const { return rounding_.precision(); }
  /// The marginal error of the current potentials: certified, or else the last sweep's estimate.
  double marginal_error() const { return certified_error_.value_or(last_.bound()); }
  /// The same for the criterion's value, relative as the tolerance is. Criteria other than l1 always have certificates.
  double value() const { return certified_value_.value_or(last_.bound() / mass_); }
  LogitScale const& scale() const { return rounding_.scale(); }
  /// Errors are relative to it.
  double mass() const { return mass_; }

 private:
  enum class Mode { sinkhorn, newton };
  static constexpr int kManyPasses = 1 << 20;

  bool symmetric() const { return options_.schedule == Schedule::symmetric; }
  /// Whether options_.iterations is the number of Newton's steps at eps, whatever passes they and the ladder take.
  bool runs_steps() const { return options_.method == Method::newton && options_.tolerance == 0; }
  int remaining() const { return runs_steps() ? kManyPasses : options_.iterations - iterations_; }
  bool newton_follows_rungs() const { return newton_.follows_rungs(precision()); }

  bool has_reached_target() const;
  double expected_error() const;
  void saw(SweepOutcome const& outcome, int passes);
  void ask_certificate();
  void aim_lower(double value, double error);
  bool ends_trial();
  bool has_failed_trial() const;
  bool mixes_on_ladder() const;
  bool mixes_next() const;
  bool judges_rate() const;
  void take_newton();
  void begin();
  void go_on();
  void go_no_further();
  void stalled();
  void end(Status shortfall);
  void start_ladder();
  void start_rung();
  void swept_on_ladder();
  SinkhornStep sweeps();
  int most_sweeps(bool relax) const;
  double seen_rate() const;
  double foreseen_sweeps() const;
  int until_check(int usual) const;
  bool relaxes_next();

  SolveOptions const& options_;
  double total_;  // The larger of the totals of a and b.
  double mass_;   // Errors are relative to it.
  PassTimes times_;
  bool is_warm_, is_self_;
  SinkhornStep step_{};

  SweepOutcome last_;
  StepKind kind_ = StepKind::sweeps;
  int iterations_ = 0;
  int annealing_iterations_ = 0;
  Mode mode_ = Mode::sinkhorn;  // The method on this rung.
  int newton_steps_ = 0;
  int newton_iterations_ = 0;
  int advances_ = 0;  // Steps of Newton's method at options_.eps, if runs_steps().
  double gradient_norm_ = std::numeric_limits<double>::quiet_NaN();  // The norm after a Newton step; else NaN.
  bool on_trial_;                                                    // Whether sweeps without the ladder are on trial.
  EpsLadder ladder_;
  AdaptiveRelaxation relaxation_;
  MixingChoice mixing_;
  NewtonChoice newton_;
  RoundingLimit rounding_;
  ErrorTrend trend_;                       // The trend at the eps of the last sweep.
  double polish_below_;                    // Relative error at which to try plain sweeps next.
  double target_;                          // Sweeps aim at this error. A certificate that finds more error lowers it.
  double gradient_target_;                 // The same for the gradient norm, if it is the criterion.
  std::optional<int> refined_at_;          // Iteration.
  std::optional<double> certified_error_;  // Certified error of the current potentials.
  std::optional<double> certified_value_;  // The criterion's value, relative as the tolerance is.
  std::optional<Status> shortfall_;        // Set when the solve is ending: its status if the target is missed.
};

}  // namespace monge
