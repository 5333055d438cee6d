// The decisions of a solve by Sinkhorn's algorithm and Newton's method, apart from the operator that carries them out.
#pragma once
#include <limits>
#include <optional>
#include <vector>

#include <monge/entropic.hpp>

#include "entropic/relaxation.hpp"
#include "seam/entropic_operator.hpp"
#include "second_order/newton.hpp"

namespace monge {

/// The next action on one problem, and the member of the policy that is told its outcome.
enum class SinkhornAction {
  sweep,    ///< `count` sweeps of the kind `sweep`; then swept().
  newton,   ///< NewtonMethod::advance() at the eps of `sweep`, of at most `count` passes; then stepped().
  splr,     ///< run_splr() at the eps of `sweep` with SplrLimits::passes = `count`; then ended().
  certify,  ///< A float64 evaluation of the potentials; then certified().
  refine,   ///< A float64 operator takes over the potentials; then refined().
  finish,   ///< Nothing: the solve has ended with `status`.
};

/// Where costs are below this share of eps, potentials in float32 have few digits: their rounding is that of eps.
inline constexpr double kFewDigits = 0x1p-10;

struct SinkhornStep {
  SinkhornAction action;
  Sweep sweep{};
  int count = 0;
  Status status = Status::completed;
  bool recentres = false;  // Whether a large constant may have come into the potentials.
};

/// Decides about one problem: whether it needs the eps ladder and when a rung is done, omega, when a sweep is plain,
/// where Newton's method pays, when to evaluate a certificate, whether to believe it, when the precision can go no
/// further, when to end and with which status. A state machine over numbers alone: next() gives the action, the member
/// named there is told its outcome. A batch is therefore a vector of policies, each of which ends by itself.
class SinkhornPolicy {
 public:
  /// `mass`: errors are relative to it. `cost_bound`: EntropicOperator::cost_size().centred_bound. `level`: the size of
  /// the part of the potentials that penalties add to the costs'. `times`: of passes of this problem. `precision`: of
  /// the first sweeps, not `automatic`. `is_warm`: the potentials are given, and may be the solution. `is_self`:
  /// EntropicOperator::is_self(). The options outlive the policy.
  SinkhornPolicy(SolveOptions const& options, double mass, double cost_bound, double level, PassTimes times,
                 Precision precision, bool is_warm = false, bool is_self = false);

  SinkhornStep const& next() const { return step_; }

  /// The sweeps are done; `errors` are those of the last.
  void swept(SweepErrors const& errors);
  void stepped(NewtonProgress const& progress);
  /// Newton's method, once the policy is_short(), has returned to its best potentials, whose L1 error is `error`.
  void returned(double error) { errors_ = {0, error}; }
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
  Precision precision() const { return precision_; }
  /// The marginal error of the current potentials: certified, or else the last sweep's estimate.
  double marginal_error() const { return certified_error_.value_or(bound()); }
  /// The same for the criterion's value, relative as the tolerance is. Criteria other than l1 always have certificates.
  double value() const { return certified_value_.value_or(bound() / mass_); }
  /// The relative rounding error of an entry of the plan, at costs of size `bound`.
  double entry_rounding(double bound) const;
  /// The rounding of the potentials as a share of the costs; 0 for costs that are all equal.
  double potential_rounding() const;

 private:
  enum class Mode { sinkhorn, newton };
  /// The question to the next certificate: how large rounding is, or whether it is the reason why the error stays.
  enum class Doubt { none, rounding, stall };
  static constexpr int kManyPasses = 1 << 20;

  bool symmetric() const { return options_.schedule == Schedule::symmetric; }
  /// Whether options_.iterations is the number of Newton's steps at eps, whatever passes they and the ladder take.
  bool runs_steps() const { return options_.method == Method::newton && options_.tolerance == 0; }
  int remaining() const { return runs_steps() ? kManyPasses : options_.iterations - iterations_; }
  double seen_error() const { return errors_.row + errors_.column; }
  /// Whether the last sweep was an alternating one without overrelaxation.
  bool was_plain() const { return !last_sweep_.symmetric && last_sweep_.relaxation == 1; }
  double bound() const;
  double expected_error() const;
  bool may_refine() const { return options_.precision == Precision::automatic && precision_ != Precision::float64; }

