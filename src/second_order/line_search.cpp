#include "second_order/line_search.hpp"

#include <algorithm>
#include <cmath>

#include "core/numbers.hpp"

namespace monge {
namespace {

/// An interval must shrink by this factor in two steps; an extrapolated step stays within this fraction of it.
constexpr double kShrink = 0.66;
/// While the bracket has no upper end, the next advance lies between these multiples of the last one.
constexpr double kLeastAdvance = 1.1, kMostAdvance = 4.0;

/// The minimiser of the cubic with the values and slopes of both points; NaN if it has none. Nocedal and Wright,
/// Numerical Optimization (2006), eq. 3.59.
double cubic_step(LinePoint const& a, LinePoint const& b) {
  double const first = a.slope + b.slope - 3 * (a.value - b.value) / (a.step - b.step);
  double const second = std::copysign(std::sqrt(first * first - a.slope * b.slope), b.step - a.step);
  return b.step - (b.step - a.step) * (b.slope + second - first) / (b.slope - a.slope + 2 * second);
}

/// The minimiser of the parabola with the value and slope of `a` and the value of `b`.
double quadratic_step(LinePoint const& a, LinePoint const& b) {
  double const width = b.step - a.step;
  return a.step + width * a.slope / (2 * (a.slope - (b.value - a.value) / width));
}

/// The minimiser of the parabola with both slopes.
double secant_step(LinePoint const& a, LinePoint const& b) {
  return b.step - b.slope * (b.step - a.step) / (b.slope - a.slope);
}

/// An interval with a minimum of psi: from the lowest point so far to an end beyond it, once one is known.
class Bracket {
 public:
  Bracket(LinePoint const& start, double resolution) : low_(start), high_(start), resolution_(resolution) {}

  LinePoint const& low() const { return low_; }
  bool closed() const { return closed_; }
  double width() const { return closed_ ? std::fabs(high_.step - low_.step) : kInfinity; }

  /// Takes a new point and returns the next step.
  double next_step(LinePoint const& trial) {
    double const advance = trial.step - low_.step;
    bool const was_closed = closed_, higher = !(trial.value <= low_.value + resolution_);
    double step = 0;
    if (higher) {
      double const cubic = cubic_step(low_, trial), quadratic = quadratic_step(low_, trial);
      step = std::fabs(cubic - low_.step) < std::fabs(quadratic - low_.step) ? cubic : (cubic + quadratic) / 2;
      close(low_, trial);
    } else if (trial.slope * low_.slope < 0) {
      double const cubic = cubic_step(low_, trial), secant = secant_step(low_, trial);
      bool const differ = std::fabs(trial.value - low_.value) > resolution_;
      step = differ && std::fabs(cubic - trial.step) > std::fabs(secant - trial.step) ? cubic : secant;
      close(trial, low_);
    } else {
      step = was_closed ? inner_step(trial) : outer_step(trial, advance);
      low_ = trial;
    }
    if (!closed_) {
      return std::clamp(step, trial.step + kLeastAdvance * advance, trial.step + kMostAdvance * advance);
    }
    double const middle = low_.step + (high_.step - low_.step) / 2;
    bool const slow = width() >= kShrink * width_before_;
    width_before_ = width_;
    width_ = width();
    auto const [least, most] = std::minmax(low_.step, high_.step);
    return !slow && step > least && step < most ? step : middle;
  }

 private:
  void close(LinePoint const low, LinePoint const high) {
    low_ = low;
    high_ = high;
    closed_ = true;
  }

  bool flattens(LinePoint const& trial) const { return std::fabs(trial.slope) < std::fabs(low_.slope); }

  /// A step past `trial` towards the end of the interval, but not beyond it.
  double inner_step(LinePoint const& trial) const {
    if (!flattens(trial)) return cubic_step(trial, high_);
    double const cubic = cubic_step(low_, trial), secant = secant_step(low_, trial);
    bool const beyond = (cubic - trial.step) * (trial.step - low_.step) > 0;
    double const step = beyond && std::fabs(cubic - trial.step) < std::fabs(secant - trial.step) ? cubic : secant;
    double const most = trial.step + kShrink * (high_.step - trial.step);
    return high_.step > trial.step ? std::min(step, most) : std::max(step, most);
  }

  /// A step beyond `trial`, by extrapolation.
  double outer_step(LinePoint const& trial, double advance) const {
    if (!flattens(trial)) return trial.step + kMostAdvance * advance;
    double const cubic = cubic_step(low_, trial), secant = secant_step(low_, trial);
    return cubic > trial.step ? std::max(cubic, secant) : secant;
  }

  LinePoint low_, high_;
  double resolution_;
  bool closed_ = false;
  double width_ = kInfinity, width_before_ = kInfinity;
};

}  // namespace

LineSearchResult wolfe_search(LinePoint const& start, double first_step,
                              std::function<LinePoint(double step)> const& phi, WolfeOptions const& options) {
  double const tilt = options.decrease * start.slope;
  Bracket bracket({0, 0, start.slope - tilt}, options.resolution);
  LinePoint best = start;
  double step = std::clamp(first_step, options.least_step, options.most_step);
  for (int evaluations = 1;; ++evaluations) {
    LinePoint const point = phi(step);
    LinePoint const trial{step, point.value - start.value - tilt * step, point.slope - tilt};
    bool const enough = trial.value <= options.resolution;
    if (enough && std::fabs(point.slope) <= -options.curvature * start.slope) return {point, evaluations};
    if (enough && step == options.most_step && point.slope < 0) return {point, evaluations};
    step = bracket.next_step(trial);
    if (enough && bracket.low().step == point.step) best = point;
    if (!bracket.closed()) step = std::min(step, options.most_step);
    bool const no_room = step < options.least_step || bracket.width() < options.least_step;
    if (evaluations >= options.evaluations || no_room) return {best, evaluations};
  }
}

}  // namespace monge
