// The survey of costs before their first use: range and mean, points without a partner, and invalid numbers.
#pragma once
#include <limits>
#include <span>
#include <vector>

#include <monge/array.hpp>
#include <monge/geometry.hpp>

#include "cpu/geometry/point_costs.hpp"
#include "cpu/pass/cost_lines.hpp"
#include "cpu/runtime/threads.hpp"

namespace monge::cpu {

struct CostSurveyInput {
  CostLines const& costs;  // Its mask is not read.
  std::span<double const> line_weight, place_weight;
  CostLines const* mask = nullptr;  // Null: all pairs with a finite cost are allowed.
  CostLines const* l1_weights = nullptr;
  double l1 = 0;
  double most = std::numeric_limits<double>::infinity();  // Pairs of a larger C + l1 W count as forbidden.
};

/// Sums over the allowed pairs of each point, w the weight of the other point.
struct SurveyedPoints {
  std::vector<double> cost;    // sum w C
  std::vector<double> weight;  // sum w: positive if the point has a partner of weight.

  std::vector<unsigned char> has_partner() const;
  /// The least weight among the points with a share.
  double least_weight(std::span<double const> shares) const;
};

struct CostSurvey {
  double least = std::numeric_limits<double>::infinity();  // Least cost of an allowed pair.
  // The next two are about allowed pairs of two points of positive weight.
  double least_with_mass = least;  // Least cost.
  double most = -least;            // Largest cost, with l1 W.
  double mean = 0;                 // Weighted by the product of both weights, over allowed pairs.
  double weight = 0;               // sum_ij a_i b_j over the allowed pairs.
  double forbidden = 0;            // The same over the forbidden pairs.
  bool is_valid = true;            // Every number is valid; otherwise the rest is undefined.
  SurveyedPoints line, place;
};

/// The user's costs; a line is a row. The points must outlive them.
CostLines lines_of(PointCosts<double> const& points);

/// One pass over the lines, which the ranks of the workers share.
CostSurvey survey_costs(CostSurveyInput const& input, Workers const& workers);

/// Throws invalid_argument for the first pair, row by row, with an invalid number, as described in
/// regularized/regularized_costs.hpp. Matrices without rows are not given.
[[noreturn]] void throw_first_bad(CostMatrix const& costs, MatrixView l1_weights = {}, MatrixView mask = {});

}  // namespace monge::cpu
