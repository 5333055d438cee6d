// One exact solve: starts.cpp finds the first candidates, rounds.cpp adds better pairs until there are none, proof.cpp
// makes the result. In a relaxed problem mass may go to a dustbin (dustbin.cpp).
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <monge/exact.hpp>
#include <monge/plan.hpp>

#include "core/compensated_sum.hpp"
#include "core/stopwatch.hpp"
#include "exact/hard_transform.hpp"
#include "exact/masses.hpp"
#include "exact/network_simplex.hpp"
#include "exact/pair_costs.hpp"

namespace monge {

class ExactSolve {
 public:
  /// `geometry` is null where the costs are sparse.
  ExactSolve(Context const& context, Geometry const* geometry, PairCosts costs, Shape shape, VectorView a, VectorView b,
             ExactOptions const& options);

  ExactPlan solve();

 private:
  // exact.cpp

  bool has_mass(std::int64_t i, std::int64_t j) const { return masses_.a[to_size(i)] > 0 && masses_.b[to_size(j)] > 0; }
  bool is_dustbin(Arc const& arc) const { return arc.row == n_ || arc.column == m_; }
  double u(std::int64_t row) const { return simplex_.u(static_cast<std::int32_t>(row)) + shift_; }

  /// Arcs of points with mass and finite cost, with their costs.
  std::vector<Arc> priced(std::vector<Arc> arcs);

  /// The arcs of finite cost. Potentials are sums of up to n + m costs, and prices are four times as large.
  std::vector<Arc> finite(std::vector<Arc> arcs);

  /// Calls visit(arc) for the pairs of those points of a side that are wanted with those of the other side that are.
  template <class Wanted, class OtherWanted, class Visit>
  void for_each_pair(Side side, Wanted const& wanted, OtherWanted const& other_wanted, Visit const& visit) const {
    bool const by_rows = side == Side::rows;
    if (costs_.is_sparse()) {
      for (Arc const& arc : costs_.pairs()) {
        if (wanted(to_size(by_rows ? arc.row : arc.column)) && other_wanted(to_size(by_rows ? arc.column : arc.row)))
          visit(arc);
      }
      return;
    }
    std::int32_t const size = static_cast<std::int32_t>(by_rows ? n_ : m_);
    std::int32_t const other_size = static_cast<std::int32_t>(by_rows ? m_ : n_);
    std::vector<Arc> line;
    for (std::int32_t i = 0; i < size; ++i) {
      if (!wanted(to_size(i))) continue;
      line.clear();
      for (std::int32_t j = 0; j < other_size; ++j) {
        if (other_wanted(to_size(j))) line.push_back(by_rows ? Arc{i, j, 0} : Arc{j, i, 0});
      }
      costs_.set(line);
      for (Arc const& arc : line) visit(arc);
    }
  }

  // starts.cpp

  WarmStart given_start() const;
  WarmStart warm_start();
  void take_all_pairs(std::vector<double> const& g);
  void take_entropic_candidates();
  void take_candidates_near(WarmStart const& warm);
  void take(std::vector<Arc> arcs, std::vector<double> g);
  void start(std::vector<double> g, std::vector<Arc> const& pairs);
  std::vector<Arc> first_pairs() { return options_.start ? pairs_of(*options_.start) : std::vector<Arc>{}; }

  /// The pairs of a plan, which become candidates, and those of the dustbin with the rest of the mass of points.
  std::vector<Arc> pairs_of(ExactPlan const& plan);

  /// Options of an entropic solve near this problem.
  SolveOptions start_options(double eps, int sweeps);

  /// Penalties of entropic problems near this one.
  double entropic_penalty(double penalty, double eps) const { return is_partial(options_) ? 4 * eps : penalty; }

  struct Annealed {
    Plan plan;
    double eps;
    std::vector<Arc> candidates;
  };

  /// The plan of entropic problems whose eps falls until it is near the differences of the reduced costs of a point's
  /// candidates.
  Annealed annealed(Geometry const& geometry, Marginals const& weights, SolveOptions options);

  /// The plan's g for an eps that is lower by `fall`. If n > m most rows have one partner, where f_i + g_j is
  /// C_ij - eps log b_j: f_i and g_j + eps log b_j change little with eps. If n <= m, g_j and f_i + eps log a_i change
  /// little, and f is found anew from g.
  std::vector<double> g_of(Plan const& plan, std::vector<double> const& b, double fall) const;

  /// Every stride-th point of both clouds anneals alone, if some of these have mass on both sides. Sets eps to its last
  /// and, unless the method is multiscale, g to the largest that its f allow.
  void set_coarse_start(std::int64_t stride, SolveOptions& options, std::vector<double>& g);

  /// Appends the largest entries of each row and column. Returns a typical difference of the reduced costs of a point's
  /// first and last candidate: the mean over the rows times the mean over the columns, under a root. The geometric mean
  /// suits clouds of different sizes: a point with many near partners has far smaller differences.
  double candidates_of(Plan const& plan, double eps, std::vector<Arc>& arcs) const;

  /// Pairs of finite cost of some rows and columns with mass.
  std::vector<Arc> const& sample();

  /// A fifth of the mean |C_ij - u_i - v_j| over the sample: u_i is the mean cost of row i, v_j the mean of the rest in
  /// column j.
  double first_eps();

  // rounds.cpp

  /// One round. Returns whether it was the last.
  bool improve();
  bool goes_on();

