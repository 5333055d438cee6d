// Judges whether rounding or slow convergence keeps the error of a solve from falling.
#pragma once
#include <limits>
#include <optional>

#include <monge/entropic.hpp>

#include "core/evaluation.hpp"
#include "entropic/policy/error_trend.hpp"
#include "entropic/policy/rounding.hpp"

namespace monge {

class RoundingLimit {
 public:
  /// `mass`: errors are relative to it. `is_self`: EntropicOperator::is_self(). The options outlive the object.
  RoundingLimit(SolveOptions const& options, LogitScale const& scale, double mass, Precision precision, bool is_self);

  /// The precision of the sweeps.
  Precision precision() const { return precision_; }
  LogitScale const& scale() const { return scale_; }
  /// Whether float64 may take over.
  bool may_refine() const { return options_.precision == Precision::automatic && precision_ != Precision::float64; }
  void refined();
  /// Errors are relative to `mass` from here on.
  void weigh(double mass) { mass_ = mass; }

  /// Whether a float64 evaluation tells rounding from slow convergence. Where the level exceeds the costs it does not:
  /// rounding of the level gives rows and columns equal errors.
  bool shows() const { return options_.certificate && !is_self_ && scale_.level <= scale_.cost_bound; }
  /// Whether float64 comes first, where costs are at most `float64_up_to` times eps: see PassTimes.
  bool begins_in_float64(double float64_up_to) const;
  /// The error at which float64 is foreseen to take over from sweeps that aim at `target`; 0 if it does not.
  double floor(SweepOutcome const& outcome, double target) const;
  /// Whether sweeps have come to errors that rounding stops, on the way to a tolerance out of its reach. `target` is
  /// the error that they aim at.
  bool foresees_floor(SweepOutcome const& outcome, double target) const;
  /// Whether the residuals of sweeps have so few digits that combinations would fit rounding.
  bool blurs(SweepOutcome const& outcome) const;
  /// Whether the error has stopped falling at a level that rounding explains.
  bool has_stalled(SweepOutcome const& outcome, int iteration) { return stays(outcome, iteration, patience_); }
  /// The same where no evaluation can decide, which takes longer.
  bool has_stalled_blindly(SweepOutcome const& outcome, int iteration);
  /// Errors from here on are not compared with those before.
  void forget() { best_.forget(); }

  /// Whether there is a question to the next certificate; its sweep is a plain one.
  bool doubts() const { return doubt_ != Doubt::none; }
  /// The certificate shall say whether rounding is the reason why the error stays.
  void doubt_stall() { doubt_ = Doubt::stall; }
  /// Asks for a certificate that measures what rounding leaves, if sweeps may stall soon at errors above the tolerance.
  /// Returns whether it is asked for.
  bool doubt_rounding(SweepOutcome const& outcome, double target);

  enum class Verdict {
    aim_lower,  ///< The sweeps had not seen all of the error: they should go on with a lower target.
    go_on,      ///< Convergence is slow.
    stalled,    ///< Rounding keeps the error from falling.
    limit,      ///< The precision can go no further.
  };
  /// The verdict of a certificate above the tolerance, with the criterion's `value`. Answers the question.
  Verdict certified(Evaluation const& evaluation, double value, SweepOutcome const& outcome, double target);

 private:
  /// The question to the next certificate: how large rounding is, or whether it is the reason why the error stays.
  enum class Doubt { none, rounding, stall };

  int first_patience() const;
  bool stays(SweepOutcome const& outcome, int iteration, int patience);

  SolveOptions const& options_;
  LogitScale scale_;
  double mass_;
  Precision precision_;
  bool is_self_;
  Doubt doubt_ = Doubt::none;
  /// The column error that rounding leaves after a plain sweep, from a certificate; 0 where the tolerance is above it.
  std::optional<double> measured_;
  int patience_;  // Sweeps without progress before rounding is suspected.
  BestError best_;
  double doubted_error_ = std::numeric_limits<double>::infinity();  // Error at which rounding was last suspected.
};

}  // namespace monge
