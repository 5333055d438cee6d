// Where sweeps are mixed (anderson.hpp), and when that ends.
#pragma once
#include <optional>

#include <monge/report.hpp>

#include "seam/entropic_operator.hpp"

namespace monge {

/// The start of the next sweep.
enum class Mixing {
  off,    ///< The present potentials.
  start,  ///< The present potentials; AndersonMixing::start().
  on,     ///< A combination: AndersonMixing::combine().
};

/// A solve keeps the potentials of the least error. A sweep whose error is far above it is rejected: all images are
/// forgotten, and the next sweep starts from the best. Several rejections end the method.
class MixingChoice {
 public:
  explicit MixingChoice(bool is_allowed) : is_allowed_(is_allowed) {}

  bool is_on() const { return is_allowed_ && !has_ended_; }
  /// Whether a combination has been rejected since the beginning of the solve.
  bool has_rejected() const { return rejections_ > 0; }
  Mixing next() const { return images_ > 0 ? Mixing::on : Mixing::start; }

  /// Takes the errors that a mixed sweep has seen. Returns the errors of the best potentials so far: the solve keeps
  /// these potentials.
  SweepErrors swept(SweepErrors const& errors);
  /// Whether the last mixed sweep has left the best potentials.
  bool is_best() const { return is_best_; }
  /// The kind of this sweep: a combination takes two images.
  StepKind kind() const { return kind_; }

  /// Another eps, precision or kind of sweep: the next mixed sweep starts anew.
  void forget();
  void end();
  /// Mixing is slow. Overrelaxed sweeps take its place; if they are no faster, it comes back for good.
  void yield(int iterations, double error);
  /// Takes the error of sweeps that are not mixed.
  void compare(int iterations, double error);
  /// Sweeps are in float64 from here on, which may help the method.
  void refined();

 private:
  bool is_allowed_;
  bool has_ended_ = false;
  int images_ = 0;
  bool is_best_ = false;
  StepKind kind_ = StepKind::sweeps;
  int rejections_ = 0;
  std::optional<SweepErrors> best_;  // The best errors at this eps.
  struct Slow {
    int iterations;
    double error;
  };
  std::optional<Slow> slow_;  // Where mixing yielded, while the sweeps after it are on trial.
  bool has_returned_ = false;
};

}  // namespace monge
