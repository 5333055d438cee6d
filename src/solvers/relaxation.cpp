#include "solvers/relaxation.hpp"

#include <algorithm>
#include <cmath>

namespace monge {
namespace {

constexpr int kWindow = 10;  // Sweeps; longer where omega is close to 2.

double best_omega(double lambda) {
  return 2 / (1 + std::sqrt(1 - lambda));
}

}  // namespace

void AdaptiveRelaxation::change(double omega) {
  omega_ = std::min(omega, cap_);
  window_sweeps_ = -1;
  // The error of SOR first grows like k (omega - 1)^k; after this many sweeps it falls at its asymptotic rate.
  settle_ = omega_ > 1 ? static_cast<int>(1.5 / (2 - omega_)) : 0;
}

void AdaptiveRelaxation::observe(double error, int sweeps) {
  if (settle_ > 0) {
    settle_ -= sweeps;
    if (settle_ > 0) return;
  }
  if (window_sweeps_ < 0) {
    window_sweeps_ = 0;
    window_error_ = error;
    return;
  }
  window_sweeps_ += sweeps;
  int const wanted = std::max(kWindow, static_cast<int>(1.0 / (2 - omega_)));
  if (window_sweeps_ < wanted || !(error > 0) || !(window_error_ > 0)) return;
  double const rho = std::pow(error / window_error_, 1.0 / window_sweeps_);
  window_sweeps_ = 0;
  window_error_ = error;
  judge(rho);
}

void AdaptiveRelaxation::judge(double rho) {
  if (omega_ == 1) {
    // Early rates are too optimistic, which is safe: omega then starts low. Wait only until they stop jumping.
    bool const steady = rho < 1 && last_rho_ > 0 && last_rho_ < 1 && std::abs(rho - last_rho_) < 0.5 * (1 - rho);
    last_rho_ = rho;
    if (!steady) return;
    lambda_ = std::max(lambda_, rho);
    if (std::min(best_omega(lambda_), cap_) > 1.05) change(best_omega(lambda_));
    return;
  }
  if (rho > lambda_ + 0.25 * (1 - lambda_)) {
    // Worse than plain Sinkhorn: either omega is too large for this far from the limit, or lambda was underrated.
    cap_ = 1 + (omega_ - 1) / 2;
    last_rho_ = 0;
    change(cap_ > 1.05 ? cap_ : 1.0);
    return;
  }
  if (rho > omega_ - 1 && rho < 1) {
    double const lambda = (rho + omega_ - 1) * (rho + omega_ - 1) / (omega_ * omega_ * rho);
    if (lambda > lambda_ && lambda < 1) {
      lambda_ = lambda;
      // Small moves are not worth the transient they cause.
      double const better = std::min(best_omega(lambda_), cap_);
      if ((2 - omega_) > 1.1 * (2 - better)) change(better);
    }
  }
}

}  // namespace monge
