#include "seam/separable.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/numbers.hpp"
#include "core/require.hpp"

namespace monge {
namespace {

/// The results of a function of vectors; NaN where it writes nothing.
template <class Function, class... Arguments>
std::vector<double> results(Function const& function, std::size_t size, Arguments const&... arguments) {
  std::vector<double> out(size, kNaN);
  if (size > 0) function(arguments..., out);
  return out;
}

std::vector<double> scaled(std::span<double const> values, double factor) {
  std::vector<double> result(values.begin(), values.end());
  for (double& value : result) value *= factor;
  return result;
}

}  // namespace

SeparableFunctions::SeparableFunctions(SeparableTerm term, double mass, std::shared_ptr<std::mutex> turn)
    : term_(std::move(term)), mass_(mass), turn_(std::move(turn)) {
  double const at_zero = value(0);
  rethrow();
  require(at_zero == 0, "separable: value is {} at 0; must be 0", at_zero * mass);
}

template <class Work>
bool SeparableFunctions::in_turn(Work&& work) {
  std::unique_lock const lock = turn_ ? std::unique_lock(*turn_) : std::unique_lock<std::mutex>();
  if (failed_) return false;
  try {
    work();
  } catch (...) {
    std::scoped_lock const keeping(keeping_);
    if (!error_) error_ = std::current_exception();
    failed_ = true;
  }
  return !failed_;
}

void SeparableFunctions::prox(double step, std::span<double> v) {
  bool const done = in_turn([&] {
    std::vector<double> const given = scaled(v, mass_);
    std::vector<double> const x = results(term_.prox, v.size(), step * mass_ / range_, given);
    for (std::size_t k = 0; k < v.size(); ++k) {
      // Rounding may leave x above v.
      require(x[k] >= 0 && x[k] <= given[k] * (1 + 1e-12), "separable: prox is {} at {}; must be from 0 to that number",
              x[k], given[k]);
      v[k] = x[k] / mass_;
    }
  });
  if (!done) std::ranges::fill(v, 0.0);
}

SeparableFunctions::Sums SeparableFunctions::sums(std::span<double const> x, std::span<double const> z) {
  Sums sums;
  bool const done = in_turn([&] {
    std::vector<double> const masses = scaled(x, mass_), slacks = scaled(z, range_);
    std::vector<double> const value = results(term_.value, x.size(), masses);
    for (std::size_t k = 0; k < x.size(); ++k)
      require(value[k] >= 0, "separable: value is {} at {}; must be >= 0", value[k], masses[k]);
    double const unit = mass_ * range_;
    sums.value = std::accumulate(value.begin(), value.end(), 0.0) / unit;
    if (!has_conjugate()) {
      sums.conjugate = kNaN;
      return;
    }
    std::vector<double> const conjugate = results(term_.conjugate, z.size(), slacks);
    for (std::size_t k = 0; k < z.size(); ++k) {
      require(conjugate[k] >= 0, "separable: conjugate is {} at {}; must be >= 0", conjugate[k], slacks[k]);
      double const product = slacks[k] * masses[k];
      constexpr double kRounding = 1e-6;  // Relative rounding of the user's functions.
      require(value[k] + conjugate[k] >= product * (1 - kRounding),
              "separable: conjugate is {} at z = {}; must be at least z x - value(x), which is {} at x = {}",
              conjugate[k], slacks[k], product - value[k], masses[k]);
    }
    sums.conjugate = std::accumulate(conjugate.begin(), conjugate.end(), 0.0) / unit;
  });
  return done ? sums : Sums{};
}

double SeparableFunctions::value(double x) {
  double result = 0;
  in_turn([&] {
    std::vector<double> const mass{x * mass_};
    result = results(term_.value, 1, mass)[0] / (mass_ * range_);
  });
  return result;
}

void SeparableFunctions::rethrow() const {
  if (failed_) std::rethrow_exception(error_);
}

}  // namespace monge
