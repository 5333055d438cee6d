#include "entropic/policy/eps_ladder.hpp"

#include <algorithm>
#include <cmath>

namespace monge {
namespace {

/// The number of rungs from `start` down to the last one above eps.
double ladder_length(SolveOptions const& options, double start) {
  if (start <= options.eps) return 0;
  return std::ceil(std::log(start / options.eps) / -std::log(options.annealing));
}

}  // namespace

bool EpsLadder::start(int iteration, int most, bool is_warm) {
  top_ = static_cast<int>(std::min<double>(ladder_length(options_, cost_bound_), most));
  if (is_warm && most < kRungSweeps * top_) return false;
  climbs_ = is_warm;
  end_ = iteration + most;
  go_to(climbs_ ? std::min(1, top_) : top_, iteration);
  return true;
}

bool EpsLadder::climb(int iteration, bool is_done) {
  climbs_ = climbs_ && !is_done && rungs_ < top_;
  if (climbs_) go_to(rungs_ + 1, iteration);
  return climbs_;
}

void EpsLadder::descend(int iteration) {
  go_to(rungs_ - 1, iteration);
}

/// The rungs that are left share the sweeps of the ladder that are left equally. The first starts no higher than the
/// cost bound.
void EpsLadder::go_to(int rung, int iteration) {
  rungs_ = rung;
  if (rungs_ > 0) rung_end_ = iteration + (end_ - iteration) / rungs_;
  eps_ = rungs_ == 0 ? options_.eps : std::min(cost_bound_, options_.eps * std::pow(options_.annealing, -rungs_));
}

}  // namespace monge
