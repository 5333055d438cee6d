#include "second_order/sparse_factor.hpp"

#include <cholmod.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include <monge/error.hpp>

namespace monge {
namespace {

/// Silent, and with the simplicial Cholesky factorisation for every matrix: those of a plan's largest entries fill in
/// too little for dense blocks to pay.
class Session {
 public:
  Session() {
    cholmod_l_start(&common_);
    common_.print = 0;
    common_.supernodal = CHOLMOD_SIMPLICIAL;
    common_.final_ll = 1;
    common_.quick_return_if_not_posdef = 1;
    common_.nmethods = 1;
    common_.method[0].ordering = CHOLMOD_AMD;
    common_.grow2 = 0;  // The counts of the analysis are exact: no column needs room to grow.
  }
  ~Session() { cholmod_l_finish(&common_); }
  Session(Session const&) = delete;
  Session& operator=(Session const&) = delete;

  cholmod_common* get() { return &common_; }

  /// Throws for what the last call met. That a matrix is not positive definite is a warning, and the caller's affair.
  void check() {
    if (common_.status >= CHOLMOD_OK) return;
    if (common_.status == CHOLMOD_OUT_OF_MEMORY || common_.status == CHOLMOD_TOO_LARGE) {
      throw Error(ErrorCode::out_of_memory, "sparse factor: the memory of the host does not hold it");
    }
    throw Error(ErrorCode::invalid_argument, "sparse factor: CHOLMOD does not take the matrix");
  }

 private:
  cholmod_common common_;
};

bool all_finite(std::span<double const> values) {
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

}  // namespace

struct SparseFactor::State {
  std::int64_t n, m;
  Session session{};
  cholmod_sparse* matrix = nullptr;  // Its lower triangle by columns: unknown i < n has its diagonal, then its pairs.
  cholmod_factor* factor = nullptr;
  std::vector<std::int64_t> slots{};  // Where the value of each pair lies in the matrix.
  mutable cholmod_dense *right = nullptr, *solution = nullptr, *work = nullptr, *more_work = nullptr;

  State(std::int64_t rows, std::int64_t columns) : n(rows), m(columns) {}
  ~State() {
    cholmod_common* const common = session.get();
    for (cholmod_dense** dense : {&right, &solution, &work, &more_work}) cholmod_l_free_dense(dense, common);
    cholmod_l_free_factor(&factor, common);
    cholmod_l_free_sparse(&matrix, common);
  }

  double* values() { return static_cast<double*>(matrix->x); }

  void set_pattern(std::span<std::int64_t const> rows, std::span<std::int64_t const> columns) {
    auto const size = static_cast<std::size_t>(n + m);
    matrix = cholmod_l_allocate_sparse(size, size, size + rows.size(), /*sorted=*/0, /*packed=*/1, /*stype=*/-1,
                                       CHOLMOD_REAL, session.get());
    session.check();
    auto* const begin = static_cast<SuiteSparse_long*>(matrix->p);
    auto* const index = static_cast<SuiteSparse_long*>(matrix->i);
    std::fill(begin, begin + size + 1, 0);
    for (std::int64_t const i : rows) ++begin[i + 1];
    for (std::size_t k = 0; k < size; ++k) begin[k + 1] += begin[k] + 1;
    std::vector<std::int64_t> next(size);
    for (std::size_t k = 0; k < size; ++k) {
      index[begin[k]] = static_cast<SuiteSparse_long>(k);
      next[k] = begin[k] + 1;
    }
    slots.reserve(rows.size());
    for (std::size_t k = 0; k < rows.size(); ++k) {
      std::int64_t const slot = next[static_cast<std::size_t>(rows[k])]++;
      index[slot] = n + columns[k];
      slots.push_back(slot);
    }
  }
};

SparseFactor::SparseFactor(std::int64_t n, std::int64_t m, std::span<std::int64_t const> rows,
                           std::span<std::int64_t const> columns)
    : state_(std::make_unique<State>(n, m)) {
  state_->set_pattern(rows, columns);
  state_->factor = cholmod_l_analyze(state_->matrix, state_->session.get());
  state_->session.check();
  auto const size = static_cast<std::size_t>(n + m);
  state_->right = cholmod_l_allocate_dense(size, 1, size, CHOLMOD_REAL, state_->session.get());
  state_->session.check();
}
SparseFactor::~SparseFactor() = default;
SparseFactor::SparseFactor(SparseFactor&&) noexcept = default;
SparseFactor& SparseFactor::operator=(SparseFactor&&) noexcept = default;

bool SparseFactor::factor(std::span<double const> diagonal_rows, std::span<double const> diagonal_columns,
                          std::span<double const> entries) {
  State& state = *state_;
  if (!all_finite(diagonal_rows) || !all_finite(diagonal_columns) || !all_finite(entries)) return false;
  auto const* const begin = static_cast<SuiteSparse_long const*>(state.matrix->p);
  double* const values = state.values();
  for (std::size_t i = 0; i < diagonal_rows.size(); ++i) values[begin[i]] = diagonal_rows[i];
  for (std::size_t j = 0; j < diagonal_columns.size(); ++j)
    values[begin[diagonal_rows.size() + j]] = diagonal_columns[j];
  for (std::size_t k = 0; k < entries.size(); ++k) values[state.slots[k]] = entries[k];
  cholmod_l_factorize(state.matrix, state.factor, state.session.get());
  state.session.check();
  return state.session.get()->status != CHOLMOD_NOT_POSDEF;
}

void SparseFactor::solve(std::span<double> rows, std::span<double> columns) const {
  State& state = *state_;
  auto* const right = static_cast<double*>(state.right->x);
  std::copy(columns.begin(), columns.end(), std::copy(rows.begin(), rows.end(), right));
  cholmod_l_solve2(CHOLMOD_A, state.factor, state.right, nullptr, &state.solution, nullptr, &state.work,
                   &state.more_work, state.session.get());
  state.session.check();
  auto const* const solution = static_cast<double const*>(state.solution->x);
  std::copy_n(solution, rows.size(), rows.begin());
  std::copy_n(solution + rows.size(), columns.size(), columns.begin());
}

std::int64_t SparseFactor::nonzeros() const {
  auto const* const counts = static_cast<SuiteSparse_long const*>(state_->factor->ColCount);
  std::int64_t total = 0;
  for (std::int64_t k = 0; k < state_->n + state_->m; ++k) total += counts[k];
  return total;
}

double SparseFactor::operations() const {
  auto const* const counts = static_cast<SuiteSparse_long const*>(state_->factor->ColCount);
  double total = 0;
  for (std::int64_t k = 0; k < state_->n + state_->m; ++k)
    total += 0.5 * static_cast<double>(counts[k]) * static_cast<double>(counts[k]);
  return total;
}

}  // namespace monge
