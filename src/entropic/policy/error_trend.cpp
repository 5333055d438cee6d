#include "entropic/policy/error_trend.hpp"

#include <algorithm>
#include <cmath>

#include "entropic/policy/relaxation.hpp"

namespace monge {

double ErrorTrend::last_rate() const {
  Check const &last = checks_.back(), &before = checks_[checks_.size() - 2];
  return std::pow(last.error / before.error, 1.0 / (last.iteration - before.iteration));
}

double ErrorTrend::fraction_since(int sweeps) const {
  auto const before = std::find_if(checks_.rbegin(), checks_.rend(), [&](Check const& check) {
    return check.iteration <= checks_.back().iteration - sweeps;
  });
  return before == checks_.rend() ? 1 : checks_.back().error / before->error;
}

double ErrorTrend::foreseen_sweeps(double error, int window) const {
  Check const& last = checks_.back();
  if (last.is_plain) window = 1;
  auto const first = std::find_if(checks_.rbegin(), checks_.rend(), [&](Check const& check) {
    return check.iteration <= last.iteration - window && check.is_plain == last.is_plain;
  });
  if (first == checks_.rend()) return 0;
  double rate = std::pow(last.error / first->error, 1.0 / (last.iteration - first->iteration));
  if (!(rate < 1)) return std::numeric_limits<double>::infinity();
  if (last.is_plain) rate = best_relaxation(rate) - 1;
  return std::log(std::max(last.error / error, 1.0)) / -std::log(rate);
}

bool BestError::improves(double error, double fall, int iteration) {
  if (!(error < fall * error_)) return false;
  error_ = error;
  iteration_ = iteration;
  return true;
}

}  // namespace monge
