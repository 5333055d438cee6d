// Choosing the overrelaxation omega from the observed rate of convergence.
#pragma once

namespace monge {

/// Near its limit plain Sinkhorn multiplies the error by lambda each sweep, and overrelaxed Sinkhorn behaves like
/// successive overrelaxation of a consistently ordered system: for an omega below the best one,
///   omega* = 2 / (1 + sqrt(1 - lambda)),   (rho + omega - 1)^2 = omega^2 lambda rho   (Young),
/// with rho the rate at omega, and rho = omega - 1 at and above it. So lambda can be read off at any omega <= omega*.
/// (Thibault et al. 2021; Lehmann et al. 2021.) One observation a check; no cost beyond the error that a sweep
/// measures.
///
/// The rate is taken over windows that outlast the transient of a change. A window that did worse than plain Sinkhorn
/// is known to do halves omega - 1 and caps later choices there.
class AdaptiveRelaxation {
 public:
  double omega() const { return omega_; }

  /// The error after `sweeps` more sweeps, all of them at omega().
  void observe(double error, int sweeps);
  /// Sweeps at another omega have happened: the next observation starts a new window.
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
  double last_rho_ = 0;      // At omega = 1: of the window before.
  double window_error_ = 0;  // At the start of the window.
  int window_sweeps_ = -1;   // Since the start of the window; -1: not started.
  int settle_ = 0;           // Sweeps still to let pass before a window starts.
};

}  // namespace monge
