// Where Newton's method takes over from sweeps.
#pragma once
#include <monge/entropic.hpp>

#include "entropic/policy/error_trend.hpp"
#include "seam/backend.hpp"

namespace monge {

/// Sweeps at a new eps before Newton's method, which show whether it is needed.
inline constexpr int kSweepsBeforeNewton = 2;

class NewtonChoice {
 public:
  /// `is_warm`: the potentials are given. If sweeps have left an error, it is no transient of a poor start.
  NewtonChoice(SolveOptions const& options, PassTimes const& times, bool is_warm = false);

  /// A step has been taken. Once a rung has needed the method, it is used at every eps.
  void stepped() { has_stepped_ = true; }

  bool is_allowed() const { return is_allowed_; }
  /// Whether the method may follow the first two sweeps of a rung. Otherwise it follows only sweeps that are stuck.
  bool follows_rungs(Precision precision) const;
  /// Whether the method is expected to come to `wanted` before sweeps do, which take the time of float64 below `floor`.
  /// The rate of the sweeps decides; sweeps that have cost as much as Newton's method get few more.
  bool pays(ErrorTrend const& trend, double wanted, Precision precision, double floor) const;
  /// The same on a rung that ends at the error `wanted`.
  bool pays_on_rung(ErrorTrend const& trend, double wanted, Precision precision) const;

 private:
  double sweeps_of_solve(Precision precision) const;

  bool is_asked_for_;
  bool is_allowed_;
  bool is_warm_;
  bool has_stepped_ = false;
  PassTimes times_;
};

}  // namespace monge
