// One row after the other is assigned along a shortest alternating path to a free column (Dijkstra's algorithm), with
// potentials u, v that keep reduced costs C_ij - u_i - v_j >= 0. A step of a path reads one row of costs.
//
// Pairs are SciPy's in every case, ties too: sums are taken in its order in float64, and among columns at the least
// distance the step takes the one that its list of open columns would. That list has the columns in falling order, and
// a closed column is replaced by the last one. A free column wins, the last in the list; without one, the first.
//
// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#include "cpu/assignment/shortest_paths.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/assignment/shortest_paths.cpp"
#include "core/numbers.hpp"
#include "cpu/pass/simd_targets.hpp"
// foreach_target.h must come first.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

class PathSearch {
 public:
  explicit PathSearch(AssignmentMatrix const& matrix)
      : matrix_(matrix),
        numbers_(aligned_array<double>(2 * matrix.stride)),
        parents_(aligned_array<std::int64_t>(matrix.stride)),
        v_(numbers_.get()),
        distance_(v_ + matrix.stride),
        parent_(parents_.get()),
        u_(to_size(matrix.rows), 0.0),
        row_of_(to_size(matrix.stride), -1),
        list_(to_size(matrix.columns)),
        place_(list_.size()) {
    std::fill_n(v_, matrix.stride, 0.0);
    std::fill_n(parent_, matrix.stride, std::int64_t{-1});
  }

  /// Assigns this row, too. Returns false if no path has a finite length.
  bool add(std::int64_t row, std::vector<std::int64_t>& column_of) {
    std::fill_n(distance_, matrix_.stride, kInfinity);
    auto const columns = static_cast<int>(matrix_.columns);
    for (int j = 0; j < columns; ++j) list_[to_size(j)] = place_[to_size(j)] = columns - 1 - j;
    open_ = columns;
    closed_.clear();
    double length = 0;
    std::int64_t sink = -1;
    for (std::int64_t i = row; sink < 0;) {
      length = relax(i, length);
      if (length == kInfinity) return false;
      std::int64_t const j = nearest(length);
      close(j, length);
      i = row_of_[to_size(j)];
      if (i < 0) sink = j;
    }
    u_[to_size(row)] += length;
    for (Closed const& closed : closed_) {
      double const change = length - closed.distance;
      v_[closed.column] = closed.v - change;
      std::int64_t const i = row_of_[to_size(closed.column)];
      if (i >= 0) u_[to_size(i)] += change;
    }
    for (std::int64_t j = sink, i = -1; i != row;) {
      i = parent_[j];
      row_of_[to_size(j)] = i;
      std::swap(column_of[to_size(i)], j);
    }
    return true;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  struct Closed {
    std::int64_t column;
    double distance, v;
  };

  /// Takes the paths through row i, which is at this distance, into account. Returns the least distance of an open
  /// column. A closed column has v = -inf: no path to it is shorter.
  HWY_ATTR double relax(std::int64_t i, double distance) {
    hn::CappedTag<double, AssignmentMatrix::kPadding> const d;
    hn::RebindToSigned<decltype(d)> const di;
    double const* HWY_RESTRICT costs = matrix_.costs.get() + i * matrix_.stride;
    auto const from = hn::Set(d, distance), u = hn::Set(d, u_[to_size(i)]);
    auto const row = hn::Set(di, i);
    auto least = hn::Set(d, kInfinity);
    for (std::int64_t j = 0; j < matrix_.stride; j += static_cast<std::int64_t>(hn::Lanes(d))) {
      auto const through = hn::Sub(hn::Sub(hn::Add(from, hn::Load(d, costs + j)), u), hn::Load(d, v_ + j));
      auto const before = hn::Load(d, distance_ + j);
      auto const shorter = hn::Lt(through, before);
      auto const now = hn::IfThenElse(shorter, through, before);
      hn::Store(now, d, distance_ + j);
      hn::Store(hn::IfThenElse(hn::RebindMask(di, shorter), row, hn::Load(di, parent_ + j)), di, parent_ + j);
      least = hn::Min(least, now);
    }
    return hn::GetLane(hn::MinOfLanes(d, least));
  }

  /// The column at this distance that the order of ties takes.
  HWY_ATTR std::int64_t nearest(double distance) const {
    hn::CappedTag<double, AssignmentMatrix::kPadding> const d;
    auto const at = hn::Set(d, distance);
    std::int64_t best = -1;
    for (std::int64_t j = 0; j < matrix_.stride; j += static_cast<std::int64_t>(hn::Lanes(d))) {
      auto const hit = hn::Eq(hn::Load(d, distance_ + j), at);
      if (HWY_LIKELY(hn::AllFalse(d, hit))) continue;
      std::int64_t const end = j + static_cast<std::int64_t>(hn::Lanes(d));
      for (std::int64_t k = j; k < end; ++k) {
        if (distance_[k] == distance && (best < 0 || tie_order(k) > tie_order(best))) best = k;
      }
    }
    return best;
  }
  /// Among columns at equal distances the one with the largest number here comes first. Free columns precede others.
  std::int64_t tie_order(std::int64_t column) const {
    auto const j = to_size(column);
    return row_of_[j] < 0 ? place_[j] : -1 - place_[j];
  }

  void close(std::int64_t column, double distance) {
    closed_.push_back({column, distance, v_[column]});
    v_[column] = -kInfinity;
    distance_[column] = kInfinity;
    int const place = place_[to_size(column)], last = list_[to_size(--open_)];
    list_[to_size(place)] = last;
    place_[to_size(last)] = place;
  }

  AssignmentMatrix const& matrix_;
  AlignedArray<double> numbers_;
  AlignedArray<std::int64_t> parents_;
  double *v_, *distance_;  ///< Potential and distance of each column; distance_ is inf where a column is closed.
  std::int64_t* parent_;   ///< The row before a column on its shortest path.
  std::vector<double> u_;
  std::vector<std::int64_t> row_of_;  ///< The row of a column; -1: free.
  std::vector<int> list_, place_;     ///< The open columns in the order of ties; where a column stands there.
  int open_ = 0;                      ///< Number of open columns.
  std::vector<Closed> closed_;        ///< Closed columns, with v before this path.
};

bool shortest_paths(AssignmentMatrix const& matrix, std::vector<std::int64_t>& column_of) {
  column_of.assign(to_size(matrix.rows), -1);
  PathSearch search(matrix);
  for (std::int64_t i = 0; i < matrix.rows; ++i) {
    if (!search.add(i, column_of)) return false;
  }
  return true;
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(shortest_paths);

bool shortest_paths(AssignmentMatrix const& matrix, std::vector<std::int64_t>& column_of) {
  return HWY_DYNAMIC_DISPATCH(shortest_paths)(matrix, column_of);
}

}  // namespace monge::cpu
#endif
