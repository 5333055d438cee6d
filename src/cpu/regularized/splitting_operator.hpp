// Douglas-Rachford splitting on the CPU: costs and X packed column by column in T, the rest in float64.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "cpu/regularized/regularized_costs.hpp"
#include "cpu/regularized/regularized_entries.hpp"
#include "cpu/regularized/splitting_pass.hpp"
#include "cpu/runtime/memory.hpp"
#include "seam/regularized_operator.hpp"

namespace monge::cpu {

/// Rows are in the order of RegularizedCosts, sorted by group, except in results.
template <class T>
class SplittingOperator final : public ReadableOperator<monge::SplittingOperator> {
 public:
  SplittingOperator(std::shared_ptr<RegularizedCosts const> costs, int threads);

  void start(double step) override;
  void begin_from(SplittingStart const& from) override;
  void set_step(double step) override;
  void iterate(int count) override;
  SplittingResidual residual() override;
  void keep(Spare spare) override;
  void exchange(Spare spare) override;
  void approach(Spare spare, double share) override;
  SplittingDistance distance(Spare spare) override;
  RegularizedValues evaluate() override;

  void potentials(MutableVectorView u, MutableVectorView v) const override;

 private:
  /// The recursion's data of one side.
  struct Points {
    std::vector<double> share;      // p or q
    std::vector<double> marginal;   // X 1 or X^T 1
    std::vector<double> sum;        // a or b
    std::vector<double> potential;  // phi or psi
    AlignedArray<T> packed;         // `potential` in T.

    explicit Points(std::vector<double> shares);
    std::int64_t size() const { return std::ssize(share); }
    void copy(Points const& from);
    void set_potential(std::int64_t i, double value);
    /// Updates `sum` and `potential` from the `marginal` of an iteration.
    void update(std::int64_t i, SplittingUpdate const& rule);
  };
  /// X and the data of the recursion.
  struct State {
    AlignedArray<T> plan;
    Points rows, columns;
    double step = 0, alpha = 0;

    State(std::int64_t stride, std::vector<double> p, std::vector<double> q);
  };

  std::int64_t problem_row(std::int64_t r) const override { return costs_.order()[to_size(r)]; }
  void load(Tile const& tile, double* x, double* c, double* w) const override;

  /// Writes `to` in the layout of X: load(tile, buffer) reads tiles, and `padding` follows the rows of each column.
  template <class Load>
  void pack(T* to, T padding, Load&& load) const;
  void sum_terms();
  void join_row_sums(std::int64_t begin, std::int64_t end, std::int64_t blocks);
  std::vector<T> group_thresholds() const;
  SplittingPass<T> plain_pass(std::span<std::int64_t const> group_begin, std::span<T const> thresholds) const;
  /// Calls visit(begin) with the first index of each column, on all threads.
  template <class Visit>
  void for_each_column(Visit&& visit) const {
    parallel_for(threads_, this->columns(), [&](std::int64_t j) { visit(j * stride_); });
  }
  std::vector<double> dual_rows() const;
  std::vector<double> dual_columns() const;

  EntryTerms terms_;
  std::int64_t stride_;
  AlignedArray<T> packed_costs_;
  AlignedArray<T> row_sums_;  // One for each kColumnsOfRowSum columns.
  Buffer<T> scratch_;         // Scratch memory of passes, one part for each thread.
  State now_;
  std::array<std::optional<State>, monge::SplittingOperator::kSpares> spares_;
  std::vector<double> feasible_;  // v, if the last evaluation replaced it.
};

}  // namespace monge::cpu
