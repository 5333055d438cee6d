// The ladder: values of eps from the cost bound down to the eps of the problem, each a rung.
#pragma once
#include <monge/entropic.hpp>

namespace monge {

class EpsLadder {
 public:
  EpsLadder(SolveOptions const& options, double cost_bound)
      : options_(options), cost_bound_(cost_bound), eps_(options.eps) {}

  /// Starts at `iteration`, for at most `most` iterations: the ladder loses its upper rungs where these are few. Given
  /// potentials (`is_warm`) climb it from below, up to the rung that they fit. Returns false where they may take no
  /// ladder, because `most` is too low.
  bool start(int iteration, int most, bool is_warm);
  /// Goes up if the ladder is being climbed and the rung is not done. Returns whether it has.
  bool climb(int iteration, bool is_done);
  void descend(int iteration);
  /// Goes down to the eps of the problem.
  void leave() { go_to(0, 0); }

  /// Whether eps() is above the eps of the problem.
  bool is_on() const { return rungs_ > 0; }
  bool climbs() const { return climbs_; }
  double eps() const { return eps_; }
  /// The iteration at which the rung ends, whatever its error.
  int rung_end() const { return rung_end_; }

 private:
  void go_to(int rung, int iteration);

  SolveOptions const& options_;
  double cost_bound_;
  double eps_;
  int rungs_ = 0;  // Rungs from the current eps down to the eps of the problem.
  int top_ = 0;    // The rung at which the ladder begins.
  bool climbs_ = false;
  int rung_end_ = 0;
  int end_ = 0;  // Iteration at which the ladder ends.
};

/// Sweeps between the checks of a rung. Many rungs end at the first check, which is earlier.
inline constexpr int kRungSweeps = 5;

}  // namespace monge
