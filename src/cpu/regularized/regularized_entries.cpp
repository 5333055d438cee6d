#include "cpu/regularized/regularized_entries.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "core/compensated_sum.hpp"
#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/require.hpp"
#include "core/strided.hpp"
#include "cpu/regularized/pair_groups.hpp"
#include "cpu/runtime/memory.hpp"
#include "cpu/runtime/threads.hpp"
#include "regularized/splitting_rule.hpp"

namespace monge::cpu {
namespace {

// Columns in memory at once when all their rows are: a cache line of float32 costs.
constexpr std::int64_t kWholeColumns = 16;
// Columns for each partial sum of rows, so that sums do not depend on the number of threads.
constexpr std::int64_t kColumnsOfSum = 64;
// Sides of the tiles of other reads.
constexpr std::int64_t kTile = 64;

struct ColumnValues {
  double mass = 0, cost = 0, regularization = 0, conjugate = 0;
  std::int64_t nonzeros = 0;
};

/// The sum of values(r) for rows [0, rows).
template <class Value>
double sum_rows(std::int64_t rows, Value&& value) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t r = 0; r < rows; ++r) sum += value(r);
  return sum;
}

/// One column in units of a source: X, S = C + lambda_1 W, and the potentials of its rows.
struct Column {
  std::int64_t rows;
  double const* x;
  double const* s;
  double const* u;

  /// [u_r + v - S_r]_+
  double slack(std::int64_t r, double v) const { return std::max(u[r] + v - s[r], 0.0); }
  double slack_squares(RowGroup const& group, double v) const {
    return sum_rows(group.end - group.begin, [&](std::int64_t k) {
      double const z = slack(group.begin + k, v);
      return z * z;
    });
  }
  /// min (S_r - u_r), +infinity if no pair is allowed.
  double least_reduced_cost(RowGroup const& group) const {
    double least = kInfinity;
    for (std::int64_t r = group.begin; r < group.end; ++r) least = std::min(least, s[r] - u[r]);
    return least;
  }
};

/// The largest v <= `most` for which the norm of a group's slacks is at most its weight. The norm is convex in v, so
/// Newton's method decreases from any larger v. One is the least reduced cost plus the weight: there a single pair has
/// that norm.
double largest_feasible(Column const& column, RowGroup const& group, double most) {
  double const least = column.least_reduced_cost(group);
  if (group.weight == 0 || least == kInfinity) return std::min(most, least);
  double v = std::min(most, least + group.weight);
  for (int k = 0; k < 100; ++k) {
    double const norm = std::sqrt(column.slack_squares(group, v));
    if (norm <= group.weight) break;
    double const slope =
        sum_rows(group.end - group.begin, [&](std::int64_t r) { return column.slack(group.begin + r, v); }) / norm;
    double const next = v - (norm - group.weight) / slope;
    if (!(next < v)) break;
    v = next;
  }
  return v;
}

double largest_feasible(Column const& column, EntryTerms const& terms) {
  double v = kInfinity;
  if (terms.groups.empty()) v = column.least_reduced_cost({0, column.rows, 0});
  for (RowGroup const& group : terms.groups) v = largest_feasible(column, group, v);
  return v == kInfinity ? 0 : v;
}

/// sqrt(x^2 + beta^2) - beta, without cancellation.
double root_above(double x, double beta) {
  return x * (x / (std::hypot(x, beta) + beta));
}

/// h of the column, without l1 and groups of pairs.
double regularization(Column const& column, EntryTerms const& terms) {
  double const* const x = column.x;
  double sum = 0;
  if (terms.quadratic > 0)
    sum += terms.quadratic / 2 * sum_rows(column.rows, [&](std::int64_t r) { return x[r] * x[r]; });
  for (RowGroup const& group : terms.groups) {
    double const squares =
        sum_rows(group.end - group.begin, [&](std::int64_t r) { return x[group.begin + r] * x[group.begin + r]; });
    sum += group.weight * std::sqrt(squares);
  }
  if (terms.hypentropy > 0) {
    double entropy = 0;
    for (std::int64_t r = 0; r < column.rows; ++r) {
      if (x[r] != 0) entropy += x[r] * std::asinh(x[r] / terms.width) - root_above(x[r], terms.width);
    }
    sum += terms.hypentropy * entropy;
  }
  return sum;
}

