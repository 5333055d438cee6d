// A separable term sum_ij phi(X_ij) as a table of the slope of phi, which is linear between the points of the table.
//
// phi is then convex and piecewise quadratic. Its prox and the maximiser of its conjugate are piecewise linear, and all
// three have closed forms: no error of an approximation meets the certificate.
#pragma once
#include <vector>

#include <monge/regularized.hpp>

#include "core/host_device.hpp"

namespace monge {

/// A function that is linear between points (at[k], to[k]): to[size - 1] beyond the last, 0 before the first. Neither
/// at[k] nor to[k] decreases with k. Where several points have the same at[k], the value there is the last to[k].
template <class T>
struct Polyline {
  T const* at = nullptr;
  T const* to = nullptr;
  int size = 0;

  /// The last point with at[k] <= x; -1 if there is none.
  MONGE_HOST_DEVICE int point(T x) const {
    int low = -1, high = size;
    while (high - low > 1) {
      int const middle = (low + high) / 2;
      (at[middle] <= x ? low : high) = middle;
    }
    return low;
  }
  MONGE_HOST_DEVICE T after(int k, T x) const {
    if (k < 0) return 0;
    if (k == size - 1) return to[k];
    return to[k] + (x - at[k]) / (at[k + 1] - at[k]) * (to[k + 1] - to[k]);
  }
  MONGE_HOST_DEVICE T operator()(T x) const { return after(point(x), x); }
};

/// Points of phi: masses x from 0 on, the slopes there, and the values.
struct SlopeTableView {
  double const* mass = nullptr;
  double const* slope = nullptr;
  double const* value = nullptr;
  int size = 0;

  /// phi(x), x >= 0. Beyond the last point its slope stays.
  MONGE_HOST_DEVICE double phi(double x) const {
    Polyline<double> const slopes{mass, slope, size};
    int const k = slopes.point(x);
    return value[k] + (x - mass[k]) * (slope[k] + slopes.after(k, x)) / 2;
  }
  /// The supremum of z x - phi(x) over x from 0 to the last mass.
  MONGE_HOST_DEVICE double conjugate(double z) const {
    double const x = Polyline<double>{slope, mass, size}(z);
    return z * x - phi(x);
  }
};

struct SlopeTable {
  std::vector<double> mass, slope, value;

  /// The table of points (mass, slope) for masses up to `most`, which no entry of a plan exceeds. A slope of +infinity
  /// ends the table at its mass.
  SlopeTable(std::vector<double> const& masses, std::vector<double> const& slopes, double most);
  SlopeTableView view() const { return {mass.data(), slope.data(), value.data(), static_cast<int>(std::ssize(mass))}; }
  /// The values of v at which the prox of step s reaches the masses: the prox is the Polyline from these to `mass`.
  std::vector<double> prox_points(double step) const;
  /// The same term for masses in units of `mass_unit` and slopes in units of `slope_unit`.
  SlopeTable in_units(double mass_unit, double slope_unit) const;
  /// The term as functions, which several threads may call at once.
  SeparableTerm term() const;

 private:
  SlopeTable() = default;
};

}  // namespace monge
