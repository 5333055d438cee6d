// Choosing the overrelaxation omega from the observed rate of convergence.
#pragma once

namespace monge {

/// The best omega* where a plain sweep multiplies the error by lambda; its rate is omega* - 1.
double best_relaxation(double lambda);

/// Near its limit plain Sinkhorn multiplies the error by lambda each sweep, and overrelaxed Sinkhorn behaves like
/// successive overrelaxation of a consistently ordered system: for an omega below the best one,
///   omega* = 2 / (1 + sqrt(1 - lambda)),   (rho + omega - 1)^2 = omega^2 lambda rho   (Young),
/// with rho the rate at omega, and rho = omega - 1 at and above it. So lambda can be read off at any omega <= omega*,
/// and a rate of omega - 1 says that omega is too large: its distance from 2 then doubles. (Thibault et al. 2021;
/// Lehmann et al. 2021.) Each check gives one observation, the error that a sweep measures anyway.
///
/// Far from the limit, mass that has to cross a gap of many eps moves the potentials by the same amount each sweep, and
/// the error stays constant meanwhile. Omega makes such motion omega / (2 - omega) times as fast, while the error that
/// sweeps see grows by 1 / (2 - omega). So an error that does not fall is no reason to lower omega: it counts as a slow
/// rate and raises omega. The safeguard of each row (docs/math.md, section 5) makes this safe.
///
/// The rate is measured over windows of max(5, 1 / (2 - omega)) sweeps after a change of omega.
class AdaptiveRelaxation {
 public:
  double omega() const { return omega_; }

  /// The error after `sweeps` more sweeps, all of them at omega().
  void observe(double error, int sweeps);
  /// Sweeps at another omega or eps have happened: the next observation starts a new window.
  void interrupt() { window_sweeps_ = -1; }
  /// Plain Sinkhorn from here on: overrelaxation amplifies rounding by about 1 / (2 - omega).
  void disable() {
    disabled_ = true;
    omega_ = 1;
  }

 private:
  void change(double omega);
  void judge(double rho);

  double omega_ = 1;
  bool disabled_ = false;
  double window_error_ = 0;  // Error at the start of the window.
  int window_sweeps_ = -1;   // Sweeps since the start of the window; -1: not started.
  int settle_ = 0;           // Sweeps to skip before a window starts.
};

}  // namespace monge
