#include "cpu/regularized/regularized_entries.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "core/compensated_sum.hpp"
#include "core/require.hpp"
#include "core/strided.hpp"
#include "cpu/memory.hpp"
#include "cpu/threads.hpp"
#include "regularized/splitting_rule.hpp"

namespace monge::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
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

/// h of the column, without l1.
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
/// Replaces v by the largest feasible one if the bound allows no slack.
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
  if (terms.separable) add_separable(column, terms, v, values);
  if (bound == DualBound::without_slack) {
    values.conjugate = 0;
    v = largest_feasible(column, terms);
  } else if (!terms.separable) {
    values.conjugate = conjugate(column, terms, v);
  }
  return values;
}

std::int64_t count_of(std::int64_t size, std::int64_t step) {
  return (size + step - 1) / step;
}

/// Calls visit(tile, x) for all tiles. One thread gets all tiles of its points of `side`, from the first point of the
/// other side to the last.
template <class Visit>
void for_each_tile(EntrySource const& source, Side side, int threads, Visit&& visit) {
  std::int64_t const n = source.source_rows(), m = source.source_columns();
  std::int64_t const points = side == Side::rows ? n : m, others = side == Side::rows ? m : n;
  int const team = useful_threads(threads, n, m);
  AlignedArray<double> const buffer = aligned_array<double>(team * kTile * kTile);
#pragma omp parallel for num_threads(team) schedule(static)
  for (std::int64_t i = 0; i < points; i += kTile) {
    double* const x = buffer.get() + omp_get_thread_num() * kTile * kTile;
    for (std::int64_t j = 0; j < others; j += kTile) {
      std::int64_t const row = side == Side::rows ? i : j, column = side == Side::rows ? j : i;
      Tile const tile{row, std::min(kTile, n - row), column, std::min(kTile, m - column)};
      source.load(tile, x, nullptr, nullptr);
      visit(tile, x);
    }
  }
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

EntryTerms::EntryTerms(RegularizerTerms const& terms, CostScale const& scale, std::vector<RowGroup> row_groups)
    : quadratic(scale.quadratic(terms.quadratic)),
      hypentropy(scale.linear(terms.hypentropy)),
      width(scale.width(terms.hypentropy_width)),
      has_l1(terms.l1 > 0),
      groups(std::move(row_groups)),
      separable(terms.separable) {}

RegularizedValues evaluate_entries(EntrySource const& source, EntryTerms const& terms, EntryDuals const& duals,
                                   DualBound bound, int threads) {
  std::int64_t const n = source.source_rows(), m = source.source_columns();
  std::int64_t const blocks = count_of(m, kColumnsOfSum);
  int const team = useful_threads(threads, n, m);
  std::int64_t const room = n * kWholeColumns;
  AlignedArray<double> const buffer = aligned_array<double>(3 * room * team);
  AlignedArray<double> const row_sums = aligned_array<double>(blocks * n);
  std::vector<ColumnValues> values(static_cast<std::size_t>(m));

#pragma omp parallel for num_threads(team) schedule(dynamic)
  for (std::int64_t block = 0; block < blocks; ++block) {
    double* const x = buffer.get() + 3 * room * omp_get_thread_num();
    double* const c = x + room;
    double* const w = terms.has_l1 ? c + room : nullptr;
    double* const sums = row_sums.get() + block * n;
    std::fill_n(sums, n, 0.0);
    std::int64_t const end = std::min((block + 1) * kColumnsOfSum, m);
    for (std::int64_t first = block * kColumnsOfSum; first < end; first += kWholeColumns) {
      Tile const tile{0, n, first, std::min(kWholeColumns, end - first)};
      source.load(tile, x, c, w);
      for (std::int64_t k = 0; k < tile.columns; ++k) {
        double const* const entries = x + k * n;
        for (std::int64_t r = 0; r < n; ++r) sums[r] += entries[r];
        std::size_t const j = static_cast<std::size_t>(first + k);
        values[j] = values_of(n, entries, c + k * n, w ? w + k * n : nullptr, duals.u.data(), duals.v[j], terms, bound);
      }
    }
  }

  RegularizedValues result;
  CompensatedSum mass, cost, regularization, dual, squares, l1;
  auto const add_point = [&](double sum, double share, double potential) {
    double const excess = sum - share;
    squares.add(excess * excess);
    l1.add(std::abs(excess));
    dual.add(share * potential);
  };
  for (std::int64_t j = 0; j < m; ++j) {
    ColumnValues const& value = values[static_cast<std::size_t>(j)];
    mass.add(value.mass);
    cost.add(value.cost);
    regularization.add(value.regularization);
    dual.add(-value.conjugate);
    add_point(value.mass, duals.q[static_cast<std::size_t>(j)], duals.v[static_cast<std::size_t>(j)]);
    result.nonzeros += value.nonzeros;
  }
  for (std::int64_t r = 0; r < n; ++r) {
    double sum = 0;
    for (std::int64_t block = 0; block < blocks; ++block) sum += row_sums[static_cast<std::size_t>(block * n + r)];
    add_point(sum, duals.p[static_cast<std::size_t>(r)], duals.u[static_cast<std::size_t>(r)]);
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
  std::vector<std::int64_t> next(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) next[static_cast<std::size_t>(i)] = begin_of(i);
  with_data(values, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for_each_tile(source, Side::rows, threads, [&](Tile const& tile, double const* x) {
      for_each_nonzero(tile, x, [&](std::int64_t r, std::int64_t k, double entry) {
        std::int64_t const i = source.problem_row(tile.row + r), e = next[static_cast<std::size_t>(i)]++;
        if (!is_inside(i) || e >= begin_of(i + 1)) return;
        columns.data[e * columns.row_stride] = tile.column + k;
        data[e * values.stride()] = static_cast<T>(mass * entry);
      });
    });
  });
  for (std::int64_t i = 0; i < n; ++i) {
    require(
        is_inside(i) && next[static_cast<std::size_t>(i)] == begin_of(i + 1),
        "row_begin: row {} does not hold exactly its entries; must be what nonzeros() gave, with columns and values "
        "as long as it returned",
        i);
  }
}

void sum_entries(EntrySource const& source, double mass, Side side, MutableVectorView out, int threads) {
  std::vector<double> const ones(
      static_cast<std::size_t>(side == Side::rows ? source.source_columns() : source.source_rows()), 1.0);
  multiply_entries(source, mass, side, false, MatrixView(ones.data(), std::ssize(ones), 1),
                   MutableMatrixView(out.data(), out.type(), out.size(), 1, out.stride()), threads);
}

void multiply_entries(EntrySource const& source, double mass, Side side, bool averaged, MatrixView values,
                      MutableMatrixView out, int threads) {
  std::int64_t const width = values.columns();
  bool const by_rows = side == Side::rows;
  // One thread has all tiles of a point of `side`, and sums its row of `out` here.
  std::int64_t const points = by_rows ? source.source_rows() : source.source_columns();
  std::vector<double> sums(static_cast<std::size_t>(points * width)), masses(static_cast<std::size_t>(points));
  with_data(values, [&](auto const* data) {
    for_each_tile(source, side, threads, [&](Tile const& tile, double const* x) {
      for_each_nonzero(tile, x, [&](std::int64_t r, std::int64_t k, double entry) {
        std::int64_t const i = tile.row + r, j = tile.column + k, point = by_rows ? i : j;
        double* const sum = sums.data() + point * width;
        auto const* const value = data + (by_rows ? j : source.problem_row(i)) * values.row_stride();
        for (std::int64_t p = 0; p < width; ++p) sum[p] += entry * static_cast<double>(value[p]);
        masses[static_cast<std::size_t>(point)] += entry;
      });
    });
  });
  with_data(out, [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for (std::int64_t i = 0; i < points; ++i) {
      double const of_point = masses[static_cast<std::size_t>(i)];
      double const factor = !averaged ? mass : of_point > 0 ? 1 / of_point : 0;
      T* const row = data + (by_rows ? source.problem_row(i) : i) * out.row_stride();
      for (std::int64_t p = 0; p < width; ++p)
        row[p] = static_cast<T>(factor * sums[static_cast<std::size_t>(i * width + p)]);
    }
  });
}

void write_potential(CostScale const& scale, std::span<double const> potential, MutableVectorView out) {
  write_vector(out,
               [&](std::int64_t i) { return scale.offset / 2 + scale.range * potential[static_cast<std::size_t>(i)]; });
}

}  // namespace monge::cpu
