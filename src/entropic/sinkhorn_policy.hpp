// The decisions of a solve by Sinkhorn's algorithm and Newton's method, apart from the operator that carries them out.
#pragma once
#include <limits>
#include <optional>
#include <vector>

#include <monge/entropic.hpp>

#include "entropic/entropic_operator.hpp"
#include "entropic/relaxation.hpp"
#include "second_order/newton.hpp"

namespace monge {

/// What to do next with one problem, and which member of the policy the outcome goes to.
enum class SinkhornAction {
  sweep,    ///< `count` sweeps of the kind `sweep`; then swept().
  newton,   ///< NewtonMethod::advance() at the eps of `sweep`, of at most `count` passes; then stepped().
  splr,     ///< run_splr() at the eps of `sweep`, of some `count` passes, to its end; then ended().
  certify,  ///< A float64 evaluation of the potentials; then certified().
  refine,   ///< Float64 sweeps take over from the potentials that are there; then refined().
  finish,   ///< Nothing: the solve has ended with `status`.
};

struct SinkhornStep {
  SinkhornAction action;
  Sweep sweep{};
  int count = 0;
  Status status = Status::completed;
};

/// Decides about one problem: whether it needs the eps ladder and when a rung is done, omega, when a sweep is plain,
/// where Newton's method pays, when to evaluate a certificate, whether to believe it, when the precision can go no
/// further, when to end and with which status. A state machine over numbers alone: next() says what to do, the member
/// named there is told how it went. So the solves of a batch are a vector of policies, each of which ends by itself.
class SinkhornPolicy {
 public:
  /// `mass` is what errors are relative to, `cost_bound` is EntropicOperator::cost_size().centred_bound, `level` the
  /// size of what potentials have beside the costs, `float64_cost` is the backend's and `precision` that of the sweeps,
  /// not `automatic`. `is_warm`: the potentials are given, and may be the solution. The options outlive the policy.
  SinkhornPolicy(SolveOptions const& options, double mass, double cost_bound, double level, double float64_cost,
                 Precision precision, bool is_warm = false);

  SinkhornStep const& next() const { return step_; }

  /// The errors of the last of the sweeps.
  void swept(SweepErrors const& errors);
  void stepped(NewtonProgress const& progress);
  /// Newton's method has gone back to where the L1 error is this, as it does once the policy is_short().
  void returned(double error) { errors_ = {0, error}; }
  /// `error` in L1.
  void ended(Status status, int steps, int passes, double error);
  /// In float64.
  void certified(Evaluation const& evaluation);
  void refined();
  /// The caller wants no more sweeps; one at eps and a certificate may still be due.
  void stop();

  /// It ends: all that may still come is a sweep at eps and a certificate.
  bool is_short() const { return shortfall_.has_value(); }
  int iterations() const { return iterations_; }
  int annealing_iterations() const { return annealing_iterations_; }
  int newton_steps() const { return newton_steps_; }
  int newton_iterations() const { return newton_iterations_; }
  int refinement_iterations() const { return iterations_ - refined_at_.value_or(iterations_); }
  /// Of the sweeps so far; after refined(), of those to come.
  Precision precision() const { return precision_; }
  /// The marginal error of the current potentials: the certified one, or what the last sweep can tell.
  double marginal_error() const { return certified_error_.value_or(bound()); }
  /// The same of what the criterion says, relative as the tolerance is; others than l1 have certificates.
  double value() const { return certified_value_.value_or(bound() / mass_); }

 private:
  enum class Mode { sinkhorn, newton };

  bool symmetric() const { return options_.schedule == Schedule::symmetric; }
  int remaining() const { return options_.iterations - iterations_; }
  double seen_error() const { return errors_.row + errors_.column; }
  /// Whether the last sweep was an alternating one without overrelaxation.
  bool was_plain() const { return !last_sweep_.symmetric && last_sweep_.relaxation == 1; }
  double bound() const;
  bool may_refine() const { return options_.precision == Precision::automatic && precision_ != Precision::float64; }

  /// Whether a float64 evaluation tells rounding from slowness. Where the level is what is rounded, rows and columns
  /// are off alike.
  bool rounding_shows() const { return options_.certificate && !symmetric() && level_ <= cost_bound_; }

  bool has_reached_target() const;
  void ask_certificate();
  void aim_lower(double value, double error);
  bool steps_on_ladder() const;
  double sweeps_like_newton() const;
  bool judges_rate() const;
  bool newton_pays() const;
  void take_newton();
  void go_on();
  void go_no_further();
  void stalled();
  void end(Status shortfall);
  void start_ladder();
  void start_rung();
  void swept_on_ladder();
  double rung_eps() const;
  SinkhornStep sweeps();
  int until_check(int usual) const;
  bool relaxes_next();
  bool has_stopped_falling(int patience);

  SolveOptions const& options_;
  double mass_;
  double cost_bound_;
  double level_;
  double float64_cost_;
  Precision precision_;
  SinkhornStep step_{};

  Sweep last_sweep_{};
  SweepErrors errors_;  // Of last_sweep_.
  int iterations_ = 0;
  int annealing_iterations_ = 0;
  bool may_step_;               // Newton's method is a choice,
  Mode mode_ = Mode::sinkhorn;  // and this is what has been chosen on this rung.
  int newton_steps_ = 0;
  int newton_iterations_ = 0;
  double gradient_norm_ = std::numeric_limits<double>::quiet_NaN();  // If Newton's method came last.
  struct Seen {
    int iteration;
    double error;
    bool is_plain;
  };
  std::vector<Seen> seen_;  // At the eps of the last sweep.
  bool on_trial_;           // Of a cold start without the ladder.
  int rungs_ = 0;           // From the eps of the sweeps down to the one that was asked for.
  int rung_end_ = 0;        // Iteration at which the rung ends, whatever its error.
  int ladder_end_ = 0;      // Iteration.
  AdaptiveRelaxation relaxation_;
  bool in_doubt_ = false;   // Whether rounding or a slow rate keeps the error from falling: float64 will tell.
  int patience_;            // Sweeps without progress before it is asked.
  double polish_below_;     // Relative error at which to try plain sweeps next.
  double target_;           // For the sweeps' own error; moved where a certificate has disagreed.
  double gradient_target_;  // The same for the gradient norm, if that is the criterion.
  double best_error_ = std::numeric_limits<double>::infinity();
  double doubted_error_ = std::numeric_limits<double>::infinity();  // Where rounding was last suspected.
  int best_iteration_ = 0;
  std::optional<int> refined_at_;          // Iteration.
  std::optional<double> certified_error_;  // Of the current potentials.
  std::optional<double> certified_value_;  // The same, of what the criterion says, relative as the tolerance is.
  std::optional<Status> shortfall_;        // Once there are no more sweeps: the status if they are short of the target.
};

}  // namespace monge
