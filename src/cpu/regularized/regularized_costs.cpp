#include "cpu/regularized/regularized_costs.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/strided.hpp"
#include "cpu/threads.hpp"
#include "regularized/regularized_costs.hpp"

namespace monge::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// function(at) with at(i, j) an entry of the problem as float64.
template <class Function>
void with_entries(MatrixView matrix, bool transposed, Function&& function) {
  with_data(matrix, [&](auto const* data) {
    std::int64_t const stride = matrix.row_stride();
    if (transposed) {
      function([=](std::int64_t i, std::int64_t j) { return static_cast<double>(data[j * stride + i]); });
    } else {
      function([=](std::int64_t i, std::int64_t j) { return static_cast<double>(data[i * stride + j]); });
    }
  });
}

/// The first entry that is not `good`, row by row, or n at the end.
template <class Good>
std::pair<std::int64_t, std::int64_t> first_bad(std::int64_t n, std::int64_t m, MatrixView matrix, bool transposed,
                                                Good&& good) {
  std::pair<std::int64_t, std::int64_t> found{n, 0};
  with_entries(matrix, transposed, [&](auto const& at) {
    for (std::int64_t i = 0; i < n && found.first == n; ++i) {
      for (std::int64_t j = 0; j < m && found.first == n; ++j) {
        if (!good(at(i, j))) found = {i, j};
      }
    }
  });
  return found;
}

bool is_given(MatrixView matrix) {
  return matrix.rows() > 0;
}

}  // namespace

RegularizedCosts::RegularizedCosts(CostMatrix const& geometry, RegularizerTerms const& terms, std::span<double const> p,
                                   std::span<double const> q, double mass, int threads)
    : cost_(geometry.cost), transposed_(geometry.transposed), mask_(terms.mask), l1_(0), rows_(p.size()) {
  if (terms.l1 > 0) l1_weights_ = terms.l1_weights;
  scale_.mass = mass;
  survey(p, q, terms.l1, threads);
  l1_ = scale_.linear(terms.l1);
  std::iota(rows_.begin(), rows_.end(), 0);
  if (terms.group_lasso > 0) {
    std::ranges::stable_sort(rows_, {}, [&](std::int64_t i) { return terms.groups[static_cast<std::size_t>(i)]; });
  }
}

