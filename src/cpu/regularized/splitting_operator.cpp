#include "cpu/regularized/splitting_operator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/compensated_sum.hpp"
#include "core/numbers.hpp"
#include "cpu/regularized/separable_pass.hpp"
#include "cpu/runtime/threads.hpp"
#include "regularized/regularized_costs.hpp"

namespace monge::cpu {
namespace {

/// Whole cache lines, an odd number, so that neighbouring columns lie in different sets of a cache.
template <class T>
std::int64_t column_stride(std::int64_t rows) {
  constexpr std::int64_t kLine = padded_to_vectors<T>(1);
  return (padded_to_vectors<T>(rows) / kLine | 1) * kLine;
}

/// Room for columns, and for a vector that begins at the end of the last one.
template <class T>
AlignedArray<T> array_of_columns(std::int64_t stride, std::int64_t columns) {
  return aligned_array<T>(stride * columns + padded_to_vectors<T>(1));
}

std::int64_t blocks_of(std::int64_t columns) {
  return (columns + kColumnsOfRowSum - 1) / kColumnsOfRowSum;
}

double sum_of(std::vector<double> const& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

std::vector<double> in_order(std::vector<double> const& values, std::vector<std::int64_t> const& rows) {
  std::vector<double> result;
  result.reserve(rows.size());
  for (std::int64_t const i : rows) result.push_back(values[to_size(i)]);
  return result;
}

}  // namespace

template <class T>
SplittingOperator<T>::Points::Points(std::vector<double> shares)
    : share(std::move(shares)),
      marginal(share.size(), 0.0),
      sum(share.size(), 0.0),
      potential(share.size(), 0.0),
      packed(aligned_array<T>(padded_to_vectors<T>(size()) + padded_to_vectors<T>(1))) {
  std::fill_n(packed.get(), padded_to_vectors<T>(size()) + padded_to_vectors<T>(1), T(0));
}

template <class T>
void SplittingOperator<T>::Points::copy(Points const& from) {
  marginal = from.marginal;
  sum = from.sum;
  potential = from.potential;
  std::copy_n(from.packed.get(), padded_to_vectors<T>(size()), packed.get());
}

template <class T>
void SplittingOperator<T>::Points::set_potential(std::int64_t i, double value) {
  potential[to_size(i)] = value;
  packed[to_size(i)] = static_cast<T>(value);
}

template <class T>
void SplittingOperator<T>::Points::update(std::int64_t i, SplittingUpdate const& rule) {
  std::size_t const k = to_size(i);
  SplittingPoint const point = rule(sum[k], marginal[k] - share[k]);
  sum[k] = point.sum;
  set_potential(i, point.potential);
}

template <class T>
SplittingOperator<T>::State::State(std::int64_t stride, std::vector<double> p, std::vector<double> q)
    : plan(array_of_columns<T>(stride, std::ssize(q))), rows(std::move(p)), columns(std::move(q)) {}

template <class T>
SplittingOperator<T>::SplittingOperator(std::shared_ptr<RegularizedCosts const> costs, int threads)
    : ReadableOperator(costs, useful_threads(threads, costs->rows(), costs->columns())),
      terms_(costs_.terms(), this->scale(), costs_.groups(), costs_.pair_groups()),
      stride_(column_stride<T>(this->rows())),
      packed_costs_(array_of_columns<T>(stride_, this->columns())),
      row_sums_(aligned_array<T>(blocks_of(this->columns()) * stride_)),
      now_(stride_, in_order(costs_.of(Side::rows).share, costs_.order()), costs_.of(Side::columns).share) {
  pack(packed_costs_.get(), std::numeric_limits<T>::infinity(),
       [this](Tile const& tile, double* s) { costs_.load_sum(tile, s); });
}

template <class T>
template <class Load>
void SplittingOperator<T>::pack(T* to, T padding, Load&& load) const {
  std::int64_t const n = this->rows(), m = this->columns();
  constexpr std::int64_t kRows = 64, kColumns = 16;
  parallel_ranges(threads_, (m + kColumns - 1) / kColumns, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) double buffer[kRows * kColumns];
    for (std::int64_t column = begin * kColumns; column < std::min(end * kColumns, m); column += kColumns) {
      for (std::int64_t row = 0; row < n; row += kRows) {
        Tile const tile{row, std::min(kRows, n - row), column, std::min(kColumns, m - column)};
        load(tile, buffer);
        for (std::int64_t k = 0; k < tile.columns; ++k) {
          T* const packed = to + (column + k) * stride_ + row;
          for (std::int64_t r = 0; r < tile.rows; ++r) packed[r] = static_cast<T>(buffer[k * tile.rows + r]);
        }
      }
      for (std::int64_t j = column; j < std::min(column + kColumns, m); ++j)
        std::fill(to + j * stride_ + n, to + (j + 1) * stride_, padding);
    }
  });
}