/// h* of the slacks of a group, or of a column without groups, with hypentropy: the sum over entries of the conjugate
/// of the other terms at z - weight x / |x|_2, where x maximises z x - h(x).
double hypentropy_conjugate(Column const& column, RowGroup const& group, EntryTerms const& terms, double v) {
  EntryProx<double> rule{1 / terms.quadratic, terms.hypentropy, terms.width};
  double const norm = std::sqrt(column.slack_squares(group, v));
  if (norm <= group.weight) return 0;
  if (group.weight > 0) {
    std::int64_t count = 0;
    for (std::int64_t r = group.begin; r < group.end; ++r) count += column.slack(r, v) > 0;
    GroupNorm<double> const of_group{rule, group.weight};
    double const root = of_group.solve(norm, static_cast<double>(count), [&](EntryProx<double> const& of_root) {
      GroupNorm<double>::Sums sums;
      for (std::int64_t r = group.begin; r < group.end; ++r) {
        double const z = column.slack(r, v);
        if (z > 0) sums.add(rule, of_root, of_root(z));
      }
      return sums;
    });
    rule = rule.within_group(group.weight, root);
  }
  double sum = 0;
  for (std::int64_t r = group.begin; r < group.end; ++r) {
    double const z = column.slack(r, v);
    if (z == 0) continue;
    double const x = rule(z);
    sum += terms.quadratic / 2 * x * x + terms.hypentropy * root_above(x, terms.width);
  }
  return sum;
}

/// h*(u + v - C) of the column, for a quadratic term or hypentropy.
double conjugate(Column const& column, EntryTerms const& terms, double v) {
  RowGroup const all{0, column.rows, 0};
  std::span<RowGroup const> const groups = terms.groups.empty() ? std::span(&all, 1) : std::span(terms.groups);
  double sum = 0;
  for (RowGroup const& group : groups) {
    if (terms.hypentropy > 0) {
      sum += hypentropy_conjugate(column, group, terms, v);
    } else {
      double const excess = std::max(std::sqrt(column.slack_squares(group, v)) - group.weight, 0.0);
      sum += excess * excess / (2 * terms.quadratic);
    }
  }
  return sum;
}

/// Adds the values of the user's term and of its conjugate.
void add_separable(Column const& column, EntryTerms const& terms, double v, ColumnValues& values) {
  std::vector<double> x, z;
  for (std::int64_t r = 0; r < column.rows; ++r) {
    double const slack = column.slack(r, v);
    if (column.x[r] == 0 && slack == 0) continue;
    x.push_back(column.x[r]);
    z.push_back(slack);
  }
  SeparableFunctions::Sums const sums = terms.separable->sums(x, z);
  values.regularization += sums.value;
  values.conjugate += sums.conjugate;
}

/// Values of a column with entries x, costs c, and potentials u and v. Adds the weights w to c unless they are null.
/// Replaces v by the largest feasible one if the bound allows no slack. With groups of pairs, which columns share, h of
/// the group lasso is missing, and the bound is left to PairEvaluation.
ColumnValues values_of(std::int64_t rows, double const* x, double* c, double const* w, double const* u, double& v,
                       EntryTerms const& terms, DualBound bound) {
  ColumnValues values;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (x[r] == 0) continue;  // A forbidden pair has infinite cost.
    ++values.nonzeros;
    values.mass += x[r];
    values.cost += x[r] * c[r];
  }
  if (w) {
    values.regularization = sum_rows(rows, [&](std::int64_t r) { return x[r] * w[r]; });
    for (std::int64_t r = 0; r < rows; ++r) c[r] += w[r];
  }
  Column const column{rows, x, c, u};
  values.regularization += regularization(column, terms);
  if (terms.pair_groups) return values;
  if (terms.separable) add_separable(column, terms, v, values);
  if (bound == DualBound::without_slack) {
    values.conjugate = 0;
    v = largest_feasible(column, terms);
  } else if (!terms.separable) {
    values.conjugate = conjugate(column, terms, v);
  }
  return values;
}

