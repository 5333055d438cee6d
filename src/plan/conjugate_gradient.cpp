#include "plan/conjugate_gradient.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "core/numbers.hpp"

namespace monge {
namespace {

/// The residual of conjugate gradients may rise for a while, so it counts as stuck only if the steps since its last
/// minimum outnumber both kPatience and the steps before.
constexpr int kPatience = 100;
/// Steps by the rough matrix reduce a residual to this fraction before it is evaluated again.
constexpr double kRoughShare = 1e-2;
/// An evaluation disturbs the sequence of directions. Many steps follow where a matrix has many small eigenvalues, and
/// more of them are lost than rough ones save, so at most this many are rough.
constexpr int kRoughSteps = 64;

class ConjugateGradient {
 public:
  using Status = LinearStatus;

  ConjugateGradient(VectorOperations const& vectors, LinearSystem const& system, Vector const& b, Vector& x)
      : vectors_(vectors),
        system_(system),
        b_(b),
        x_(x),
        r_(vectors.make_like(b)),
        z_(system.preconditioner ? vectors.make_like(b) : nullptr),
        p_(vectors.make_like(b)),
        q_(vectors.make_like(b)) {}

  ConjugateGradientResult run(ConjugateGradientOptions const& options) {
    start();
    if (scale_ == 0) {
      combine({Term{0, &b_}}, x_);
      return {Status::converged, 0, 0};
    }
    if (!std::isfinite(scale_)) return {Status::breakdown, 0, std::numeric_limits<double>::quiet_NaN()};
    goal_ = options.tolerance * scale_;
    evaluates_ = options.evaluates_residual;
    is_rough_ = evaluates_ && system_.rough_matrix;
    double evaluated = norm_, best = std::numeric_limits<double>::infinity();
    int best_step = 0;
    bool has_halved = false;  // An evaluated residual.
    for (int step = 0;; ++step) {
      double const floor = is_rough_ ? kRoughShare * evaluated : kUnitRoundoff * scale_;
      bool const ends_rough_steps = is_rough_ && step >= kRoughSteps;
      if ((norm_ <= std::max(goal_, floor) || ends_rough_steps) && !exact_ && evaluates_) {
        // If the residual of x is still above the goal, the updated residual has drifted from it. A restart from the
        // evaluated residual helps as long as it keeps falling.
        double const updated = norm_;
        evaluate();
        // Where the rough matrix has hardly drifted, the sequence of directions goes on.
        bool const has_drifted = !is_rough_ || norm_ > 2 * updated;
        if (has_drifted && norm_ > goal_ && norm_ > 0.5 * evaluated) {
          if (!is_rough_) return end(Status::stagnation, step);
          leave_rough_steps(!has_halved);
        } else {
          has_halved = true;
        }
        if (ends_rough_steps) is_rough_ = false;
        exact_ = norm_ <= goal_ || has_drifted;
        evaluated = norm_;
        best = std::numeric_limits<double>::infinity();
      }
      if (norm_ <= goal_) return end(Status::converged, step);
      if (norm_ < best) {
        best = norm_;
        best_step = step;
      }
      std::optional<Status> failure;
      if (!(rz_ > 0)) {
        failure = Status::breakdown;
      } else if (step - best_step > std::max(kPatience, best_step)) {
        failure = Status::stagnation;
      } else if (step == options.iterations) {
        return end(Status::iteration_limit, step);
      } else {
        failure = advance();
      }
      if (!failure) continue;
      if (!is_rough_) return end(*failure, step);
      leave_rough_steps(!has_halved);
      evaluated = norm_;
      best = std::numeric_limits<double>::infinity();
      --step;  // None was taken.
    }
  }

 private:
  template <std::size_t count>
  void combine(Term const (&terms)[count], Vector& out) const {
    static_assert(count <= kMostTerms);
    vectors_.combine(terms, out);
  }

  template <std::size_t count>
  std::array<double, count> dots(std::pair<Vector const*, Vector const*> const (&pairs)[count]) const {
    static_assert(count <= kMostDots);
    std::array<double, count> values{};
    vectors_.dots(pairs, values);
    return values;
  }

