#include "seam/slope_table.hpp"

#include <cmath>
#include <cstddef>
#include <span>

namespace monge {

SlopeTable::SlopeTable(std::vector<double> const& masses, std::vector<double> const& slopes, double most) {
  auto const add = [this](double x, double s) {
    value.push_back(mass.empty() ? 0 : value.back() + (x - mass.back()) * (slope.back() + s) / 2);
    mass.push_back(x);
    slope.push_back(s);
  };
  for (std::size_t k = 0; k < masses.size(); ++k) {
    if (std::isinf(slopes[k])) return;
    if (masses[k] >= most) {
      double const part = (most - mass.back()) / (masses[k] - mass.back());
      add(most, slope.back() + part * (slopes[k] - slope.back()));
      return;
    }
    add(masses[k], slopes[k]);
  }
  add(most, slope.back());
}

std::vector<double> SlopeTable::prox_points(double step) const {
  std::vector<double> points;
  for (std::size_t k = 0; k < mass.size(); ++k) points.push_back(mass[k] + step * slope[k]);
  return points;
}

SlopeTable SlopeTable::in_units(double mass_unit, double slope_unit) const {
  SlopeTable result;
  for (std::size_t k = 0; k < mass.size(); ++k) {
    result.mass.push_back(mass[k] / mass_unit);
    result.slope.push_back(slope[k] / slope_unit);
    result.value.push_back(value[k] / mass_unit / slope_unit);
  }
  return result;
}

SeparableTerm SlopeTable::term() const {
  auto const of_each = [](auto&& function) {
    return [function](std::span<double const> from, std::span<double> to) {
      for (std::size_t k = 0; k < from.size(); ++k) to[k] = function(from[k]);
    };
  };
  SeparableTerm result;
  result.prox = [table = *this](double step, std::span<double const> v, std::span<double> x) {
    std::vector<double> const points = table.prox_points(step);
    Polyline<double> const prox{points.data(), table.mass.data(), table.view().size};
    for (std::size_t k = 0; k < v.size(); ++k) x[k] = prox(v[k]);
  };
  result.value = of_each([table = *this](double x) { return table.view().phi(x); });
  result.conjugate = of_each([table = *this](double z) { return table.view().conjugate(z); });
  return result;
}

}  // namespace monge