/// The values of groups of pairs. Each column first leaves the squares of its parts.
class PairEvaluation {
 public:
  explicit PairEvaluation(PairGroups const& groups) : groups_(groups), plan_(size()), slack_(size()) {}

  /// `sorted` is column j with its rows as in rows_of(j).
  void add(std::int64_t j, Column const& sorted, double v) {
    for_parts(j, [&](std::size_t p, RowGroup const& part) {
      plan_[p] = sum_rows(part.end - part.begin, [&](std::int64_t k) {
        double const x = sorted.x[part.begin + k];
        return x * x;
      });
      slack_[p] = sorted.slack_squares(part, v);
    });
  }
  double regularization() const {
    double sum = 0;
    for (std::int64_t g = 0; g < groups_.groups(); ++g) sum += groups_.weight(g) * std::sqrt(groups_.total(g, plan_));
    return sum;
  }
  /// h* with a quadratic term.
  double conjugate(double quadratic) const {
    double sum = 0;
    for (std::int64_t g = 0; g < groups_.groups(); ++g) {
      double const excess = std::max(std::sqrt(groups_.total(g, slack_)) - groups_.weight(g), 0.0);
      sum += excess * excess / (2 * quadratic);
    }
    return sum;
  }
  /// Gives each part a share of its group's weight, in proportion to the norm of its slacks: norms of parts that are at
  /// most their shares make a norm of the group that is at most its weight.
  void share_weights() {
    share_.resize(size());
    std::vector<double> factors;
    for (std::int64_t g = 0; g < groups_.groups(); ++g) {
      double const squares = groups_.total(g, slack_);
      factors.push_back(squares > 0 ? groups_.weight(g) / std::sqrt(squares) : 0);
    }
    for (std::int64_t j = 0; groups_.first_part(j) < groups_.parts(); ++j) {
      std::size_t p = to_size(groups_.first_part(j));
      for (PairGroups::Part const& part : groups_.parts_of(j)) {
        share_[p] = factors[to_size(part.group)] * std::sqrt(slack_[p]);
        ++p;
      }
    }
  }
  /// The largest v with which the slacks of column j keep to the shares; 0 if no pair is allowed.
  double largest_feasible(std::int64_t j, Column const& sorted) const {
    double v = kInfinity;
    for_parts(j, [&](std::size_t p, RowGroup part) {
      part.weight = share_[p];
      v = cpu::largest_feasible(sorted, part, v);
    });
    return v == kInfinity ? 0 : v;
  }

 private:
  std::size_t size() const { return to_size(groups_.parts()); }
  /// Calls visit(number, places) for the parts of a column.
  template <class Visit>
  void for_parts(std::int64_t j, Visit&& visit) const {
    std::size_t p = to_size(groups_.first_part(j));
    for (PairGroups::Part const& part : groups_.parts_of(j)) visit(p++, RowGroup{part.begin, part.end, 0});
  }

  PairGroups const& groups_;
  std::vector<double> plan_, slack_, share_;
};

/// Column j with its rows sorted by part. `room` has place for 3 numbers of each row.
Column sorted_column(PairGroups const& groups, std::int64_t j, Column const& column, double* room) {
  double *const x = room, *const s = x + column.rows, *const u = s + column.rows;
  std::int32_t const* const rows = groups.rows_of(j);
  for (std::int64_t k = 0; k < column.rows; ++k) {
    x[k] = column.x[rows[k]];
    s[k] = column.s[rows[k]];
    u[k] = column.u[rows[k]];
  }
  return {column.rows, x, s, u};
}

