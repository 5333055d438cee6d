// Entries of a plan. Each thread takes rows of w_ij, or of their logarithms, from its stripes.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/strided.hpp"
#include "cpu/plan/plan_operator.hpp"
#include "geometry/p_norm.hpp"
#include "plan/sampling.hpp"

namespace monge::cpu {
namespace {

template <class T>
struct Candidate {
  T logarithm;
  std::int64_t j;

  bool operator<(Candidate const& other) const {
    return logarithm != other.logarithm ? logarithm > other.logarithm : j < other.j;
  }
};

/// Calls visit(k, number) for the numbers of a row that pass the test; most groups have none.
template <class Row, class Test, class Visit>
void visit_where(Row const& row, Test const& passes, Visit const& visit) {
  constexpr std::size_t kGroup = kLogitGroup;
  for (std::size_t g = 0; g < row.largest.size(); ++g) {
    if (!passes(row.largest[g])) continue;
    auto const* const values = row.values.data();
    for (std::size_t k = g * kGroup, end = std::min(k + kGroup, row.values.size()); k < end; ++k) {
      if (passes(values[k])) visit(k, values[k]);
    }
  }
}

/// The first k of a row of logarithms, in order. The k-th largest of the group maxima is a lower bound of the first k,
/// so only columns that reach it are sorted, few more than k. Points that the row does not list stand behind its
/// entries, by index.
template <class T>
class RowSelection {
 public:
  template <class Row>
  std::span<Candidate<T> const> operator()(Row const& row, std::size_t k) {
    find_listed(row, std::min(k, row.values.size()));
    if (row.points.empty()) return found_;
    auto const has_entry = [](Candidate<T> const& candidate) {
      return candidate.logarithm > -std::numeric_limits<T>::infinity();
    };
    found_.erase(std::find_if_not(found_.begin(), found_.end(), has_entry), found_.end());
    return filled(k);
  }
  /// The first k of a row without entries.
  std::span<Candidate<T> const> none(std::size_t k) {
    found_.clear();
    return filled(k);
  }

 private:
  /// Up to k: after the entries found the other points follow, by index.
  std::span<Candidate<T> const> filled(std::size_t k) {
    if (found_.size() == k) return found_;
    std::vector<std::int64_t> taken;
    for (Candidate<T> const& candidate : found_) taken.push_back(candidate.j);
    std::sort(taken.begin(), taken.end());
    auto next = taken.begin();
    for (std::int64_t j = 0; found_.size() < k; ++j) {
      if (next != taken.end() && *next == j) {
        ++next;
      } else {
        found_.push_back({-std::numeric_limits<T>::infinity(), j});
      }
    }
    return found_;
  }
  template <class Row>
  void find_listed(Row const& row, std::size_t k) {
    T least = -std::numeric_limits<T>::infinity();
    if (k > 0 && k <= row.largest.size()) {
      kth_.assign(row.largest.begin(), row.largest.end());
      std::nth_element(kth_.begin(), at(kth_, k - 1), kth_.end(), std::greater<>());
      least = kth_[k - 1];
    }
    found_.clear();
    visit_where(
        row, [&](T logarithm) { return logarithm >= least; },
        [&](std::size_t j, T logarithm) {
          found_.push_back({logarithm, row.j(j)});
        });
    std::partial_sort(found_.begin(), at(found_, k), found_.end());
    found_.erase(at(found_, k), found_.end());
  }

