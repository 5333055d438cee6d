// Reading of a regularised plan, for any source of its entries X_ij: float64 values, the matrix in several forms,
// products. Entries come tile by tile, so no source needs n x m memory of its own.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <monge/array.hpp>

#include "seam/regularized_operator.hpp"

namespace monge::cpu {

/// A rectangle of the plan, with rows in the order of the source.
struct Tile {
  std::int64_t row, rows, column, columns;

  std::int64_t size() const { return rows * columns; }
};

/// The entries of a plan, for masses of 1 and costs with least 0 and range 1. A source may have its own order of rows.
class EntrySource {
 public:
  virtual ~EntrySource() = default;
  virtual std::int64_t source_rows() const = 0;
  virtual std::int64_t source_columns() const = 0;
  /// The row of the problem that is row r of the source.
  virtual std::int64_t problem_row(std::int64_t r) const { return r; }
  /// For each column of the tile: writes X to x; unless null, costs to c, +infinity for forbidden pairs, and lambda_1 W
  /// to w. Called from many threads.
  virtual void load(Tile const& tile, double* x, double* c, double* w) const = 0;
};

class PairGroups;

/// Rows [begin, end) of a source that form a group of group lasso.
struct RowGroup {
  std::int64_t begin, end;
  double weight;  // lambda w_g
};

/// h in the units of a source.
struct EntryTerms {
  double quadratic = 0;
  double hypentropy = 0, width = 1;
  bool has_l1 = false;                            // L1 weights come with the entries.
  std::vector<RowGroup> groups;                   // All rows in order; empty without groups of rows.
  std::shared_ptr<PairGroups const> pair_groups;  // Null without groups of pairs.
  std::shared_ptr<SeparableFunctions> separable;

  /// `groups` are in the order of rows.
  EntryTerms(RegularizerTerms const& terms, CostScale const& scale, std::vector<RowGroup> groups,
             std::shared_ptr<PairGroups const> pair_groups);
  bool has_finite_conjugate() const { return quadratic > 0 || hypentropy > 0 || separable; }
};

/// Marginals and potentials, p and u in the order of the source.
struct EntryDuals {
  std::span<double const> p, q, u;
  std::span<double> v;
};

/// Values as in RegularizedOperator::evaluate(); replaces v if the bound allows no slack.
RegularizedValues evaluate_entries(EntrySource const& source, EntryTerms const& terms, EntryDuals const& duals,
                                   DualBound bound, int threads);

/// out = mass X
void dense_entries(EntrySource const& source, double mass, MutableMatrixView out, int threads);
std::int64_t count_nonzeros(EntrySource const& source, MutableIndexView row_begin, int threads);
/// Throws invalid_argument if row_begin differs from the result of count_nonzeros().
void nonzero_entries(EntrySource const& source, double mass, MutableIndexView row_begin, MutableIndexView columns,
                     MutableVectorView values, int threads);
/// out = mass X 1 or, for columns, mass X^T 1.
void sum_entries(EntrySource const& source, double mass, Side side, MutableVectorView out, int threads);
/// RegularizedOperator::product() with mass X.
void multiply_entries(EntrySource const& source, double mass, Side side, bool averaged, MatrixView values,
                      MutableMatrixView out, int threads);

/// Writes u or v, potentials for costs of range 1, to the caller's memory in the units of `scale`.
void write_potential(CostScale const& scale, std::span<double const> potential, MutableVectorView out);

class RegularizedCosts;

/// An operator of either method. Plans read all sources in the same way.
template <class Operator>
class ReadableOperator : public Operator, protected EntrySource {
 public:
  void dense(MutableMatrixView out) const final { dense_entries(*this, mass(), out, threads_); }
  std::int64_t nonzeros(MutableIndexView row_begin) const final { return count_nonzeros(*this, row_begin, threads_); }
  void entries(MutableIndexView row_begin, MutableIndexView columns, MutableVectorView values) const final {
    nonzero_entries(*this, mass(), row_begin, columns, values, threads_);
  }
  void marginal(Side side, MutableVectorView out) const final { sum_entries(*this, mass(), side, out, threads_); }
  void product(Side side, bool averaged, MatrixView values, MutableMatrixView out) const final {
    multiply_entries(*this, mass(), side, averaged, values, out, threads_);
  }

 protected:
  ReadableOperator(std::shared_ptr<RegularizedCosts const> costs, int threads)
      : Operator(costs), costs_(*costs), threads_(threads) {}
  std::int64_t source_rows() const final { return this->rows(); }
  std::int64_t source_columns() const final { return this->columns(); }

  RegularizedCosts const& costs_;
  int threads_;

 private:
  double mass() const { return this->scale().mass; }
};

}  // namespace monge::cpu
