#include "cpu/regularized/pair_groups.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "cpu/runtime/threads.hpp"

namespace monge::cpu {

PairGroups::PairGroups(IndexMatrixView labels, std::vector<double> weights, int threads)
    : n_(labels.rows), weights_(std::move(weights)), rows_(to_size(labels.rows * labels.columns)), column_begin_{0} {
  std::int64_t const m = labels.columns, none = groups();
  weights_.push_back(0);
  std::vector<std::vector<Part>> of_columns(to_size(m));
  constexpr std::int64_t kPairsOfLabel = 16;  // Reading them takes as long as sorting a label.
  parallel_for(useful_threads(threads, n_ * kPairsOfLabel, m), m, [&](std::int64_t j) {
    std::vector<std::int64_t> group;
    for (std::int64_t i = 0; i < n_; ++i) {
      std::int64_t const label = labels.data[i * labels.row_stride + j];
      group.push_back(label < 0 ? none : label);
    }
    auto const group_of = [&](std::int32_t i) { return group[to_size(i)]; };
    std::span<std::int32_t> const rows(rows_.data() + j * n_, to_size(n_));
    std::iota(rows.begin(), rows.end(), 0);
    std::ranges::stable_sort(rows, {}, group_of);
    for (std::int64_t begin = 0, end = 0; begin < n_; begin = end) {
      std::int64_t const own = group_of(rows[to_size(begin)]);
      while (end < n_ && group_of(rows[to_size(end)]) == own) ++end;
      of_columns[to_size(j)].push_back({begin, end, own});
    }
  });
  group_begin_.resize(weights_.size() + 1);
  for (std::vector<Part> const& of_column : of_columns) {
    parts_.insert(parts_.end(), of_column.begin(), of_column.end());
    column_begin_.push_back(parts());
    for (Part const& part : of_column) ++group_begin_[to_size(part.group + 1)];
  }
  std::partial_sum(group_begin_.begin(), group_begin_.end(), group_begin_.begin());
  by_group_.resize(parts_.size());
  std::vector<std::int64_t> next = group_begin_;
  for (std::int64_t p = 0; p < parts(); ++p) {
    std::size_t const group = to_size(parts_[to_size(p)].group);
    by_group_[to_size(next[group]++)] = p;
  }
}

double PairGroups::total(std::int64_t group, std::span<double const> of_parts) const {
  double sum = 0;
  std::size_t const g = to_size(group);
  for (std::int64_t k = group_begin_[g]; k < group_begin_[g + 1]; ++k) sum += of_parts[to_size(by_group_[to_size(k)])];
  return sum;
}

template <class T>
void leave_parts(SplittingPass<T> const& pass, PairGroups const& groups, std::int64_t first, std::int64_t columns,
                 std::span<double> squares) {
  for (std::int64_t j = first; j < first + columns; ++j) {
    T* const x = pass.x + j * pass.stride;
    T const* const costs = pass.costs + j * pass.stride;
    T const psi = pass.psi[j];
    for (std::int64_t r = 0; r < pass.rows; ++r) x[r] = std::max(x[r] - pass.step * costs[r] + pass.phi[r] + psi, T(0));
    std::int32_t const* const rows = groups.rows_of(j);
    std::size_t number = to_size(groups.first_part(j));
    for (PairGroups::Part const& part : groups.parts_of(j)) {
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t k = part.begin; k < part.end; ++k) {
        double const v = static_cast<double>(x[rows[k]]);
        sum += v * v;
      }
      squares[number++] = sum;
    }
  }
}

template <class T>
void shrink_parts(SplittingPass<T> const& pass, PairGroups const& groups, std::span<double const> factors,
                  std::int64_t first, std::int64_t columns, T* row_sums, double* column_sums) {
  std::fill_n(row_sums, padded_to_vectors<T>(pass.rows), T(0));
  for (std::int64_t j = first; j < first + columns; ++j) {
    T* const x = pass.x + j * pass.stride;
    std::int32_t const* const rows = groups.rows_of(j);
    for (PairGroups::Part const& part : groups.parts_of(j)) {
      T const factor = static_cast<T>(factors[to_size(part.group)]);
      for (std::int64_t k = part.begin; k < part.end; ++k) x[rows[k]] *= factor;
    }
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t r = 0; r < pass.rows; ++r) {
      row_sums[r] += x[r];
      sum += static_cast<double>(x[r]);
    }
    *column_sums++ = sum;
  }
}

template void leave_parts(SplittingPass<float> const&, PairGroups const&, std::int64_t, std::int64_t,
                          std::span<double>);
template void leave_parts(SplittingPass<double> const&, PairGroups const&, std::int64_t, std::int64_t,
                          std::span<double>);
template void shrink_parts(SplittingPass<float> const&, PairGroups const&, std::span<double const>, std::int64_t,
                           std::int64_t, float*, double*);
template void shrink_parts(SplittingPass<double> const&, PairGroups const&, std::span<double const>, std::int64_t,
                           std::int64_t, double*, double*);

}  // namespace monge::cpu
