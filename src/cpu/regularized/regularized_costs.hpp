// The costs of a regularised problem on the CPU, read once: the caller's matrices in place, or packed points.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <monge/geometry.hpp>

#include "cpu/geometry/point_costs.hpp"
#include "cpu/pass/cost_lines.hpp"
#include "cpu/regularized/pair_groups.hpp"
#include "cpu/regularized/regularized_entries.hpp"
#include "seam/regularized_operator.hpp"

namespace monge::cpu {

struct CostSurvey;
struct SurveyedPoints;

class RegularizedCosts final : public monge::RegularizedCosts {
 public:
  /// Data of rows or columns.
  struct Points {
    std::vector<double> share;
    std::vector<double> shift;  // Costs inside are those of lines() plus the shifts of both points.
    std::vector<double> mean;   // Means of the costs inside over points with mass, less half of the overall mean.
  };

  /// Throws invalid_argument as described in regularized/regularized_costs.hpp.
  RegularizedCosts(RegularizedInput const& input, int threads);

  RegularizerTerms const& terms() const { return terms_; }
  Points const& of(Side side) const { return of_[static_cast<int>(side)]; }
  /// The rows sorted by group, in the order of the problem within each; without groups of rows, in the order of the
  /// problem.
  std::vector<std::int64_t> const& order() const { return order_; }
  /// The groups of these rows, in units of `scale`; empty without groups of rows.
  std::vector<RowGroup> groups() const;
  /// In the same units; null without groups of pairs.
  std::shared_ptr<PairGroups const> const& pair_groups() const { return pair_groups_; }

  /// Costs from 0 to 1, without l1 and, for points, without shifts, which would cost digits.
  CostLines const& lines() const { return lines_; }
  /// Whether the lines are columns of the problem.
  bool by_columns() const { return by_columns_; }
  /// Reads the costs of lines() column by column of the tile, with rows numbered as in order(); +infinity for forbidden
  /// pairs.
  void load(Tile const& tile, double* c) const;
  /// The same with the shifts of points.
  void load_whole(Tile const& tile, double* c) const;
  /// lambda_1 W, or 0 without L1 weights.
  void load_l1(Tile const& tile, double* w) const;
  /// S = C + lambda_1 W, with the shifts of points.
  void load_sum(Tile const& tile, double* s) const;
  /// An n x m matrix of masses in units of the mass.
  void load_plan(MatrixView plan, Tile const& tile, double* x) const;

 private:
  void set_points(PointCloud const& clouds);
  void set_matrix(CostMatrix const& matrix);
  void take(CostSurvey const& found);
  SurveyedPoints const& points_of(CostSurvey const& found, Side side) const;
  /// out = value(out, entry of the matrix) for the pairs of a tile.
  template <class Value>
  void load_from(MatrixView matrix, bool transposed, Tile const& tile, double* out, Value&& value) const;

  RegularizerTerms terms_;
  MatrixView cost_;
  bool by_columns_ = false;
  std::shared_ptr<PointCosts<double> const> points_;
  CostLines lines_;
  Points of_[2];
  std::vector<std::int64_t> order_;
  std::shared_ptr<PairGroups const> pair_groups_;
};

}  // namespace monge::cpu