  void start() {
    if (system_.null_vector) null_product_ = dots({{system_.null_vector, &correction()}})[0];
    if (null_product_ == 0) null_product_ = 1;  // The null vector is zero: its projection is 0.
    combine({Term{1, &b_}}, *r_);
    project_and_measure();
    scale_ = norm_;
    // A right side along the correction leaves the rounding of the projection, which no step reduces.
    if (system_.null_vector && scale_ <= 4 * kUnitRoundoff * std::sqrt(dots({{&b_, &b_}})[0])) scale_ = 0;
    if (scale_ > 0 && dots({{&x_, &x_}})[0] != 0) evaluate();
  }

  /// If they have led nowhere, x may hold errors of modes that residuals hardly see.
  void leave_rough_steps(bool begins_anew) {
    is_rough_ = false;
    if (begins_anew) combine({Term{0, &b_}}, x_);
    if (begins_anew || !exact_) evaluate();
  }

  /// r = b - A x.
  void evaluate() {
    system_.matrix(x_, *q_);
    combine({Term{1, &b_}, Term{-1, q_.get()}}, *r_);
    project_and_measure();
  }

  void project_and_measure() {
    if (system_.null_vector) {
      double const along = dots({{r_.get(), system_.null_vector}})[0] / null_product_;
      combine({Term{1, r_.get()}, Term{-along, &correction()}}, *r_);
    }
    measure();
    exact_ = true;
  }

  /// |r| and <r, M r>.
  void measure() {
    if (system_.preconditioner) system_.preconditioner(*r_, *z_);
    auto const [rr, rz] = dots({{r_.get(), r_.get()}, {r_.get(), &z()}});
    norm_ = std::sqrt(rr);
    rz_ = rz;
  }

  /// Takes one step along the next direction, or returns the reason why not.
  std::optional<Status> advance() {
    // A sequence of conjugate directions begins at an evaluated residual.
    double const beta = exact_ ? 0 : rz_ / last_rz_;
    combine({Term{1, &z()}, Term{beta, p_.get()}}, *p_);
    (is_rough_ ? system_.rough_matrix : system_.matrix)(*p_, *q_);
    double product = 0, along = 0;
    if (system_.null_vector) {
      auto const values = dots({{p_.get(), q_.get()}, {system_.null_vector, q_.get()}});
      product = values[0];
      along = values[1] / null_product_;
    } else {
      product = dots({{p_.get(), q_.get()}})[0];
    }
    if (!std::isfinite(product)) return Status::breakdown;
    if (product <= 0) {
      curvature_ = product / dots({{p_.get(), p_.get()}})[0];
      return Status::negative_curvature;
    }
    double const alpha = rz_ / product;
    if (!std::isfinite(alpha)) return Status::breakdown;
    combine({Term{1, &x_}, Term{alpha, p_.get()}}, x_);
    if (system_.null_vector) {
      combine({Term{1, r_.get()}, Term{-alpha, q_.get()}, Term{alpha * along, &correction()}}, *r_);
    } else {
      combine({Term{1, r_.get()}, Term{-alpha, q_.get()}}, *r_);
    }
    last_rz_ = rz_;
    measure();
    exact_ = false;
    return std::nullopt;
  }

  /// Reports the evaluated residual of x if the options ask for it.
  ConjugateGradientResult end(Status status, int steps) {
    if (!exact_ && evaluates_) evaluate();
    return {norm_ <= goal_ ? Status::converged : status, steps, norm_ / scale_, curvature_};
  }

  Vector const& z() const { return z_ ? *z_ : *r_; }
  Vector const& correction() const { return system_.correction ? *system_.correction : *system_.null_vector; }

  VectorOperations const& vectors_;
  LinearSystem const& system_;
  Vector const& b_;
  Vector& x_;
  std::unique_ptr<Vector> r_, z_, p_, q_;  // Residual, M r (r itself without M), direction, A p.
  double null_product_ = 0;
  double scale_ = 0;             // |b|
  double goal_ = 0;              // The limit of |r|.
  double norm_ = 0;              // |r|
  double rz_ = 0, last_rz_ = 0;  // <r, z>, now and one step before.
  double curvature_ = 0;
  bool evaluates_ = true;
  bool is_rough_ = false;  // Steps go by the rough matrix.
  bool exact_ = false;     // r is b - A x as evaluated, not as updated.
};

}  // namespace

ConjugateGradientResult conjugate_gradient(VectorOperations const& vectors, LinearSystem const& system, Vector const& b,
                                           Vector& x, ConjugateGradientOptions const& options) {
  return ConjugateGradient(vectors, system, b, x).run(options);
}

}  // namespace monge
