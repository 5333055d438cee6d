// The tiles that passes over a plan take: for each side those of its rows' budgets, joined with the other side's.
#pragma once
#include <array>
#include <span>

#include "cuda/geometry/ordering.hpp"
#include "cuda/plan/problem.hpp"

namespace monge::cuda {

class PlanTiles {
 public:
  /// Softmins and evaluations take blocks by their expansion where expands() says so, or only the listed pairs, as all
  /// other passes do.
  enum class Sums { listed, expanded };
  /// `problem` has an ordering and outlives this object.
  PlanTiles(Problem const& problem, Sums sums);
  /// Whether expanded sums differ from those over the listed pairs: in few coordinates, and where eps is at most the
  /// costs. Above them all pairs are kept, and values need sums without error.
  static bool expands(Problem const& problem, double eps);

  /// For passes over the plan at these potentials, whatever they are: pairs left out carry at most Ordering::truncation
  /// of each row and of each column.
  void find(Potentials const& potentials, double eps);
  /// The same for the rows of one side alone, whose potential is not known.
  void find(Side side, Potentials const& potentials, double eps);
  /// The same for a sweep that begins with the rows. Softmins over these tiles measure them until thin().
  void find(Potentials const& potentials, Sweep const& sweep);
  /// After that sweep: leaves out the tiles that hold at most Ordering::truncation of each row and of each column.
  /// `softmins`: what its half-steps found, by side.
  void thin(std::array<double const*, 2> const& softmins, double eps);
  /// Keeps the potentials of one side for which the tiles were found.
  void keep(Side side, DeviceVector const& potential);
  /// Whether the tiles of find() for sweeps still serve a sweep at these potentials. Waits.
  bool serve(Potentials const& potentials, double eps) const;

  /// The tiles of a pass whose rows are the points of `rows`, with memory for logits in float64.
  ListedTiles const& of(Side rows) const { return listed_[is_self() ? 0 : side_index(rows)]; }
  /// The values of the plan, which allow for what is left out. Finds its tiles. Waits.
  Evaluation evaluate(Potentials const& potentials, double eps, PlanMarginals const& marginals);

 private:
  bool is_self() const { return problem_.is_self; }
  /// The sides whose rows are searched.
  std::span<Side const> sides() const;
  SearchArguments search(Side side) const;
  /// A search clears the marks, marks squares for the rows of each side, and collects the tiles in these.
  void start(double eps);
  void mark(Side side, double const* own, Potentials const& potentials, double eps);
  void collect(std::span<Side const> marked);
  void start_measure();

  Problem const& problem_;
  ListedTiles listed_[2];
  DeviceArray<unsigned char> memory_;
  DeviceArray<std::uint32_t> squares_, kept_squares_;  // The squares of both lists, and those that thin() makes.
  DeviceArray<unsigned char> bins_;                    // Measure::bins of both lists.
  std::int64_t marks_[2] = {};                         // Words of marks.
  double *models_[2] = {}, *far_[2] = {};
  NearWord* near_ = nullptr;
  // The potentials for which the tiles were searched, near the transforms of the other side's, and for each tile an
  // upper bound of the sum that a row of it lacks at them.
  DeviceArray<double> plus_[2];
  double* of_tiles_[2] = {};
  DeviceArray<double> kept_[2];
  mutable DeviceArray<double> movement_;
};

}  // namespace monge::cuda