template <class T>
void SplittingOperator<T>::start(double step) {
  std::int64_t const n = this->rows(), m = this->columns();
  double const total = static_cast<double>(n + m);
  now_.step = step;
  feasible_.clear();
  for_each_column([&](std::int64_t begin) { std::fill_n(now_.plan.get() + begin, stride_, T(0)); });
  std::ranges::fill(now_.rows.marginal, 0.0);
  std::ranges::fill(now_.columns.marginal, 0.0);
  for (std::int64_t r = 0; r < n; ++r) now_.rows.set_potential(r, step * static_cast<double>(m) / total);
  for (std::int64_t j = 0; j < m; ++j) now_.columns.set_potential(j, step * static_cast<double>(n) / total);
  sum_terms();
}

template <class T>
void SplittingOperator<T>::begin_from(SplittingStart const& from) {
  feasible_.clear();
  std::int64_t const n = this->rows(), m = this->columns();
  auto const at = [](auto& values, std::int64_t i) -> auto& {
    return values[to_size(i)];
  };
  if (!from.u.empty()) {
    for (std::int64_t r = 0; r < n; ++r) now_.rows.set_potential(r, now_.step * at(from.u, problem_row(r)));
    for (std::int64_t j = 0; j < m; ++j) now_.columns.set_potential(j, now_.step * at(from.v, j));
  }
  if (from.plan.rows() > 0) {
    pack(now_.plan.get(), T(0), [&](Tile const& tile, double* x) { costs_.load_plan(from.plan, tile, x); });
    std::vector<double> sums(to_size(n));
    sum_entries(*this, 1, Side::rows, sums, threads_);
    sum_entries(*this, 1, Side::columns, now_.columns.marginal, threads_);
    require_finite_start(sums, now_.columns.marginal);
    for (std::int64_t r = 0; r < n; ++r) at(now_.rows.marginal, r) = at(sums, problem_row(r));
  }
  sum_terms();
}

template <class T>
void SplittingOperator<T>::set_step(double step) {
  double const factor = step / now_.step;
  for (Points* const points : {&now_.rows, &now_.columns}) {
    for (std::int64_t i = 0; i < points->size(); ++i) points->set_potential(i, factor * points->potential[to_size(i)]);
  }
  now_.step = step;
  sum_terms();
}

/// Computes a, b and alpha, the sums of Y = X + phi 1^T + 1 psi^T, from X and the potentials.
template <class T>
void SplittingOperator<T>::sum_terms() {
  double const n = static_cast<double>(this->rows()), m = static_cast<double>(this->columns());
  double const phi = sum_of(now_.rows.potential), psi = sum_of(now_.columns.potential);
  auto const sum_side = [](Points& points, double others, double of_others) {
    for (std::size_t i = 0; i < points.sum.size(); ++i)
      points.sum[i] = points.marginal[i] + others * points.potential[i] + of_others - points.share[i];
  };
  sum_side(now_.rows, m, psi);
  sum_side(now_.columns, n, phi);
  now_.alpha = sum_of(now_.columns.marginal) + m * phi + n * psi - 1;
}

