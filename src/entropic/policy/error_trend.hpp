// The errors that a solve has seen, and the sweeps that they foretell.
#pragma once
#include <limits>
#include <vector>

#include "seam/entropic_operator.hpp"

namespace monge {

/// The last sweep, or evaluation of a step, and the errors that it saw.
struct SweepOutcome {
  Sweep sweep{};
  SweepErrors errors{};
  bool is_mixed = false;  // Whether the errors are the least of sweeps that started from combinations.

  double error() const { return errors.row + errors.column; }
  /// Whether it was an alternating sweep without overrelaxation.
  bool is_plain() const { return !sweep.symmetric && sweep.relaxation == 1; }
  /// The L1 error of the potentials that it left, as far as it can tell. A plain sweep leaves the columns exact and
  /// |P 1 - a|_1 at most the column error that it found. For other sweeps it is the error before them.
  double bound() const { return is_plain() ? errors.column : error(); }
};

/// Overrelaxed and mixed sweeps that show their rate once the transients of a start or of a new omega are over.
inline constexpr int kSweepsOfRate = 20;

/// The errors at the checks of one eps and one precision.
class ErrorTrend {
 public:
  void add(int iteration, SweepOutcome const& outcome) {
    checks_.push_back({iteration, outcome.error(), outcome.sweep.relaxation == 1 && !outcome.is_mixed});
  }
  void clear() { checks_.clear(); }

  int checks() const { return static_cast<int>(checks_.size()); }
  /// The sweeps from the first check to the last. There is a check.
  int sweeps() const { return checks_.back().iteration - checks_.front().iteration; }
  /// The last error as a fraction of the error at least `sweeps` sweeps before; 1 where that is not known.
  double fraction_since(int sweeps) const;
  /// The mean factor of the error per sweep between the last two checks. There are two.
  double last_rate() const;
  /// The number of sweeps until the error is foreseen to fall to `error`. Overrelaxed and mixed sweeps are foreseen to
  /// keep the rate of the last `window` sweeps. From the rate of plain sweeps follows the rate at the best omega, which
  /// then counts. 0 where no rate is known yet. There is a check.
  double foreseen_sweeps(double error, int window = kSweepsOfRate) const;

 private:
  struct Check {
    int iteration;
    double error;
    bool is_plain;
  };
  std::vector<Check> checks_;
};

/// The smallest error so far, and when it was seen.
class BestError {
 public:
  /// Whether `error` is below `fall` times the smallest so far, and so becomes the smallest.
  bool improves(double error, double fall, int iteration);
  int iteration() const { return iteration_; }
  void forget() { error_ = std::numeric_limits<double>::infinity(); }

 private:
  double error_ = std::numeric_limits<double>::infinity();
  int iteration_ = 0;
};

}  // namespace monge
