#include "second_order/sparse_factor.hpp"

// The code of Eigen depends on compiler flags. Another name for its namespace keeps the linker from merging it with the
// Eigen of a program that uses this library.
#define Eigen monge_eigen
#define EIGEN_MPL2_ONLY
#include <Eigen/SparseCholesky>

#include <algorithm>
#include <functional>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/error.hpp>

#include "core/numbers.hpp"

namespace monge {
namespace {

using Index = std::int64_t;
using Matrix = Eigen::SparseMatrix<double, Eigen::ColMajor, Index>;

/// The position of each unknown in an order of elimination that makes little fill.
std::vector<Index> places_by_minimum_degree(Matrix const& upper) {
  Eigen::PermutationMatrix<Eigen::Dynamic, Eigen::Dynamic, Index> order;
  Eigen::AMDOrdering<Index>()(upper.selfadjointView<Eigen::Upper>(), order);
  std::vector<Index> places(to_size(upper.cols()));
  for (std::size_t k = 0; k < places.size(); ++k)
    places[to_size(order.indices()[static_cast<Index>(k)])] = static_cast<Index>(k);
  return places;
}

/// The nonzeros of each column of L, the diagonal included. Row k of L has them at the unknowns on the paths of the
/// elimination tree that lead from the entries of row k of the matrix to k.
std::vector<Index> factor_counts(Matrix const& upper) {
  Index const size = upper.cols();
  std::vector<Index> counts(to_size(size), 1);
  std::vector<Index> parents(counts.size(), -1), seen(counts.size(), -1);  // seen: the last row with a nonzero there.
  for (Index k = 0; k < size; ++k) {
    seen[k] = k;
    for (Matrix::InnerIterator entry(upper, k); entry; ++entry) {
      for (Index j = entry.row(); seen[j] != k; j = parents[j]) {
        if (parents[j] < 0) parents[j] = k;
        ++counts[j];
        seen[j] = k;
      }
    }
  }
  return counts;
}

}  // namespace

struct SparseFactor::State {
  std::vector<Index> places;  // The position of each unknown in the order of elimination.
  Matrix matrix;              // The upper triangle in this order.
  std::vector<Index> slots;   // The index in `matrix` of each unknown's diagonal, then of each pair.
  std::vector<Index> counts;  // The nonzeros of each column of the factor.
  Eigen::SimplicialLDLT<Matrix, Eigen::Upper, Eigen::NaturalOrdering<Index>> factor;
  bool has_memory = false;  // Whether the factor has its memory.
  mutable Eigen::VectorXd solution;

  State(Index n, Index m, std::span<Index const> rows, std::span<Index const> columns) : places(to_size(n + m)) {
    std::iota(places.begin(), places.end(), Index{0});
    set_pattern(n, rows, columns);
    places = places_by_minimum_degree(matrix);
    set_pattern(n, rows, columns);
    counts = factor_counts(matrix);
    solution.resize(n + m);
  }

  void set_pattern(Index n, std::span<Index const> rows, std::span<Index const> columns) {
    auto const size = std::ssize(places);
    std::vector<std::pair<Index, Index>> entries;  // (row, column), by places.
    entries.reserve(places.size() + rows.size());
    for (Index const place : places) entries.emplace_back(place, place);
    for (std::size_t k = 0; k < rows.size(); ++k)
      entries.push_back(std::minmax({places[rows[k]], places[n + columns[k]]}));
    matrix.resize(size, size);
    matrix.resizeNonZeros(std::ssize(entries));
    Index* const begin = matrix.outerIndexPtr();
    std::fill_n(begin, size + 1, Index{0});
    for (auto const& [row, column] : entries) ++begin[column + 1];
    std::partial_sum(begin, begin + size + 1, begin);
    std::vector<Index> next(begin, begin + size);
    slots.clear();
    for (auto const& [row, column] : entries) {
      slots.push_back(next[column]++);
      matrix.innerIndexPtr()[slots.back()] = row;
    }
  }

  void allocate_factor(Index nonzeros) try {
    factor.analyzePattern(matrix);
    has_memory = true;
  } catch (std::bad_alloc const&) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("sparse factor: {} nonzeros do not fit into host memory", nonzeros));
  }
};

SparseFactor::SparseFactor(std::int64_t n, std::int64_t m, std::span<std::int64_t const> rows,
                           std::span<std::int64_t const> columns)
    : state_(std::make_unique<State>(n, m, rows, columns)) {}
SparseFactor::~SparseFactor() = default;
SparseFactor::SparseFactor(SparseFactor&&) noexcept = default;
SparseFactor& SparseFactor::operator=(SparseFactor&&) noexcept = default;

bool SparseFactor::factor(std::span<double const> diagonal_rows, std::span<double const> diagonal_columns,
                          std::span<double const> entries) {
  State& state = *state_;
  auto slot = state.slots.begin();
  for (auto const values : {diagonal_rows, diagonal_columns, entries}) {
    for (double const value : values) state.matrix.valuePtr()[*slot++] = value;
  }
  if (!state.has_memory) state.allocate_factor(nonzeros());
  state.factor.factorize(state.matrix);
  if (state.factor.info() != Eigen::Success) return false;
  Eigen::VectorXd const pivots = state.factor.vectorD();  // A value that is not finite reaches one of them.
  return pivots.allFinite() && (pivots.array() > 0).all();
}

void SparseFactor::solve(std::span<double> rows, std::span<double> columns) const {
  Eigen::VectorXd& solution = state_->solution;
  auto place = state_->places.begin();
  for (auto const values : {rows, columns}) {
    for (double const value : values) solution[*place++] = value;
  }
  solution = state_->factor.solve(solution);
  place = state_->places.begin();
  for (auto const values : {rows, columns}) {
    for (double& value : values) value = solution[*place++];
  }
}

std::int64_t SparseFactor::nonzeros() const {
  return std::accumulate(state_->counts.begin(), state_->counts.end(), Index{0});
}

double SparseFactor::operations() const {
  return std::transform_reduce(state_->counts.begin(), state_->counts.end(), 0.0, std::plus<>(), [](Index count) {
    return 0.5 * static_cast<double>(count) * static_cast<double>(count);
  });
}

}  // namespace monge
