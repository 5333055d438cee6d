// A step along a line that meets the strong Wolfe conditions.
#pragma once
#include <functional>

namespace monge {

/// Value and slope of the function phi at one step.
struct LinePoint {
  double step, value, slope;
};

struct WolfeOptions {
  double decrease = 1e-4;  ///< c1: phi(t) <= phi(0) + c1 t phi'(0).
  double curvature = 0.9;  ///< c2 > c1: |phi'(t)| <= c2 |phi'(0)|.
  double least_step = 1e-10, most_step = 2;
  int evaluations = 20;   ///< The most evaluations.
  double resolution = 0;  ///< Values that differ by no more count as equal: then slopes decide.
};

struct LineSearchResult {
  LinePoint point;  ///< The step to take: the least value seen among those with enough decrease; 0 if none had it.
  int evaluations;
};

/// Minimises phi, with phi(0) and phi'(0) < 0 at `start`, until both conditions hold, or the first does at the largest
/// step, or the evaluations are spent. Where phi is not finite a step counts as too long. More and Thuente, Line search
/// algorithms with guaranteed sufficient decrease (1994), sections 2 and 4; the interval shrinks by the values of
/// psi(t) = phi(t) - phi(0) - c1 t phi'(0) throughout.
LineSearchResult wolfe_search(LinePoint const& start, double first_step,
                              std::function<LinePoint(double step)> const& phi, WolfeOptions const& options);

}  // namespace monge
