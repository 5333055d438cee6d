#include "exact/network_simplex.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/numbers.hpp"

namespace monge {
namespace {

std::int32_t index(std::size_t i) {
  return static_cast<std::int32_t>(i);
}

double largest_of(std::vector<double> const& values) {
  double largest = 0;
  for (double const value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

NetworkSimplex::NetworkSimplex(std::vector<Mass> supply, std::vector<Mass> demand)
    : rows_(index(supply.size())),
      root_(index(supply.size() + demand.size())),
      supply_(std::move(supply)),
      demand_(std::move(demand)),
      nodes_(to_size(root_) + 1),
      potential_(to_size(root_) + 1, 0),
      base_(to_size(root_) + 1, 0) {}

void NetworkSimplex::add(std::vector<Arc> all) {
  if (!std::is_sorted(all.begin(), all.end())) std::sort(all.begin(), all.end());
  std::ptrdiff_t const added = std::ssize(all);
  std::vector<Arc> const known_arcs = all_arcs();
  all.insert(all.end(), known_arcs.begin(), known_arcs.end());
  std::inplace_merge(all.begin(), all.begin() + added, all.end());
  all.erase(std::unique(all.begin(), all.end(), std::mem_fn(&Arc::is_same_pair)), all.end());

  std::vector<std::int32_t> new_place(cost_.size());  // New positions of the arcs that were there.
  for (std::size_t k = 0, known = 0; known < cost_.size(); ++k) {
    if (all[k].row == arc_row_[known] && all[k].column + rows_ == arc_column_[known]) new_place[known++] = index(k);
  }
  for (Node& node : nodes_) {
    if (node.arc != kNone) node.arc = new_place[to_size(node.arc)];
  }
  arc_row_.resize(all.size());
  arc_column_.resize(all.size());
  cost_.resize(all.size());
  for (std::size_t k = 0; k < all.size(); ++k) {
    arc_row_[k] = all[k].row;
    arc_column_[k] = all[k].column + rows_;
    cost_[k] = all[k].cost;
    largest_cost_ = std::max(largest_cost_, std::abs(all[k].cost));
  }
  block_ = std::max<std::size_t>(32, static_cast<std::size_t>(std::sqrt(static_cast<double>(all.size()))));
  next_arc_ = 0;
}

void NetworkSimplex::start(std::vector<double> const& v, std::vector<Arc> const& pairs) {
  std::ranges::copy(least_of_rows(v), base_.begin());
  std::ranges::copy(v, base_.begin() + rows_);
  std::vector<double> least(base_.size(), kInfinity);
  for (std::size_t k = 0; k < cost_.size(); ++k)
    least[to_size(arc_column_[k])] = std::min(least[to_size(arc_column_[k])], cost_[k] - base_[to_size(arc_row_[k])]);
  for (std::size_t j = 0; j < base_.size(); ++j) {
    if (!std::isfinite(base_[j])) base_[j] = 0;
    if (std::isfinite(least[j])) base_[j] = std::max(base_[j], least[j]);
  }
  plant(pairs);
}

std::vector<double> NetworkSimplex::least_of_rows(std::vector<double> const& v) const {
  std::vector<double> all(to_size(rows_), kInfinity);
  for (std::size_t k = 0; k < cost_.size();) {
    std::int32_t const row = arc_row_[k];
    double least = kInfinity;
    for (; k < cost_.size() && arc_row_[k] == row; ++k)
      least = std::min(least, cost_[k] - v[to_size(arc_column_[k] - rows_)]);
    all[to_size(row)] = least;
  }
  return all;
}

/// The arcs of the pairs, each at a time when it is the last one of a point. Arcs of cycles have no such time.
std::vector<std::int32_t> NetworkSimplex::from_the_leaves(std::vector<Arc> const& pairs) const {
  struct Ends {
    std::int32_t count = 0, sum = 0;  // Number and exclusive or of a point's arcs that are left.
  };
  std::vector<Ends> ends(to_size(root_));
  auto const count_arc = [&](std::int32_t node, std::int32_t arc, std::int32_t change) {
    ends[to_size(node)].sum ^= arc;
    return ends[to_size(node)].count += change;
  };
  for (Arc const& pair : pairs) {
    auto const [first, last] = std::equal_range(arc_row_.begin(), arc_row_.end(), pair.row);
    auto const end = arc_column_.begin() + (last - arc_row_.begin());
    auto const found = std::lower_bound(arc_column_.begin() + (first - arc_row_.begin()), end, pair.column + rows_);
    if (found == end || *found != pair.column + rows_) continue;
    std::int32_t const arc = static_cast<std::int32_t>(found - arc_column_.begin());
    count_arc(pair.row, arc, 1);
    count_arc(*found, arc, 1);
  }
  std::vector<std::int32_t> arcs, leaves;
  for (std::int32_t node = 0; node < root_; ++node) {
    if (ends[to_size(node)].count == 1) leaves.push_back(node);
  }
  while (!leaves.empty()) {
    Ends const leaf = ends[to_size(leaves.back())];
    leaves.pop_back();
    if (leaf.count == 0) continue;
    arcs.push_back(leaf.sum);
    for (std::int32_t const node : {arc_row_[to_size(leaf.sum)], arc_column_[to_size(leaf.sum)]}) {
      if (count_arc(node, leaf.sum, -1) == 1) leaves.push_back(node);
    }
  }
  return arcs;
}

/// The first tree. Arcs of the pairs, then arcs of reduced cost 0, each take as much mass as their ends have left. The
/// remaining mass goes through the root.
void NetworkSimplex::plant(std::vector<Arc> const& pairs) {
  double sum = 0;
  double const least = 0x1p-51 * largest_of(base_);
  std::vector<Mass> left(supply_);
  left.insert(left.end(), demand_.begin(), demand_.end());
  struct Edge {
    std::int32_t arc;
    Mass flow;
  };
  std::vector<std::vector<Edge>> edges(to_size(root_));
  auto const fill = [&](std::int32_t arc) {
    std::size_t const i = to_size(arc_row_[to_size(arc)]), j = to_size(arc_column_[to_size(arc)]);
    Mass const flow = std::min(left[i], left[j]);
    if (flow == 0) return;
    left[i] -= flow;
    left[j] -= flow;
    edges[i].push_back({arc, flow});
    edges[j].push_back({arc, flow});
  };
  for (std::int32_t const arc : from_the_leaves(pairs)) fill(arc);
  for (std::size_t k = 0; k < cost_.size(); ++k) {
    double const reduced = cost_[k] - base_[to_size(arc_row_[k])] - base_[to_size(arc_column_[k])];
    sum += reduced;
    if (reduced <= least) fill(index(k));
  }
  std::ranges::fill(nodes_, Node());
  // A component hangs by the point that has mass or room left, or else by a row.
  std::vector<char> known(to_size(root_), 0);
  auto const grow = [&](std::int32_t top) {
    known[to_size(top)] = 1;
    link(top, root_, kNone, left[to_size(top)]);
    stack_.assign(1, top);
    while (!stack_.empty()) {
      std::int32_t const node = stack_.back();
      stack_.pop_back();
      for (Edge const& edge : edges[to_size(node)]) {
        std::int32_t const other = is_row(node) ? arc_column_[to_size(edge.arc)] : arc_row_[to_size(edge.arc)];
        if (known[to_size(other)]) continue;
        known[to_size(other)] = 1;
        link(other, node, edge.arc, edge.flow);
        stack_.push_back(other);
      }
    }
  };
  for (std::int32_t node = 0; node < root_; ++node) {
    if (left[to_size(node)] > 0) grow(node);
  }
  for (std::int32_t node = 0; node < root_; ++node) {
    if (!known[to_size(node)] && has_mass(node)) grow(node);
  }
  price_ = 0;
  find_potentials();
  // The worse the start, the higher the first price: four times the mean reduced cost if no mass has a place.
  double const mean = sum / static_cast<double>(std::max<std::size_t>(cost_.size(), 1));
  double const total = static_cast<double>(std::accumulate(supply_.begin(), supply_.end(), Mass{0}));
  price_ = std::max(4 * mean * (static_cast<double>(NetworkSimplex::left()) / total), 16 * least);
  if (!(price_ > 0)) price_ = 1;  // All costs are 0: any price is above them.
}

bool NetworkSimplex::has_mass(std::int32_t node) const {
  return (is_row(node) ? supply_[to_size(node)] : demand_[to_size(node - rows_)]) > 0;
}

/// The mass between the node and the root.
Mass NetworkSimplex::at_root(std::int32_t node) const {
  return nodes_[to_size(node)].parent == root_ ? nodes_[to_size(node)].flow : 0;
}

void NetworkSimplex::link(std::int32_t node, std::int32_t parent, std::int32_t arc, Mass flow) {
  Node& own = nodes_[to_size(node)];
  own.parent = parent;
  own.arc = arc;
  own.flow = flow;
  own.previous = kNone;
  own.next = nodes_[to_size(parent)].first_child;
  if (own.next != kNone) nodes_[to_size(own.next)].previous = node;
  nodes_[to_size(parent)].first_child = node;
}

void NetworkSimplex::unlink(std::int32_t node) {
  Node const& own = nodes_[to_size(node)];
  (own.previous != kNone ? nodes_[to_size(own.previous)].next : nodes_[to_size(own.parent)].first_child) = own.next;
  if (own.next != kNone) nodes_[to_size(own.next)].previous = own.previous;
}

/// The arc of least reduced cost in the next block that has a negative one, or kNone. A block has sqrt(arcs), or more.
std::int32_t NetworkSimplex::entering() {
  double const most = -0x1p-46 * scale_;
  auto const reduced = [&](std::size_t k) {
    return cost_[k] - potential_[to_size(arc_row_[k])] - potential_[to_size(arc_column_[k])];
  };
  // A pivot that moves many nodes is worth a longer search: a better arc leaves fewer of them.
  constexpr double kArcsOfNode = 4;
  std::size_t const block = std::max(block_, static_cast<std::size_t>(kArcsOfNode * moved_));
  for (std::size_t seen = 0; seen < cost_.size();) {
    std::size_t const begin = next_arc_ < cost_.size() ? next_arc_ : 0, end = std::min(begin + block, cost_.size());
    next_arc_ = end;
    seen += end - begin;
    double even = most, odd = most;  // Two minima, since each depends on the one before.
    std::size_t k = begin;
    for (; k + 1 < end; k += 2) {
      even = std::min(even, reduced(k));
      odd = std::min(odd, reduced(k + 1));
    }
    if (k < end) even = std::min(even, reduced(k));
    double const least = std::min(even, odd);
    if (least == most) continue;
    for (k = begin; reduced(k) != least;) ++k;
    return index(k);
  }
  return kNone;
}

void NetworkSimplex::pivot(std::int32_t arc) {
  std::int32_t const i = arc_row_[to_size(arc)], j = arc_column_[to_size(arc)];
  // Mass goes from i to j, and back along the tree. On the way from i up to the join, rows send less; from j up,
  // columns get less. Of equal flows the last along the cycle from the join leaves, which keeps the basis strongly
  // feasible.
  std::int32_t join = i;
  for (std::int32_t other = j; join != other;) {
    std::int32_t& deeper = nodes_[to_size(join)].depth >= nodes_[to_size(other)].depth ? join : other;
    deeper = nodes_[to_size(deeper)].parent;
  }
  Mass flow = 0;
  std::int32_t out = kNone;
  for (std::int32_t node = i; node != join; node = nodes_[to_size(node)].parent) {
    if (is_row(node) && (out == kNone || nodes_[to_size(node)].flow < flow)) flow = nodes_[to_size(out = node)].flow;
  }
  bool below_i = true;
  for (std::int32_t node = j; node != join; node = nodes_[to_size(node)].parent) {
    if (is_row(node) || (out != kNone && nodes_[to_size(node)].flow > flow)) continue;
    flow = nodes_[to_size(out = node)].flow;
    below_i = false;
  }
  if (flow > 0) {
    for (std::int32_t node = i; node != join; node = nodes_[to_size(node)].parent)
      nodes_[to_size(node)].flow += is_row(node) ? -flow : flow;
    for (std::int32_t node = j; node != join; node = nodes_[to_size(node)].parent)
      nodes_[to_size(node)].flow += is_row(node) ? flow : -flow;
  }
  // The part of the tree below `out` hangs by the arc.
  double const reduced = cost_[to_size(arc)] - potential_[to_size(i)] - potential_[to_size(j)];
  std::int32_t const top = below_i ? i : j;
  std::int32_t parent = below_i ? j : i, own_arc = arc;
  for (std::int32_t node = top;;) {
    Node const before = nodes_[to_size(node)];
    unlink(node);
    link(node, parent, own_arc, flow);
    if (node == out) break;
    parent = node;
    own_arc = before.arc;
    flow = before.flow;
    node = before.parent;
  }
  double const of_rows = below_i ? reduced : -reduced;
  double moved = 0, scale = scale_;
  auto const move = [&](std::int32_t node, std::int32_t depth, double change) {
    Node& own = nodes_[to_size(node)];
    own.depth = depth;
    double const potential = potential_[to_size(node)] += change;
    scale = std::max(scale, std::abs(potential));
    ++moved;
    if (own.first_child != kNone) stack_.push_back(node);
  };
  stack_.clear();
  move(top, nodes_[to_size(nodes_[to_size(top)].parent)].depth + 1, is_row(top) ? of_rows : -of_rows);
  while (!stack_.empty()) {
    std::int32_t const node = stack_.back();
    stack_.pop_back();
    std::int32_t const depth = nodes_[to_size(node)].depth + 1;
    double const change = is_row(node) ? -of_rows : of_rows;
    for (std::int32_t child = nodes_[to_size(node)].first_child; child != kNone; child = nodes_[to_size(child)].next)
      move(child, depth, change);
  }
  scale_ = scale;
  moved_ += (moved - moved_) / 64;
  ++pivots_;
}

/// Potentials and depths of the whole tree.
void NetworkSimplex::find_potentials() {
  scale_ = 0;
  stack_.assign(1, root_);
  while (!stack_.empty()) {
    std::int32_t const parent = stack_.back();
    stack_.pop_back();
    for (std::int32_t child = nodes_[to_size(parent)].first_child; child != kNone;
         child = nodes_[to_size(child)].next) {
      Node& node = nodes_[to_size(child)];
      node.depth = nodes_[to_size(parent)].depth + 1;
      node.closed = parent == root_ ? is_row(child) : nodes_[to_size(parent)].closed;
      potential_[to_size(child)] = node.arc != kNone ? cost_[to_size(node.arc)] - potential_[to_size(parent)]
                                                     : base_[to_size(child)] + (is_row(child) ? 0 : price_);
      scale_ = std::max(scale_, std::abs(potential_[to_size(child)]));
      stack_.push_back(child);
    }
  }
}

void NetworkSimplex::run(std::function<bool()> const& keep_going) {
  constexpr double kMost = std::numeric_limits<double>::max() / 16;
  double const most = std::min(4 * static_cast<double>(root_) * std::max(largest_cost_, largest_of(base_)), kMost);
  for (;; price_ *= 4) {
    std::vector<double> settled = potential_;
    find_potentials();
    bool stops = !keep_going();
    // Pivots add to the rounding of potentials, and to scale_. The second time begins with potentials found anew.
    for (int time = 0; time < 2 && !stops; ++time, find_potentials()) {
      for (std::int32_t arc = kNone; !stops && (arc = entering()) != kNone;) {
        pivot(arc);
        stops = pivots_ % 1024 == 0 && !keep_going();
      }
    }
    if (stops) {
      potential_ = std::move(settled);
      return;
    }
    if (left() == 0 || price_ > most) return;
  }
}

Mass NetworkSimplex::left() const {
  Mass sum = 0;
  for (std::int32_t child = nodes_[to_size(root_)].first_child; child != kNone; child = nodes_[to_size(child)].next)
    sum += is_row(child) ? nodes_[to_size(child)].flow : 0;
  return sum;
}

std::vector<Arc> NetworkSimplex::all_arcs() const {
  std::vector<Arc> all;
  for (std::size_t k = 0; k < cost_.size(); ++k) all.push_back({arc_row_[k], arc_column_[k] - rows_, cost_[k]});
  return all;
}

std::vector<PlanEntry> NetworkSimplex::entries() const {
  std::vector<PlanEntry> found;
  for (Node const& node : nodes_) {
    if (node.flow > 0 && node.arc != kNone)
      found.push_back(
          {{arc_row_[to_size(node.arc)], arc_column_[to_size(node.arc)] - rows_, cost_[to_size(node.arc)]}, node.flow});
  }
  return found;
}

}  // namespace monge
