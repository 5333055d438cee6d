// The terms of one point in derivatives by its weight. Shared by the CPU code and the CUDA kernels.
#pragma once
#include <cmath>

#include "core/host_device.hpp"

namespace monge {

/// WeightTerms of one point; `transform` is the soft c-transform of the other side's potential.
struct WeightTerm {
  double ratio, wanted, gradient;
};
MONGE_HOST_DEVICE inline WeightTerm weight_term(double potential, double transform, double weight, double marginal,
                                                double penalty, double eps, double other_mass) {
  bool const constrained = std::isinf(penalty), idle = weight == 0;
  if (idle) potential = transform / (1 + eps / penalty);
  double const decay = constrained ? 0.0 : std::expm1(-potential / penalty);
  double const ratio = idle ? 1 + decay : marginal / weight;
  double const value = constrained ? potential : -penalty * decay;
  return {ratio, idle ? 0.0 : weight * (1 + decay), value - eps * (ratio - other_mass)};
}

}  // namespace monge