std::int64_t count_of(std::int64_t size, std::int64_t step) {
  return (size + step - 1) / step;
}

/// Calls visit(j, x, c, w, room) for each column, with w null without l1 and room for 3 numbers of each row. One thread
/// gets each kColumnsOfSum columns, in their order; whichever thread is free takes the next.
template <class Visit>
void for_each_column(EntrySource const& source, EntryTerms const& terms, int threads, Visit&& visit) {
  std::int64_t const n = source.source_rows(), m = source.source_columns();
  int const team = useful_threads(threads, n, m);
  std::int64_t const size = n * kWholeColumns;
  AlignedArray<double> const buffer = aligned_array<double>(3 * (size + n) * team);
  std::atomic<std::int64_t> next = 0;
  on_threads(team, [&](int t) {
    double* const x = buffer.get() + 3 * (size + n) * t;
    double* const c = x + size;
    double* const w = terms.has_l1 ? c + size : nullptr;
    double* const room = c + 2 * size;
    for (std::int64_t begin = 0; (begin = kColumnsOfSum * next++) < m;) {
      std::int64_t const end = std::min(begin + kColumnsOfSum, m);
      for (std::int64_t first = begin; first < end; first += kWholeColumns) {
        Tile const tile{0, n, first, std::min(kWholeColumns, end - first)};
        source.load(tile, x, c, w);
        for (std::int64_t k = 0; k < tile.columns; ++k)
          visit(first + k, x + k * n, c + k * n, w ? w + k * n : nullptr, room);
      }
    }
  });
}

/// Calls visit(tile, x) for all tiles. One thread gets all tiles of its points of `side`, from the first point of the
/// other side to the last.
template <class Visit>
void for_each_tile(EntrySource const& source, Side side, int threads, Visit&& visit) {
  std::int64_t const n = source.source_rows(), m = source.source_columns();
  std::int64_t const points = side == Side::rows ? n : m, others = side == Side::rows ? m : n;
  int const team = useful_threads(threads, n, m);
  parallel_ranges(team, count_of(points, kTile), [&](std::int64_t begin, std::int64_t end) {
    AlignedArray<double> const x = aligned_array<double>(kTile * kTile);
    for (std::int64_t i = begin * kTile; i < std::min(end * kTile, points); i += kTile) {
      for (std::int64_t j = 0; j < others; j += kTile) {
        std::int64_t const row = side == Side::rows ? i : j, column = side == Side::rows ? j : i;
        Tile const tile{row, std::min(kTile, n - row), column, std::min(kTile, m - column)};
        source.load(tile, x.get(), nullptr, nullptr);
        visit(tile, static_cast<double const*>(x.get()));
      }
    }
  });
}

/// Calls visit(r, k, entry) for the nonzero entries of a tile, row by row.
template <class Visit>
void for_each_nonzero(Tile const& tile, double const* x, Visit&& visit) {
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    for (std::int64_t k = 0; k < tile.columns; ++k) {
      double const entry = x[k * tile.rows + r];
      if (entry != 0) visit(r, k, entry);
    }
  }
}

}  // namespace

EntryTerms::EntryTerms(RegularizerTerms const& terms, CostScale const& scale, std::vector<RowGroup> row_groups,
                       std::shared_ptr<PairGroups const> groups_of_pairs)
    : quadratic(scale.quadratic(terms.quadratic)),
      hypentropy(scale.linear(terms.hypentropy)),
      width(scale.width(terms.hypentropy_width)),
      has_l1(terms.l1 > 0),
      groups(std::move(row_groups)),
      pair_groups(std::move(groups_of_pairs)),
      separable(terms.separable) {}

