#include "entropic/policy/relaxation.hpp"

#include <algorithm>
#include <cmath>

namespace monge {
namespace {

constexpr int kWindow = 5;  // Sweeps; longer where omega is close to 2.
/// Slower rates count as this one. An error that does not fall thus raises omega step by step, up to a limit below
/// 1 + kSlowest, where transients last 1 / (1 - kSlowest) sweeps.
constexpr double kSlowest = 0.98;

}  // namespace

double best_relaxation(double lambda) {
  return 2 / (1 + std::sqrt(1 - lambda));
}

void AdaptiveRelaxation::change(double omega) {
  if (disabled_) return;
  omega_ = omega;
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
  rho = std::min(rho, kSlowest);
  if (omega_ == 1) {
    // The first rates are too optimistic, which is safe: omega starts low.
    if (best_relaxation(rho) > 1.05) change(best_relaxation(rho));
  } else if (rho <= omega_ - 1) {
    double const lower = 2 - 2 * (2 - omega_);
    change(lower > 1.05 ? lower : 1.0);
  } else {
    double const lambda = (rho + omega_ - 1) * (rho + omega_ - 1) / (omega_ * omega_ * rho);
    // Small moves are not worth the transient they cause.
    double const better = best_relaxation(std::min(lambda, 1.0));
    if ((2 - omega_) > 1.1 * (2 - better)) change(better);
  }
}

}  // namespace monge