  /// Whether a float64 evaluation tells rounding from slow convergence. Where the level exceeds the costs it does not:
  /// rounding of the level gives rows and columns equal errors.
  bool rounding_shows() const { return options_.certificate && !is_self_ && level_ <= cost_bound_; }

  bool has_reached_target() const;
  double logit_size(double eps, double bound) const;
  double logit_rounding(double eps) const;
  bool begins_in_float64() const;
  bool foresees_floor() const;
  bool lacks_rounding() const;
  void ask_certificate();
  void aim_lower(double value, double error);
  bool steps_on_ladder() const;
  double sweeps_of_newton_pass() const;
  bool judges_rate() const;
  bool newton_pays() const;
  double foreseen_sweeps(double error) const;
  void take_newton();
  void begin();
  void go_on();
  void go_no_further();
  void stalled();
  void end(Status shortfall);
  void start_ladder();
  void start_rung();
  void swept_on_ladder();
  double rung_eps() const;
  SinkhornStep sweeps();
  double seen_rate() const;
  int until_check(int usual) const;
  bool relaxes_next();
  int first_patience() const;
  bool has_stopped_falling(int patience);

  SolveOptions const& options_;
  double mass_;
  double cost_bound_;
  double level_;
  PassTimes times_;
  Precision precision_;
  bool is_warm_, is_self_;
  SinkhornStep step_{};

  Sweep last_sweep_{};
  SweepErrors errors_;  // Errors that last_sweep_ reported.
  int iterations_ = 0;
  int annealing_iterations_ = 0;
  bool may_step_;               // Whether Newton's method is allowed.
  Mode mode_ = Mode::sinkhorn;  // The method on this rung.
  int newton_steps_ = 0;
  int newton_iterations_ = 0;
  int advances_ = 0;  // Steps of Newton's method at options_.eps, if runs_steps().
  double gradient_norm_ = std::numeric_limits<double>::quiet_NaN();  // From a Newton step; NaN after sweeps.
  struct Seen {
    int iteration;
    double error;
    bool is_plain;
  };
  std::vector<Seen> seen_;  // Checks at the eps of the last sweep.
  bool on_trial_;           // Whether sweeps without the ladder are on trial.
  int rungs_ = 0;           // Rungs from the current eps down to options_.eps.
  int top_rung_ = 0;        // The rung at which the ladder begins.
  bool climbs_ = false;     // Whether a warm start goes up the ladder, until its error is small.
  int rung_end_ = 0;        // Iteration at which the rung ends, whatever its error.
  int ladder_end_ = 0;      // Iteration at which the ladder ends.
  AdaptiveRelaxation relaxation_;
  Doubt doubt_ = Doubt::none;
  /// The column error that rounding leaves after a plain sweep, from a certificate; 0 where the tolerance is above it.
  std::optional<double> rounding_;
  int patience_;            // Sweeps without progress before rounding is suspected.
  double polish_below_;     // Relative error at which to try plain sweeps next.
  double target_;           // Sweeps aim at this error. A certificate that finds more error lowers it.
  double gradient_target_;  // The same for the gradient norm, if it is the criterion.
  double best_error_ = std::numeric_limits<double>::infinity();
  double doubted_error_ = std::numeric_limits<double>::infinity();  // Error at which rounding was last suspected.
  int best_iteration_ = 0;
  std::optional<int> refined_at_;          // Iteration.
  std::optional<double> certified_error_;  // Certified error of the current potentials.
  std::optional<double> certified_value_;  // The criterion's value, relative as the tolerance is.
  std::optional<Status> shortfall_;        // Set when the solve is ending: its status if the target is missed.
};

}  // namespace monge
