// Combinations of the images of sweeps in host memory.
#pragma once
#include "cpu/runtime/vectors.hpp"
#include "seam/mixture.hpp"

namespace monge::cpu {

/// EntropicBackend::mix().
void mix(VectorOperations const& vectors, Vector const& image_f, Vector const& image_g, Mixture& mixture, Vector& f,
         Vector& g);

}  // namespace monge::cpu
