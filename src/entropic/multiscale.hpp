// Potentials from coarse clouds to fine ones (docs/math.md, section 20).
#pragma once
#include "entropic/sinkhorn.hpp"

namespace monge {

/// Sets the potentials of the problem's operator to those of coarse clouds, which it solves at larger eps, one after
/// the other. A coarse point stands for the points of a node of the cloud's tree: their mass at their centre. The
/// problem is one that require_method() admits, and its options have eps. Its solve then needs no ladder, which is
/// turned off.
void start_from_coarse(Backend const& backend, SinkhornProblem& problem);

}  // namespace monge
