// Entries of a plan one by one: each thread takes rows of w_ij, or of their logarithms, from its stripes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/strided.hpp"
#include "cpu/plan_operator.hpp"
#include "operators/sampling.hpp"

namespace monge::cpu {
namespace {

/// Columns between two decisions whether any of them is of interest.
constexpr std::size_t kGroup = 32;

/// visit(j) for the columns of a row that are above `least`, from `first` on; `least` may rise meanwhile. Seldom is
/// any: whole groups are passed over.
template <class T, class Visit>
void for_each_above(std::span<T const> row, std::size_t first, T const& least, Visit const& visit) {
  for (std::size_t begin = first; begin < row.size(); begin += kGroup) {
    std::size_t const end = std::min(begin + kGroup, row.size());
    T const bound = least;
    int any = 0;
    for (std::size_t j = begin; j < end; ++j) any |= row[j] > bound ? 1 : 0;
    for (std::size_t j = begin; any != 0 && j < end; ++j) {
      if (row[j] > least) visit(j);
    }
  }
}

template <class T>
struct Ranked {
  T logarithm;
  std::int64_t j;

  bool operator<(Ranked const& other) const {
    return logarithm != other.logarithm ? logarithm > other.logarithm : j < other.j;
  }
};

/// The first k of a row in their order. Columns that can still be among them are collected; as there are twice as many
/// as needed, the others are dropped.
template <class T>
void rank_row(std::span<T const> row, std::size_t k, std::vector<Ranked<T>>& best) {
  std::size_t const room = k + std::max(k, kGroup);
  T least = 0;  // A later column must be above it.
  auto const add = [&](std::size_t j) {
    best.push_back({row[j], static_cast<std::int64_t>(j)});
    if (best.size() < room) return;
    std::nth_element(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(k - 1), best.end());
    best.resize(k);
    least = best.back().logarithm;
  };
  best.clear();
  std::size_t const first = std::min(room, row.size());
  for (std::size_t j = 0; j < first; ++j) add(j);
  for_each_above(row, first, least, add);
  std::sort(best.begin(), best.end());
  best.resize(k);
}

/// visit(j, P_ij) for the entries of a row above the threshold. Only near it or above it is an exponential taken.
template <class T, class Visit>
void visit_entries(double threshold, double marginal, std::span<T const> row, double reference, Visit const& visit) {
  if (!(marginal > 0)) return;
  T const near = static_cast<T>(std::log2(threshold / marginal) + reference - 1);
  for_each_above(row, 0, near, [&](std::size_t j) {
    double const entry = marginal * std::exp2(static_cast<double>(row[j]) - reference);
    if (entry > threshold) visit(static_cast<std::int64_t>(j), entry);
  });
}

}  // namespace

template <class T>
void PlanOperator<T>::top_k(Side side, MutableIndexView indices, MutableMatrixView values) {
  HostVector const& total = on_host(marginal(side));
  std::vector<double> const& weight = data_.weight(side);
  std::vector<std::vector<Ranked<T>>> best(static_cast<std::size_t>(most_threads_));
  for_each_row(side, RowOf::logarithms, [&](int thread, std::int64_t i, std::span<T const> row, double reference) {
    std::vector<Ranked<T>>& found = best[static_cast<std::size_t>(thread)];
    if (weight[static_cast<std::size_t>(i)] > 0) {
      rank_row(row, static_cast<std::size_t>(indices.columns), found);
    } else {
      found.resize(static_cast<std::size_t>(indices.columns));
      for (std::size_t q = 0; q < found.size(); ++q) found[q] = {0, static_cast<std::int64_t>(q)};
    }
    with_data(values, [&](auto* data) {
      using Out = std::remove_pointer_t<decltype(data)>;
      for (std::int64_t q = 0; q < indices.columns; ++q) {
        Ranked<T> const& entry = found[static_cast<std::size_t>(q)];
        indices.data[i * indices.row_stride + q] = entry.j;
        data[i * values.row_stride() + q] =
            static_cast<Out>(total[i] * std::exp2(static_cast<double>(entry.logarithm) - reference));
      }
    });
  });
}

template <class T>
std::int64_t PlanOperator<T>::count_above(double threshold, MutableIndexView row_begin) {
  HostVector const& total = on_host(marginal(Side::rows));
  auto const at = [&](std::int64_t i) -> std::int64_t& { return row_begin.data[i * row_begin.row_stride]; };
  for_each_row(Side::rows, RowOf::logarithms, [&](int, std::int64_t i, std::span<T const> row, double reference) {
    std::int64_t count = 0;
    visit_entries(threshold, total[i], row, reference, [&](std::int64_t, double) { ++count; });
    at(i + 1) = count;
  });
  at(0) = 0;
  for (std::int64_t i = 0; i < size(Side::rows); ++i) at(i + 1) += at(i);
  return at(size(Side::rows));
}

template <class T>
std::int64_t PlanOperator<T>::entries_above(double threshold, MutableIndexView row_begin, MutableIndexView columns,
                                            MutableVectorView values) {
  HostVector const& total = on_host(marginal(Side::rows));
  std::vector<std::int64_t> first_wrong(static_cast<std::size_t>(most_threads_), size(Side::rows));
  for_each_row(Side::rows, RowOf::logarithms,
               [&](int thread, std::int64_t i, std::span<T const> row, double reference) {
                 std::int64_t const begin = row_begin.data[i * row_begin.row_stride];
                 std::int64_t const end = row_begin.data[(i + 1) * row_begin.row_stride];
                 bool const inside = begin >= 0 && end <= columns.rows;
                 std::int64_t at = begin;
                 with_data(values, [&](auto* data) {
                   using Out = std::remove_pointer_t<decltype(data)>;
                   visit_entries(threshold, total[i], row, reference, [&](std::int64_t j, double entry) {
                     if (inside && at < end) {
                       columns.data[at * columns.row_stride] = j;
                       data[at * values.stride()] = static_cast<Out>(entry);
                     }
                     ++at;
                   });
                 });
                 std::int64_t& wrong = first_wrong[static_cast<std::size_t>(thread)];
                 if (!inside || at != end) wrong = std::min(wrong, i);
               });
  return *std::min_element(first_wrong.begin(), first_wrong.end());
}

template <class T>
void PlanOperator<T>::sample(std::uint64_t seed, MutableIndexView pairs) {
  std::int64_t const n = size(Side::rows), count = pairs.rows;
  HostVector const& total = on_host(marginal(Side::rows));
  std::vector<double> rows(static_cast<std::size_t>(n));
  std::partial_sum(total.values().begin(), total.values().end(), rows.begin());
  require_mass(rows.back());
  auto const row_of = [&](std::int64_t k) -> std::int64_t& { return pairs.data[k * pairs.row_stride]; };
#pragma omp parallel for num_threads(most_threads_) schedule(static)
  for (std::int64_t k = 0; k < count; ++k)
    row_of(k) = first_above(rows.data(), n, sample_target(draw(seed, static_cast<std::uint64_t>(k)).row, rows.back()));

  // Draws by their rows: those of row i are order[begin[i]] to order[begin[i + 1]].
  std::vector<std::int64_t> begin(static_cast<std::size_t>(n) + 2), order(static_cast<std::size_t>(count));
  for (std::int64_t k = 0; k < count; ++k) ++begin[static_cast<std::size_t>(row_of(k)) + 2];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  for (std::int64_t k = 0; k < count; ++k)
    order[static_cast<std::size_t>(begin[static_cast<std::size_t>(row_of(k)) + 1]++)] = k;

  std::vector<std::vector<double>> sums(static_cast<std::size_t>(most_threads_));
  for_each_row(Side::rows, RowOf::shares, [&](int thread, std::int64_t i, std::span<T const> row, double) {
    std::size_t const first = static_cast<std::size_t>(begin[static_cast<std::size_t>(i)]);
    std::size_t const end = static_cast<std::size_t>(begin[static_cast<std::size_t>(i) + 1]);
    if (first == end) return;
    std::vector<double>& tiles = sums[static_cast<std::size_t>(thread)];
    tiles.clear();
    double sum = 0;
    for (std::size_t j = 0; j < row.size(); ++j) {
      sum += static_cast<double>(row[j]);
      if (j % kSampleTile == kSampleTile - 1 || j + 1 == row.size()) tiles.push_back(sum);
    }
    for (std::size_t s = first; s < end; ++s) {
      double const target = sample_target(draw(seed, static_cast<std::uint64_t>(order[s])).column, sum);
      std::int64_t const tile = first_above(tiles.data(), static_cast<std::int64_t>(tiles.size()), target);
      std::size_t const from = static_cast<std::size_t>(tile * kSampleTile);
      int const columns = static_cast<int>(std::min<std::size_t>(kSampleTile, row.size() - from));
      double const sum_before = tile > 0 ? tiles[static_cast<std::size_t>(tile - 1)] : 0.0;
      int const column = column_above(columns, sum_before, target, [&](int c) {
        return static_cast<double>(row[from + static_cast<std::size_t>(c)]);
      });
      pairs.data[order[s] * pairs.row_stride + 1] = static_cast<std::int64_t>(from) + column;
    }
  });
}

#define MONGE_INSTANTIATE(T)                                                                                           \
  template void PlanOperator<T>::top_k(Side, MutableIndexView, MutableMatrixView);                                     \
  template std::int64_t PlanOperator<T>::count_above(double, MutableIndexView);                                        \
  template std::int64_t PlanOperator<T>::entries_above(double, MutableIndexView, MutableIndexView, MutableVectorView); \
  template void PlanOperator<T>::sample(std::uint64_t, MutableIndexView);
MONGE_INSTANTIATE(float)
MONGE_INSTANTIATE(double)
#undef MONGE_INSTANTIATE

}  // namespace monge::cpu