void RegularizedCosts::survey(std::span<double const> p, std::span<double const> q, double weight, int threads) {
  std::int64_t const n = std::ssize(p), m = std::ssize(q);
  constexpr std::int64_t kRows = 64;
  double least = kInfinity, most = -kInfinity;
  bool is_valid = true;
  std::vector<unsigned char> row_has(p.size(), 0), column_has(q.size(), 0);
  int const team = useful_threads(threads, n, m);
  std::vector<std::vector<unsigned char>> columns_of(static_cast<std::size_t>(team), column_has);  // One a thread.
  // What is not given is not read.
  MatrixView const given_mask = is_given(mask_) ? mask_ : cost_, given_l1 = is_given(l1_weights_) ? l1_weights_ : cost_;
  with_entries(cost_, transposed_, [&](auto const& cost) {
    with_entries(given_mask, false, [&](auto const& mask) {
      with_entries(given_l1, false, [&](auto const& l1) {
#pragma omp parallel num_threads(team) reduction(min : least) reduction(max : most) reduction(&& : is_valid)
        {
          std::vector<unsigned char>& has = columns_of[static_cast<std::size_t>(omp_get_thread_num())];
          auto const visit = [&](std::int64_t i, std::int64_t j) {
            double const c = cost(i, j);
            is_valid = is_valid && is_cost(c);
            bool allowed = c < kInfinity;
            if (is_given(mask_)) {
              is_valid = is_valid && is_mask(mask(i, j));
              allowed = allowed && mask(i, j) != 0;
            }
            double score = c;
            if (is_given(l1_weights_)) {
              is_valid = is_valid && is_l1_weight(l1(i, j));
              score += weight * l1(i, j);
            }
            if (!allowed) return;
            bool const row_counts = p[static_cast<std::size_t>(i)] > 0,
                       column_counts = q[static_cast<std::size_t>(j)] > 0;
            least = std::min(least, c);
            if (row_counts && column_counts) most = std::max(most, score);
            row_has[static_cast<std::size_t>(i)] |= column_counts;
            has[static_cast<std::size_t>(j)] |= row_counts;
          };
#pragma omp for schedule(static)
          for (std::int64_t begin = 0; begin < n; begin += kRows) {
            std::int64_t const end = std::min(begin + kRows, n);
            if (transposed_) {
              for (std::int64_t j = 0; j < m; ++j) {
                for (std::int64_t i = begin; i < end; ++i) visit(i, j);
              }
            } else {
              for (std::int64_t i = begin; i < end; ++i) {
                for (std::int64_t j = 0; j < m; ++j) visit(i, j);
              }
            }
          }
        }
      });
    });
  });
  for (std::vector<unsigned char> const& has : columns_of) {
    for (std::size_t j = 0; j < has.size(); ++j) column_has[j] |= has[j];
  }
  if (!is_valid) {
    auto const require_all = [&](MatrixView matrix, bool transposed, auto good, auto fail) {
      if (!is_given(matrix)) return;
      auto const [i, j] = first_bad(n, m, matrix, transposed, good);
      if (i < n) with_entries(matrix, transposed, [&, i = i, j = j](auto const& at) { fail(i, j, at(i, j)); });
    };
    require_all(cost_, transposed_, is_cost, throw_bad_cost);
    require_all(l1_weights_, false, is_l1_weight, throw_bad_l1_weight);
    require_all(mask_, false, is_mask, throw_bad_mask);
  }
  require_allowed_partners(Side::rows, p, row_has);
  require_allowed_partners(Side::columns, q, column_has);
  require_finite_range(least, most);
  scale_.offset = least;
  scale_.range = most > least ? most - least : 1;
}

std::vector<RowGroup> RegularizedCosts::groups(RegularizerTerms const& terms) const {
  std::vector<RowGroup> groups;
  if (terms.group_lasso == 0) return groups;
  auto const group_of = [&](std::int64_t r) {
    return static_cast<std::size_t>(terms.groups[static_cast<std::size_t>(rows_[static_cast<std::size_t>(r)])]);
  };
  double const weight = scale_.linear(terms.group_lasso);
  for (std::int64_t begin = 0, end = 0; begin < std::ssize(rows_); begin = end) {
    std::size_t const group = group_of(begin);
    while (end < std::ssize(rows_) && group_of(end) == group) ++end;
    groups.push_back({begin, end, weight * terms.group_weights[group]});
  }
  return groups;
}

void RegularizedCosts::load(Tile const& tile, double* c, double* w) const {
  // A line of memory may be a row: some rows at a time fill whole cache lines on both sides.
  constexpr std::int64_t kRows = 8;
  auto const fill = [&](MatrixView matrix, bool transposed, double* out, auto&& value) {
    with_entries(matrix, transposed, [&](auto const& at) {
      for (std::int64_t begin = 0; begin < tile.rows; begin += kRows) {
        std::int64_t const count = std::min(kRows, tile.rows - begin);
        std::int64_t const* const rows = rows_.data() + tile.row + begin;
        for (std::int64_t k = 0; k < tile.columns; ++k) {
          double* const line = out + k * tile.rows + begin;
          for (std::int64_t r = 0; r < count; ++r) line[r] = value(line[r], at(rows[r], tile.column + k));
        }
      }
    });
  };
  fill(cost_, transposed_, c,
       [offset = scale_.offset, range = scale_.range](double, double cost) { return (cost - offset) / range; });
  if (is_given(mask_)) fill(mask_, false, c, [](double cost, double mask) { return mask == 0 ? kInfinity : cost; });
  if (w == nullptr) return;
  if (is_given(l1_weights_)) {
    fill(l1_weights_, false, w, [l1 = l1_](double, double weight) { return l1 * weight; });
  } else {
    std::fill_n(w, tile.size(), 0.0);
  }
}

}  // namespace monge::cpu