/// Marginals of the rows in [begin, end) from the sums of the blocks of columns, in order.
template <class T>
void SplittingOperator<T>::join_row_sums(std::int64_t begin, std::int64_t end, std::int64_t blocks) {
  std::fill(now_.rows.marginal.begin() + begin, now_.rows.marginal.begin() + end, 0.0);
  for (std::int64_t block = 0; block < blocks; ++block) {
    T const* const sums = row_sums_.get() + block * stride_;
    for (std::int64_t r = begin; r < end; ++r) now_.rows.marginal[to_size(r)] += static_cast<double>(sums[r]);
  }
}

/// The thresholds of the groups of rows at the present step, padded.
template <class T>
std::vector<T> SplittingOperator<T>::group_thresholds() const {
  std::vector<T> thresholds;
  for (RowGroup const& group : terms_.groups) thresholds.push_back(static_cast<T>(now_.step * group.weight));
  thresholds.resize(to_size(padded_to_vectors<T>(std::ssize(thresholds))));
  return thresholds;
}

/// A pass at the present step; it refers to both arguments.
template <class T>
SplittingPass<T> SplittingOperator<T>::plain_pass(std::span<std::int64_t const> group_begin,
                                                  std::span<T const> thresholds) const {
  EntryProx<T> const prox{static_cast<T>(1 / (1 + now_.step * terms_.quadratic)),
                          static_cast<T>(now_.step * terms_.hypentropy), static_cast<T>(terms_.width)};
  return {PassKind::plain,
          now_.plan.get(),
          packed_costs_.get(),
          stride_,
          this->rows(),
          static_cast<T>(now_.step),
          now_.rows.packed.get(),
          now_.columns.packed.get(),
          prox,
          group_begin,
          thresholds};
}

template <class T>
void SplittingOperator<T>::iterate(int count) {
  std::int64_t const n = this->rows(), m = this->columns(), blocks = blocks_of(m);
  feasible_.clear();
  std::vector<std::int64_t> group_begin;
  for (RowGroup const& group : terms_.groups) group_begin.push_back(group.begin);
  group_begin.push_back(n);
  std::vector<T> const thresholds = group_thresholds();
  SplittingPass<T> const plain = plain_pass(group_begin, thresholds);
  std::int64_t const scratch_size = plain.scratch_size();
  T* const scratch = scratch_.at_least(scratch_size * threads_);
  PairGroups const* const pairs = terms_.pair_groups.get();
  std::vector<double> squares(to_size(pairs ? pairs->parts() : 0)), factors(to_size(pairs ? pairs->groups() : 0));
  double const first_alpha = now_.alpha;
  Failures failures;
  on_team(threads_, [&](int thread, int size) {
    auto const for_own = [&](std::int64_t items, auto const& work) {
      for (std::int64_t i = items * thread / size; i < items * (thread + 1) / size; ++i) work(i);
    };
    auto const for_each = [&](std::int64_t items, auto const& work) {
      for_own(items, work);
      if (size > 1) {
#pragma omp barrier
      }
    };
    SplittingPass<T> pass = plain;
    double alpha = first_alpha;  // The same in each thread.
    for (int k = 0; k < count; ++k) {
      if (!terms_.separable && !pairs)
        pass.kind = k % 2 == 1       ? PassKind::from_difference
                    : k == count - 1 ? PassKind::plain
                                     : PassKind::keep_difference;
      if (pairs) {
        for_each(blocks, [&](std::int64_t block) {
          std::int64_t const first = block * kColumnsOfRowSum;
          leave_parts(pass, *pairs, first, std::min(kColumnsOfRowSum, m - first), squares);
        });
        for_each(pairs->groups(), [&](std::int64_t g) {
          double const norm = std::sqrt(pairs->total(g, squares)), threshold = now_.step * pairs->weight(g);
          factors[to_size(g)] = group_factor(norm, threshold) / (1 + now_.step * terms_.quadratic);
        });
      }
      for_each(blocks, [&](std::int64_t block) {
        std::int64_t const first = block * kColumnsOfRowSum;
        std::int64_t const columns = std::min(kColumnsOfRowSum, m - first);
        T* const row_sums = row_sums_.get() + block * stride_;
        double* const column_sums = now_.columns.marginal.data() + first;
        if (terms_.separable) {  // Allocates. No later step throws before the next barrier.
          failures.guard(block,
                         [&] { separable_pass(pass, *terms_.separable, first, columns, row_sums, column_sums); });
        } else if (pairs) {
          shrink_parts(pass, *pairs, factors, first, columns, row_sums, column_sums);
        } else {
          pass_over_columns(pass, first, columns, row_sums, column_sums, scratch + scratch_size * thread);
        }
      });
      if (failures.any()) return;

      double const excess = sum_of(now_.columns.marginal) - 1;
      double const shift = splitting_shift(excess, alpha, static_cast<double>(n), static_cast<double>(m));
      alpha -= excess;
      constexpr std::int64_t kRows = 512;
      for_own((n + kRows - 1) / kRows, [&](std::int64_t range) {
        std::int64_t const begin = range * kRows, end = std::min(begin + kRows, n);
        join_row_sums(begin, end, blocks);
        for (std::int64_t r = begin; r < end; ++r) now_.rows.update(r, {shift, static_cast<double>(m)});
      });
      for_each(m, [&](std::int64_t j) { now_.columns.update(j, {shift, static_cast<double>(n)}); });
    }
    if (thread == 0) now_.alpha = alpha;
  });
  failures.rethrow();
}