  /// The fraction of the mass that is not assigned; all of it before the first candidates.
  double left() const;
  double tolerance() const { return options_.tolerance * std::min(report_.cost_scale, potential_scale_); }
  std::vector<Arc> pairs_of_basis() const;

  /// Potentials of the simplex method, translated: with penalties to 0 at the dustbin, with a given mass to the same
  /// number on both sides of it. No column is above what its price allows.
  void read_potentials();

  /// For each row some pairs of least reduced cost, the least among them; none if all pairs are candidates.
  std::vector<Arc> best_pairs();

  /// Pairs from rows whose mass finds no room among the candidates to columns that it does not reach: the best of each
  /// row, and those by which the mass, row by row, takes the best room that is left. If there are none, drops the
  /// mass if it is rounding, or throws.
  std::vector<Arc> ways_out();

  /// Begins again without the mass that is not assigned, and without the room for it: weights of points that forbidden
  /// pairs keep apart from others have equal totals up to rounding alone.
  void drop_rest();

  /// Finds the largest f that offered pairs and candidates allow, keeps the offered pairs of negative reduced cost, and
  /// evaluates the dual.
  void price(std::vector<Arc>& offered);

  /// How much lower the dual value may be, since rounding in the pass decides which pairs are offered. Pairs that are
  /// not offered have at least the largest cost that is, less the rounding of both.
  double hidden_by_rounding(std::vector<Arc> const& offered, std::vector<double> const& f) const;

  /// Prices the potentials g = 0, whose dual value is >= 0 where all costs are >= 0. A solve that was stopped may have
  /// potentials of a smaller dual value.
  void price_of_zero();

  // dustbin.cpp

  /// Finds the prices of the dustbin, and adds its arcs. With penalties a row may also get rid of mass by a pair to a
  /// column that has enough, and a column may get mass from a row that has none left, at the cost of the pair and of
  /// the other side's penalty.
  void open_dustbin();

  /// The price of a unit of mass between each point and the dustbin: the penalty, or less by way of a partner, the
  /// point of the other side at the least cost.
  struct Prices {
    std::vector<double> price;
    std::vector<std::int32_t> partner;  // -1 for the penalty itself.
  };

  /// Sets the weight of a point in reachable_ to 0 if all its pairs are forbidden.
  Prices prices_of(Side side);

  /// The pair of least cost of each point, whatever the weights.
  std::vector<Arc> cheapest_pairs(Side side);

  /// In partial transport of all mass of a side, one side of the dustbin has no mass. Its potential may then be any
  /// number below a limit. Takes the least price of mass that is optimal, and gives both sides of the dustbin the same
  /// potential.
  void split_mass_price();

  // proof.cpp

  /// The gap of the plan, the rounding of reduced costs in it, and how much an optimal plan may have.
  struct Proof {
    double gap, rounding, allowed;
    /// An upper bound of the cost of the plan above the optimum. `hidden` bounds the error of the dual value that the
    /// rounding of the pass makes.
    double bound(double hidden) const { return gap + rounding + hidden; }
    bool holds(double hidden) const { return bound(hidden) <= allowed; }
  };
  Proof proof_of(std::vector<PlanEntry> const& entries);

  /// The part of an allowed gap by the tolerance, which it multiplies by the mass and a typical cost: the geometric
  /// mean of the least |C_ij| > 0 of the rows of the sample, by the mass that each row moves, times the share of this
  /// mass. Rows of far larger costs, which a pair of cost 0 may serve, change the mean little.
  double tolerated(std::vector<PlanEntry> const& entries);

  /// Potentials of points without mass: first of columns, from rows with mass, then of rows, from all columns.
  void complete_potentials();
  void complete(Side side);

  /// Lowers the dual value by what weights that round to no mass may cost: the weight times |potential| and the largest
  /// potential of the other points, whose mass changes as much.
  void hide_dropped();

  /// Entries of the plan, in order. Entries of the dustbin become entries of pairs or penalties.
  std::vector<PlanEntry> plan_entries(CompensatedSum& penalties) const;
  std::string message(double rounding) const;
  ExactPlan result(Proof const& proof);

  Stopwatch watch_;
  Context const& context_;
  Geometry const* geometry_;
  ExactOptions const& options_;
  std::int64_t n_, m_;
  ValidMarginals marginals_;
  Marginals reachable_;  // The same, with weight 0 for points whose pairs are all forbidden.
  Masses masses_;
  PairCosts costs_;
  NetworkSimplex simplex_;
  bool has_all_candidates_ = false;
  std::optional<HardTransform> hard_;
  ExactReport report_;
  double best_dual_ = -kInfinity;
  double hidden_ = 0;           // How much lower the rounding of the pass may make it.
  double dropped_ = 0;          // The part of it of weights that round to no mass.
  double potential_scale_ = 0;  // The largest |u_i| or |v_j| of the last round.
  bool has_small_potentials_ = false;
  bool stopped_ = false;
  std::vector<Arc> sample_;
  Prices leaving_, lacking_;        // Prices of rows and columns, in a relaxed problem.
  std::vector<double> v_;           // Potentials of the last round, the simplex method's less shift_ ...
  double shift_ = 0, dustbin_ = 0;  // ... and the potential of both sides of the dustbin.
  std::vector<double> f_, g_;       // Potentials of the best dual value; the last is the dustbin's.
};

}  // namespace monge