  template <class Vector>
  static auto at(Vector& vector, std::size_t index) {
    return vector.begin() + static_cast<std::ptrdiff_t>(index);
  }
  std::vector<T> kth_;
  std::vector<Candidate<T>> found_;
};

/// Calls visit(k, P_ij) for the k-th numbers of a row above the threshold. Exponentials are taken only near or above
/// it.
template <class Row, class Visit>
void visit_entries(double threshold, double marginal, Row const& row, Visit const& visit) {
  if (!(marginal > 0)) return;
  double const near = std::log2(threshold / marginal) + row.reference - 1;
  visit_where(
      row, [&](double logarithm) { return logarithm > near; },
      [&](std::size_t k, double logarithm) {
        double const entry = marginal * std::exp2(logarithm - row.reference);
        if (entry > threshold) visit(static_cast<std::int64_t>(k), entry);
      });
}

/// The score of one pair in float64, from the data that passes read.
template <class T>
double score_of(ScoreSource<T> const& source, std::int64_t i, std::int64_t j) {
  if (source.form == ScoreForm::stored) {
    StoredCosts const& costs = source.stored;
    std::int64_t const at = costs.transposed ? j * costs.row_stride + i : i * costs.row_stride + j;
    double const cost = costs.type == DataType::float32 ? static_cast<double>(static_cast<float const*>(costs.data)[at])
                                                        : static_cast<double const*>(costs.data)[at];
    return (cost - costs.origin) / costs.unit;
  }
  double score = 0;
  if (source.form == ScoreForm::distances) {
    score = p_norm(to_size(source.dimension()), source.p, [&](std::size_t k) {
      std::int64_t const at = static_cast<std::int64_t>(k);
      return static_cast<double>(source.rows->coordinate(i, at)) - source.columns->coordinate(j, at);
    });
  } else {
    for (std::int64_t k = 0; k < source.dimension(); ++k) {
      double const x = source.rows->coordinate(i, k), y = source.columns->coordinate(j, k);
      score += source.form == ScoreForm::products ? x * y : (x - y) * (x - y);
    }
  }
  if (source.labels.table != nullptr) score += static_cast<double>(source.labels.row(i)[source.labels.columns[j]]);
  return score;
}

}  // namespace

template <class T>
void PlanOperator<T>::all(Side side, MutableMatrixView out) {
  HostVector const& total = on_host(marginal(side));
  // Entries of a column of little mass may be smaller than the smallest share.
  RowOf const what = has_tiny_points(opposite(side)) ? RowOf::logarithms : RowOf::shares;
  for_each_row(side, what, [&](int, Row const& row) {
    with_data(out, [&](auto* data) {
      using Out = std::remove_pointer_t<decltype(data)>;
      Out* const to = data + row.i * out.row_stride();
      if (!row.points.empty()) std::fill_n(to, out.columns(), Out(0));
      for (std::size_t k = 0; k < row.values.size(); ++k) {
        double const value = row.values[k];
        double const share = what == RowOf::shares ? value : std::exp2(value - row.reference);
        to[row.j(k)] = static_cast<Out>(total[row.place] * share);
      }
    });
  }).share({of_rows(out)});
}

template <class T>
void PlanOperator<T>::top_k(Side side, MutableIndexView indices, MutableMatrixView values) {
  HostVector const& total = on_host(marginal(side));
  std::vector<double> const& weight = data_.weight(side);
  std::vector<RowSelection<T>> selections(to_size(workers_.threads));
  std::size_t const k = to_size(indices.columns);
  for_each_row(side, RowOf::logarithms, [&](int thread, Row const& row) {
    RowSelection<T>& selection = selections[to_size(thread)];
    bool const has_entries = weight[to_size(row.place)] > 0 && !std::isnan(total[row.place]);
    std::span<Candidate<T> const> const found = has_entries ? selection(row, k) : selection.none(k);
    with_data(values, [&](auto* data) {
      using Out = std::remove_pointer_t<decltype(data)>;
      for (std::int64_t q = 0; q < indices.columns; ++q) {
        Candidate<T> const& entry = found[to_size(q)];
        indices.data[row.i * indices.row_stride + q] = entry.j;
        data[row.i * values.row_stride() + q] =
            static_cast<Out>(total[row.place] * std::exp2(static_cast<double>(entry.logarithm) - row.reference));
      }
    });
  }).share({of_rows(indices.data, indices.row_stride, indices.columns), of_rows(values)});
}

template <class T>
std::int64_t PlanOperator<T>::count_above(double threshold, MutableIndexView row_begin) {
  HostVector const& total = on_host(marginal(Side::rows));
  auto const at = [&](std::int64_t i) -> std::int64_t& { return row_begin.data[i * row_begin.row_stride]; };
  for_each_row(Side::rows, RowOf::logarithms, [&](int, Row const& row) {
    std::int64_t count = 0;
    visit_entries(threshold, total[row.place], row, [&](std::int64_t, double) { ++count; });
    at(row.i + 1) = count;
  }).share({of_rows(row_begin.data + row_begin.row_stride, row_begin.row_stride)});
  at(0) = 0;
  for (std::int64_t i = 0; i < size(Side::rows); ++i) at(i + 1) += at(i);
  return at(size(Side::rows));
}

template <class T>
std::int64_t PlanOperator<T>::entries_above(double threshold, MutableIndexView row_begin, MutableIndexView columns,
                                            MutableVectorView values) {
  HostVector const& total = on_host(marginal(Side::rows));
  std::int64_t const n = size(Side::rows);
  auto const begin_of = [&](std::int64_t i) { return row_begin.data[i * row_begin.row_stride]; };
  std::vector<std::int64_t> is_wrong(to_size(n));
  Stripes<T> const& stripes = for_each_row(Side::rows, RowOf::logarithms, [&](int, Row const& row) {
    std::int64_t const begin = begin_of(row.i), end = begin_of(row.i + 1);
    bool const inside = begin >= 0 && end <= columns.rows;
    std::int64_t at = begin;
    with_data(values, [&](auto* data) {
      using Out = std::remove_pointer_t<decltype(data)>;
      auto const write = [&](std::int64_t j, double entry) {
        if (inside && at < end) {
          columns.data[at * columns.row_stride] = j;
          data[at * values.stride()] = static_cast<Out>(entry);
        }
        ++at;
      };
      if (row.points.empty()) {
        visit_entries(threshold, total[row.place], row, write);
      } else {
        std::vector<std::pair<std::int64_t, double>> found;
        visit_entries(threshold, total[row.place], row,
                      [&](std::int64_t k, double entry) { found.emplace_back(row.j(to_size(k)), entry); });
        std::sort(found.begin(), found.end());
        for (auto const& [j, entry] : found) write(j, entry);
      }
    });
    is_wrong[to_size(row.i)] = !inside || at != end ? 1 : 0;
  });
  stripes.share({of_rows(is_wrong.data())});
  std::int64_t const wrong = std::ranges::find(is_wrong, 1) - is_wrong.begin();
  if (Ranks* const ranks = stripes.team().ranks; ranks != nullptr && wrong == n) {
    std::vector<std::int64_t> edges = stripes.rows_of_ranks();
    std::ranges::transform(edges, edges.begin(), begin_of);
    ranks->exchange(std::array{shared_items(columns.data, columns.row_stride, edges), shared_items(values, edges)});
  }
  return wrong;
}

template <class T>
void PlanOperator<T>::sample(std::uint64_t seed, MutableIndexView pairs) {
  std::int64_t const n = size(Side::rows), count = pairs.rows;
  HostVector const& total = on_host(marginal(Side::rows));
  std::vector<double> rows(to_size(n));
  for (std::int64_t i = 0; i < n; ++i) rows[to_size(i)] = total[vectors_.orders().place(Side::rows, i)];
  std::partial_sum(rows.begin(), rows.end(), rows.begin());
  require_mass(rows.back());
  auto const row_of = [&](std::int64_t k) -> std::int64_t& { return pairs.data[k * pairs.row_stride]; };
  constexpr std::int64_t kPairsOfDraw = 512;  // Take as long as a draw, whose search misses caches.
  parallel_for(useful_threads(workers_.threads, count, kPairsOfDraw), count, [&](std::int64_t k) {
    row_of(k) = first_above(rows.data(), n, sample_target(draw(seed, static_cast<std::uint64_t>(k)).row, rows.back()));
  });

  // Draws sorted by row: row i has order[begin[i]] to order[begin[i + 1]].
  std::vector<std::int64_t> begin(to_size(n) + 2), order(to_size(count));
  for (std::int64_t k = 0; k < count; ++k) ++begin[to_size(row_of(k)) + 2];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  for (std::int64_t k = 0; k < count; ++k) order[to_size(begin[to_size(row_of(k)) + 1]++)] = k;

  std::vector<std::vector<double>> sums(to_size(workers_.threads));
  std::vector<std::int64_t> column_of(order.size());
  std::vector<std::vector<T>> whole(to_size(workers_.threads));  // A row of all points, in the caller's order.
  Stripes<T> const& stripes = for_each_row(Side::rows, RowOf::shares, [&](int thread, Row const& given) {
    std::size_t const first = to_size(begin[to_size(given.i)]);
    std::size_t const end = to_size(begin[to_size(given.i) + 1]);
    if (first == end) return;
    std::span<T const> row = given.values;
    if (!given.points.empty()) {
      std::vector<T>& scattered = whole[to_size(thread)];
      scattered.assign(to_size(size(Side::columns)), T(0));
      for (std::size_t k = 0; k < row.size(); ++k) scattered[to_size(given.points[k])] = row[k];
      row = scattered;
    }
    // A row with positive marginal has a finite log-sum-exp. The sum of its shares, relative to it, is near 1.
    std::vector<double>& tiles = sums[to_size(thread)];
    tiles.clear();
    double sum = 0;
    for (std::size_t j = 0; j < row.size(); ++j) {
      sum += static_cast<double>(row[j]);
      if (j % kSampleTile == kSampleTile - 1 || j + 1 == row.size()) tiles.push_back(sum);
    }
    for (std::size_t s = first; s < end; ++s) {
      double const target = sample_target(draw(seed, static_cast<std::uint64_t>(order[s])).column, sum);
      std::int64_t const tile = first_above(tiles.data(), static_cast<std::int64_t>(tiles.size()), target);
      std::size_t const from = to_size(tile * kSampleTile);
      int const columns = static_cast<int>(std::min<std::size_t>(kSampleTile, row.size() - from));
      double const sum_before = tile > 0 ? tiles[to_size(tile - 1)] : 0.0;
      int const column =
          column_above(columns, sum_before, target, [&](int c) { return static_cast<double>(row[from + to_size(c)]); });
      column_of[s] = static_cast<std::int64_t>(from) + column;
    }
  });
  if (Ranks* const ranks = stripes.team().ranks) {
    std::vector<std::int64_t> edges = stripes.rows_of_ranks();
    for (std::int64_t& edge : edges) edge = begin[to_size(edge)];
    ranks->exchange(std::array{shared_items(column_of.data(), 1, edges)});
  }
  for (std::size_t s = 0; s < order.size(); ++s) pairs.data[order[s] * pairs.row_stride + 1] = column_of[s];
}

template <class T>
void PlanOperator<T>::entries_at(IndexView rows, IndexView columns, MutableVectorView values) {
  Costs<T> const& costs = *data_.costs;
  ScoreSource<T> const source = costs.scores(Side::rows);
  double const log2e_over_eps = std::numbers::log2e / eps_;
  // The logarithm of a point's factor in P_ij. Potentials are finite, so zero weight gives -infinity.
  auto const log2_weight = [&](Side side, std::int64_t i) {
    return data_.weights[static_cast<int>(side)]->log2[to_size(i)];
  };
  auto const slope = [&](Side side, std::int64_t i) { return data_.potential(side)[i] - costs.norm(side)[to_size(i)]; };
  int const threads = useful_threads(workers_.threads, values.size(), source.dimension() + 1);
  with_data(values, [&](auto* data) {
    using Out = std::remove_pointer_t<decltype(data)>;
    parallel_for(threads, values.size(), [&](std::int64_t k) {
      std::int64_t const i = vectors_.orders().place(Side::rows, rows.data[k * rows.stride]);
      std::int64_t const j = vectors_.orders().place(Side::columns, columns.data[k * columns.stride]);
      double const t = slope(Side::rows, i) + slope(Side::columns, j) - costs.factor() * score_of(source, i, j);
      double const logarithm = log2_weight(Side::rows, i) + log2_weight(Side::columns, j) + t * log2e_over_eps;
      data[k * values.stride()] = static_cast<Out>(std::exp2(logarithm));
    });
  });
}

#define MONGE_INSTANTIATE(T)                                                                                           \
  template void PlanOperator<T>::all(Side, MutableMatrixView);                                                         \
  template void PlanOperator<T>::top_k(Side, MutableIndexView, MutableMatrixView);                                     \
  template std::int64_t PlanOperator<T>::count_above(double, MutableIndexView);                                        \
  template std::int64_t PlanOperator<T>::entries_above(double, MutableIndexView, MutableIndexView, MutableVectorView); \
  template void PlanOperator<T>::sample(std::uint64_t, MutableIndexView);                                              \
  template void PlanOperator<T>::entries_at(IndexView, IndexView, MutableVectorView);
MONGE_INSTANTIATE(float)
MONGE_INSTANTIATE(double)
#undef MONGE_INSTANTIATE

}  // namespace monge::cpu