template <class T>
SplittingResidual SplittingOperator<T>::residual() {
  auto const squares = [](Points const& points) {
    CompensatedSum sum;
    for (std::size_t i = 0; i < points.share.size(); ++i) {
      double const excess = points.marginal[i] - points.share[i];
      sum.add(excess * excess);
    }
    return sum.value();
  };
  std::vector<std::int64_t> nonzeros(to_size(this->columns()));
  for_each_column([&](std::int64_t begin) {
    T const* const x = now_.plan.get() + begin;
    std::int64_t count = 0;
#pragma omp simd reduction(+ : count)
    for (std::int64_t r = 0; r < stride_; ++r) count += x[r] != T(0);
    nonzeros[to_size(begin / stride_)] = count;
  });
  return {squares(now_.rows), squares(now_.columns),
          std::accumulate(nonzeros.begin(), nonzeros.end(), std::int64_t{0})};
}

template <class T>
void SplittingOperator<T>::keep(Spare spare) {
  std::optional<State>& kept = spares_[static_cast<std::size_t>(spare)];
  if (!kept) kept.emplace(stride_, now_.rows.share, now_.columns.share);
  for_each_column([&](std::int64_t begin) { std::copy_n(now_.plan.get() + begin, stride_, kept->plan.get() + begin); });
  for (Points State::*side : {&State::rows, &State::columns}) ((*kept).*side).copy(now_.*side);
  kept->alpha = now_.alpha;
  kept->step = now_.step;
}

template <class T>
void SplittingOperator<T>::exchange(Spare spare) {
  std::swap(now_, *spares_[static_cast<std::size_t>(spare)]);
  feasible_.clear();
}

template <class T>
void SplittingOperator<T>::approach(Spare spare, double share) {
  State& kept = *spares_[static_cast<std::size_t>(spare)];
  for_each_column([&](std::int64_t begin) {
    T* const to = kept.plan.get() + begin;
    T const* const from = now_.plan.get() + begin;
    T const part = static_cast<T>(share);
    for (std::int64_t r = 0; r < stride_; ++r) to[r] += part * (from[r] - to[r]);
  });
  auto const approach_all = [share](std::vector<double>& to, std::vector<double> const& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += share * (from[i] - to[i]);
  };
  for (Points State::*side : {&State::rows, &State::columns}) {
    approach_all((kept.*side).marginal, (now_.*side).marginal);
    approach_all((kept.*side).potential, (now_.*side).potential);
  }
}

