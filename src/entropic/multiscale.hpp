// Potentials from coarse clouds to fine ones (docs/math.md, section 20).
#pragma once
#include "entropic/sinkhorn.hpp"

namespace monge {

/// Sets the potentials of the problem's operator to those of coarse clouds, which it solves at larger eps, one after
/// the other. A coarse point stands for the points of a node of the cloud's tree: their mass at their centre. The
/// passes of the problem may leave out pairs, and its options have eps. The progress callback, if any, gets the
/// checks of all clouds, with potentials at the problem's points; where it asks to stop, so does the problem's solve at
/// its first check. `index`: of the problem, in a batch.
void start_from_coarse(Backend const& backend, SinkhornProblem& problem, int index);

}  // namespace monge
