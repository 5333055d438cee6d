// The matrices of a regularised problem as the caller has them: surveyed once, then read tile by tile in float64.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <monge/geometry.hpp>

#include "cpu/regularized/regularized_entries.hpp"
#include "regularized/regularized_operator.hpp"

namespace monge::cpu {

class RegularizedCosts {
 public:
  /// Throws invalid_argument as regularized/regularized_costs.hpp has it. `p` and `q` are shares of the mass.
  RegularizedCosts(CostMatrix const& geometry, RegularizerTerms const& terms, std::span<double const> p,
                   std::span<double const> q, double mass, int threads);

  CostScale const& scale() const { return scale_; }
  /// The rows sorted by group, those of a group in the order of the problem; all in order without groups.
  std::vector<std::int64_t> const& rows() const { return rows_; }
  /// Where these rows have their groups, in units of `scale`; none without the term.
  std::vector<RowGroup> groups(RegularizerTerms const& terms) const;

  /// Column by column of the tile, whose rows count in rows(): costs from 0 to 1, +infinity where a pair is forbidden,
  /// and, unless `w` is null, lambda_1 W, 0 without that term.
  void load(Tile const& tile, double* c, double* w) const;

 private:
  void survey(std::span<double const> p, std::span<double const> q, double weight, int threads);

  MatrixView cost_;
  bool transposed_;
  MatrixView mask_, l1_weights_;
  double l1_;  // Inside.
  CostScale scale_;
  std::vector<std::int64_t> rows_;
};

}  // namespace monge::cpu
