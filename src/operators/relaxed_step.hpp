// The overrelaxed update of one potential, with its safeguard. Shared by the CPU code and the CUDA kernels.
#pragma once
#include <cmath>

#include "core/host_device.hpp"

namespace monge {

/// The factor by which the step u = (f+ - f) / eps of one row is stretched: omega, or 1 where that is not safe.
///
/// Moving a row's potential by omega u eps raises the dual by a eps q(omega), q(omega) = omega u - exp((omega - 1) u) +
/// exp(-u); the plain step is the maximum, q(1) = u - 1 + exp(-u). Near the optimum q(omega) = omega (2 - omega) q(1).
/// A row is stretched only if it gains at least half of that, so every sweep ascends in the dual, and by a fixed share
/// of what a plain sweep would: convergence does not depend on omega. The rows are independent given the other
/// potential, so the test needs no sum over rows. After Thibault et al. (2021), who take one omega for all rows and a
/// global test.
MONGE_HOST_DEVICE inline double safe_relaxation(double u, double omega) {
  if (omega == 1.0) return 1.0;
  // Below this the quadratic expansion holds to 1e-4 and the two sides would cancel.
  if (std::fabs(u) < 1e-4) return omega;
  double const decay = std::expm1(-u);
  double const plain = u + decay;
  double const relaxed = omega * u - std::expm1((omega - 1.0) * u) + decay;
  return relaxed >= 0.5 * omega * (2.0 - omega) * plain ? omega : 1.0;
}

}  // namespace monge
