// Combinations of the images of sweeps, without a wait of the host (cuda/entropic/mixture.cu).
#pragma once
#include "cuda/launch/transfer.hpp"
#include "seam/mixture.hpp"

namespace monge::cuda {

/// EntropicBackend::mix(), in one launch.
void mix(SharedRuntime const& runtime, Vector const& image_f, Vector const& image_g, Mixture& mixture, Vector& f,
         Vector& g);

}  // namespace monge::cuda