template <class T>
SplittingDistance SplittingOperator<T>::distance(Spare spare) {
  State const& kept = *spares_[static_cast<std::size_t>(spare)];
  std::vector<double> squares(to_size(this->columns()));
  for_each_column([&](std::int64_t begin) {
    double sum = 0;
    for (std::int64_t r = 0; r < stride_; ++r) {
      double const difference =
          static_cast<double>(now_.plan[to_size(begin + r)]) - static_cast<double>(kept.plan[to_size(begin + r)]);
      sum += difference * difference;
    }
    squares[to_size(begin / stride_)] = sum;
  });
  auto const moved = [this](Points const& to, Points const& from) {
    std::vector<double> by = to.potential;
    for (std::size_t i = 0; i < by.size(); ++i) by[i] = (by[i] - from.potential[i]) / now_.step;
    return by;
  };
  return {std::sqrt(sum_of(squares)),
          norm_of_sums(moved(now_.rows, kept.rows), moved(now_.columns, kept.columns),
                       static_cast<double>(this->rows()), static_cast<double>(this->columns()))};
}

template <class T>
std::vector<double> SplittingOperator<T>::dual_rows() const {
  std::vector<double> u = now_.rows.potential;
  for (double& value : u) value /= now_.step;
  return u;
}

template <class T>
std::vector<double> SplittingOperator<T>::dual_columns() const {
  if (!feasible_.empty()) return feasible_;
  std::vector<double> v = now_.columns.potential;
  for (double& value : v) value /= now_.step;
  return v;
}

template <class T>
RegularizedValues SplittingOperator<T>::evaluate() {
  std::vector<double> const u = dual_rows();
  auto const evaluate_at = [&](DualBound bound) {
    std::vector<double> v = dual_columns();
    RegularizedValues const values =
        evaluate_entries(*this, terms_, {now_.rows.share, now_.columns.share, u, v}, bound, threads_);
    if (bound == DualBound::without_slack) feasible_ = std::move(v);
    return values;
  };
  // The user's term may have no conjugate, and so no dual value.
  if (terms_.separable && !terms_.separable->has_conjugate()) return evaluate_at(DualBound::of_conjugate);
  return with_useful_bound(terms_.has_finite_conjugate(), evaluate_at);
}

template <class T>
void SplittingOperator<T>::potentials(MutableVectorView u, MutableVectorView v) const {
  std::vector<double> rows = dual_rows(), columns = dual_columns();
  double const depth = this->scale().depth / this->scale().range;
  auto const lower_idle = [depth](Points const& points, std::vector<double>& potential) {
    for (std::size_t i = 0; i < potential.size(); ++i) {
      if (points.share[i] == 0) potential[i] -= depth;
    }
  };
  lower_idle(now_.rows, rows);
  lower_idle(now_.columns, columns);
  std::vector<double> of_problem(rows.size());
  for (std::size_t r = 0; r < rows.size(); ++r)
    of_problem[to_size(problem_row(static_cast<std::int64_t>(r)))] = rows[r];
  write_potential(this->scale(), of_problem, u);
  write_potential(this->scale(), columns, v);
}

template <class T>
void SplittingOperator<T>::load(Tile const& tile, double* x, double* c, double* w) const {
  for (std::int64_t k = 0; k < tile.columns; ++k) {
    T const* const column = now_.plan.get() + (tile.column + k) * stride_ + tile.row;
    for (std::int64_t r = 0; r < tile.rows; ++r) x[k * tile.rows + r] = static_cast<double>(column[r]);
  }
  if (c != nullptr) costs_.load_whole(tile, c);
  if (w != nullptr) costs_.load_l1(tile, w);
}

template class SplittingOperator<float>;
template class SplittingOperator<double>;

}  // namespace monge::cpu
