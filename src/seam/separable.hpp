// The user's own separable term in the units of operators, with the checks of what its functions return.
#pragma once
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <span>

#include <monge/regularized.hpp>

namespace monge {

/// The user's functions in the units of operators. The first exception of the functions, or of the check of their
/// results, is kept for rethrow(): loops of threads must not throw. Afterwards nothing is called, and results are 0.
class SeparableFunctions {
 public:
  /// One thread at a time calls functions of the user's: problems of one solve share `turn`. It is null where any
  /// threads may call them. Throws invalid_argument unless value(0) is 0.
  SeparableFunctions(SeparableTerm term, double mass, std::shared_ptr<std::mutex> turn);

  bool has_conjugate() const { return static_cast<bool>(term_.conjugate); }
  /// The range of the costs, once it is known.
  void set_range(double range) { range_ = range; }

  /// Replaces positive v by x.
  void prox(double step, std::span<double> v);
  struct Sums {
    double value = 0, conjugate = 0;
  };
  /// The sums of phi(x) and of phi*(z), for x and z >= 0. Without a conjugate the second sum is NaN. An entry with
  /// phi(x) + phi*(z) < z x is an error, kept for rethrow(): too small a conjugate would make the dual value too large.
  Sums sums(std::span<double const> x, std::span<double const> z);
  /// phi(x), and a bound of its slope there.
  double value(double x);
  double slope(double x) { return (value(2 * x) - value(x)) / x; }

  /// Throws the exception that was kept, if there is one.
  void rethrow() const;

 private:
  /// Runs `work` unless an exception is kept; keeps one that it throws. Returns whether it ended.
  template <class Work>
  bool in_turn(Work&& work);

  SeparableTerm term_;
  double mass_, range_ = 1;
  std::shared_ptr<std::mutex> turn_;
  std::mutex keeping_;
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
};

}  // namespace monge
