// Optimal transport on some pairs of a bipartite graph, by the network simplex method.
//
//   min sum_ij P_ij C_ij,   sum_j P_ij = supply_i,   sum_i P_ij = demand_j,   P_ij >= 0,   over the arcs (i, j)
//
// The basis is a tree of all points with mass and a root. Points without mass have no arcs, and potentials without a
// meaning. Mass that is not assigned yet goes to the root, and room that is left is filled from the root. Filling the
// room of column j from the root costs more than the potential v_j of the start, by a price that grows in steps until
// no room is left. Mass therefore finds near columns before far ones, and good potentials at the start leave few
// pivots. Masses are whole numbers, and each basis is strongly feasible, so the method ends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/numbers.hpp"

namespace monge {

/// Mass in units of a quantum.
__extension__ typedef __int128 Mass;

/// A pair of points.
struct Arc {
  std::int32_t row, column;
  double cost;

  bool operator<(Arc const& other) const { return row != other.row ? row < other.row : column < other.column; }
  bool is_same_pair(Arc const& other) const { return row == other.row && column == other.column; }
};

/// A positive entry of the plan.
struct PlanEntry : Arc {
  Mass mass;
};

class NetworkSimplex {
 public:
  /// Supply and demand are >= 0.
  NetworkSimplex(std::vector<Mass> supply, std::vector<Mass> demand);

  /// Adds arcs of finite cost between points with mass; arcs that are there stay.
  void add(std::vector<Arc> arcs);
  /// Builds the first basis from potentials v; may be called again. Each row gets the largest u that its arcs allow,
  /// then each column the largest v. `pairs` get mass before others if they are among the arcs. If they are a tree or
  /// forest that has a plan, they get that plan.
  void start(std::vector<double> const& v, std::vector<Arc> const& pairs = {});
  /// Finds the optimum on the arcs. `keep_going` is called now and then; if it returns false, the work ends there, with
  /// the potentials of the last price that was served to its end: their dual value grows with the price.
  void run(std::function<bool()> const& keep_going);
  /// Mass that is not assigned to any column.
  Mass left() const;
  /// The mass of a row that is not assigned, and the room of a column: what it can still take.
  Mass left_of(std::int32_t row) const { return at_root(row); }
  Mass room_of(std::int32_t column) const { return at_root(rows_ + column); }
  /// After a run that was not interrupted and left mass, the mass is that of closed rows, and no arc leads from these
  /// to columns that are not closed.
  bool is_closed(std::int32_t row) const { return nodes_[to_size(row)].closed; }
  bool is_closed_column(std::int32_t column) const { return nodes_[to_size(rows_ + column)].closed; }

  /// The least cost_ij - v_j over the arcs of each row; infinity where there are none.
  std::vector<double> least_of_rows(std::vector<double> const& v) const;
  double u(std::int32_t row) const { return potential_[to_size(row)]; }
  std::vector<double> v() const { return {potential_.begin() + rows_, potential_.end() - 1}; }
  std::int64_t arcs() const { return static_cast<std::int64_t>(cost_.size()); }
  std::vector<Arc> all_arcs() const;
  std::int64_t pivots() const { return pivots_; }
  /// The positive entries, at most one less than points.
  std::vector<PlanEntry> entries() const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Node {
    std::int32_t parent = kNone, first_child = kNone, next = kNone, previous = kNone;  // Next and previous child.
    std::int32_t arc = kNone;  // The arc to the parent; kNone for the root.
    std::int32_t depth = 0;
    bool closed = false;  // Whether the node is in a part of the tree that hangs by a row.
    Mass flow = 0;        // The flow on that arc.
  };
  bool is_row(std::int32_t node) const { return node < rows_; }
  bool has_mass(std::int32_t node) const;
  Mass at_root(std::int32_t node) const;
  std::vector<std::int32_t> from_the_leaves(std::vector<Arc> const& pairs) const;
  void plant(std::vector<Arc> const& pairs);
  void link(std::int32_t node, std::int32_t parent, std::int32_t arc, Mass flow);
  void unlink(std::int32_t node);
  std::int32_t entering();
  void pivot(std::int32_t arc);
  void place(std::int32_t top);
  void find_potentials();

  std::int32_t rows_, root_;
  std::vector<Mass> supply_, demand_;
  std::vector<Node> nodes_;  // Rows, columns, root.
  std::vector<double> potential_, base_;
  std::vector<std::int32_t> arc_row_, arc_column_;  // Sorted by row; columns count from rows_.
  std::vector<double> cost_;
  std::vector<std::int32_t> stack_;
  double largest_cost_ = 0;
  double scale_ = 0;  // The largest |potential| since all were found: a negative reduced cost has no larger rounding.
  double price_ = 0;
  std::size_t next_arc_ = 0, block_ = 0;
  double moved_ = 0;  // The nodes whose potentials a pivot changes: a mean of the last ones.
  std::int64_t pivots_ = 0;
};

}  // namespace monge