RegularizedValues evaluate_entries(EntrySource const& source, EntryTerms const& terms, EntryDuals const& duals,
                                   DualBound bound, int threads) {
  std::int64_t const n = source.source_rows(), m = source.source_columns();
  std::int64_t const blocks = count_of(m, kColumnsOfSum);
  AlignedArray<double> const row_sums = aligned_array<double>(blocks * n);
  std::fill_n(row_sums.get(), blocks * n, 0.0);
  std::vector<ColumnValues> values(to_size(m));
  std::optional<PairEvaluation> pairs;
  if (terms.pair_groups) pairs.emplace(*terms.pair_groups);

  for_each_column(source, terms, threads,
                  [&](std::int64_t j, double const* x, double* c, double const* w, double* room) {
                    double* const sums = row_sums.get() + j / kColumnsOfSum * n;
                    for (std::int64_t r = 0; r < n; ++r) sums[r] += x[r];
                    double& v = duals.v[to_size(j)];
                    values[to_size(j)] = values_of(n, x, c, w, duals.u.data(), v, terms, bound);
                    if (pairs) pairs->add(j, sorted_column(*terms.pair_groups, j, {n, x, c, duals.u.data()}, room), v);
                  });
  if (pairs && bound == DualBound::without_slack) {
    pairs->share_weights();
    for_each_column(source, terms, threads,
                    [&](std::int64_t j, double const* x, double* c, double const* w, double* room) {
                      if (w) std::transform(c, c + n, w, c, std::plus());
                      Column const sorted = sorted_column(*terms.pair_groups, j, {n, x, c, duals.u.data()}, room);
                      duals.v[to_size(j)] = pairs->largest_feasible(j, sorted);
                    });
  }

  RegularizedValues result;
  CompensatedSum mass, cost, regularization, dual, squares, l1;
  auto const add_point = [&](double sum, double share, double potential) {
    double const excess = sum - share;
    squares.add(excess * excess);
    l1.add(std::abs(excess));
    if (share > 0) dual.add(share * potential);  // Potentials of points without mass may be infinite.
  };
  for (std::int64_t j = 0; j < m; ++j) {
    ColumnValues const& value = values[to_size(j)];
    mass.add(value.mass);
    cost.add(value.cost);
    regularization.add(value.regularization);
    dual.add(-value.conjugate);
    add_point(value.mass, duals.q[to_size(j)], duals.v[to_size(j)]);
    result.nonzeros += value.nonzeros;
  }
  for (std::int64_t r = 0; r < n; ++r) {
    double sum = 0;
    for (std::int64_t block = 0; block < blocks; ++block) sum += row_sums[to_size(block * n + r)];
    add_point(sum, duals.p[to_size(r)], duals.u[to_size(r)]);
  }
  if (pairs) {
    regularization.add(pairs->regularization());
    if (bound == DualBound::of_conjugate) dual.add(-pairs->conjugate(terms.quadratic));
  }
  result.transported_mass = mass.value();
  result.residual_squares = squares.value();
  result.residual_l1 = l1.value();
  result.transport_cost = cost.value();
  result.regularization = regularization.value();
  result.dual = dual.value();
  return result;
}

void dense_entries(EntrySource const& source, double mass, MutableMatrixView out, int threads) {
  with_data(out, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for_each_tile(source, Side::rows, threads, [&](Tile const& tile, double const* x) {
      for (std::int64_t r = 0; r < tile.rows; ++r) {
        T* const row = data + source.problem_row(tile.row + r) * out.row_stride() + tile.column;
        for (std::int64_t k = 0; k < tile.columns; ++k) row[k] = static_cast<T>(mass * x[k * tile.rows + r]);
      }
    });
  });
}

std::int64_t count_nonzeros(EntrySource const& source, MutableIndexView row_begin, int threads) {
  std::int64_t const n = source.source_rows();
  auto const at = [&](std::int64_t i) -> std::int64_t& { return row_begin.data[i * row_begin.row_stride]; };
  for (std::int64_t i = 0; i <= n; ++i) at(i) = 0;
  for_each_tile(source, Side::rows, threads, [&](Tile const& tile, double const* x) {
    for_each_nonzero(tile, x,
                     [&](std::int64_t r, std::int64_t, double) { ++at(source.problem_row(tile.row + r) + 1); });
  });
  for (std::int64_t i = 0; i < n; ++i) at(i + 1) += at(i);
  return at(n);
}

void nonzero_entries(EntrySource const& source, double mass, MutableIndexView row_begin, MutableIndexView columns,
                     MutableVectorView values, int threads) {
  std::int64_t const n = source.source_rows();
  auto const begin_of = [&](std::int64_t i) { return row_begin.data[i * row_begin.row_stride]; };
  auto const is_inside = [&](std::int64_t i) { return begin_of(i) >= 0 && begin_of(i + 1) <= columns.rows; };
  std::vector<std::int64_t> next(to_size(n));
  for (std::int64_t i = 0; i < n; ++i) next[to_size(i)] = begin_of(i);
  with_data(values, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for_each_tile(source, Side::rows, threads, [&](Tile const& tile, double const* x) {
      for_each_nonzero(tile, x, [&](std::int64_t r, std::int64_t k, double entry) {
        std::int64_t const i = source.problem_row(tile.row + r), e = next[to_size(i)]++;
        if (!is_inside(i) || e >= begin_of(i + 1)) return;
        columns.data[e * columns.row_stride] = tile.column + k;
        data[e * values.stride()] = static_cast<T>(mass * entry);
      });
    });
  });
  for (std::int64_t i = 0; i < n; ++i) {
    require(
        is_inside(i) && next[to_size(i)] == begin_of(i + 1),
        "row_begin: row {} does not hold exactly its entries; must be what nonzeros() gave, with columns and values "
        "as long as it returned",
        i);
  }
}

void sum_entries(EntrySource const& source, double mass, Side side, MutableVectorView out, int threads) {
  std::vector<double> const ones(to_size(side == Side::rows ? source.source_columns() : source.source_rows()), 1.0);
  multiply_entries(source, mass, side, false, MatrixView(ones.data(), std::ssize(ones), 1),
                   MutableMatrixView(out.data(), out.type(), out.size(), 1, out.stride()), threads);
}

void multiply_entries(EntrySource const& source, double mass, Side side, bool averaged, MatrixView values,
                      MutableMatrixView out, int threads) {
  std::int64_t const width = values.columns();
  bool const by_rows = side == Side::rows;
  // One thread has all tiles of a point of `side`, and sums its row of `out` here.
  std::int64_t const points = by_rows ? source.source_rows() : source.source_columns();
  std::vector<double> sums(to_size(points * width)), masses(to_size(points));
  with_data(values, [&](auto const* data) {
    for_each_tile(source, side, threads, [&](Tile const& tile, double const* x) {
      for_each_nonzero(tile, x, [&](std::int64_t r, std::int64_t k, double entry) {
        std::int64_t const i = tile.row + r, j = tile.column + k, point = by_rows ? i : j;
        double* const sum = sums.data() + point * width;
        auto const* const value = data + (by_rows ? j : source.problem_row(i)) * values.row_stride();
        for (std::int64_t p = 0; p < width; ++p) sum[p] += entry * static_cast<double>(value[p]);
        masses[to_size(point)] += entry;
      });
    });
  });
  with_data(out, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for (std::int64_t i = 0; i < points; ++i) {
      double const of_point = masses[to_size(i)];
      double const factor = !averaged ? mass : of_point > 0 ? 1 / of_point : 0;
      T* const row = data + (by_rows ? source.problem_row(i) : i) * out.row_stride();
      for (std::int64_t p = 0; p < width; ++p) row[p] = static_cast<T>(factor * sums[to_size(i * width + p)]);
    }
  });
}

void write_potential(CostScale const& scale, std::span<double const> potential, MutableVectorView out) {
  write_vector(out, [&](std::int64_t i) { return scale.offset / 2 + scale.range * potential[to_size(i)]; });
}

}  // namespace monge::cpu
