// What one reading of costs finds before anything is done with them: their range and mean, who has a partner, and
// whether all of them are costs.
#pragma once
#include <limits>
#include <span>
#include <vector>

#include <monge/array.hpp>
#include <monge/geometry.hpp>

#include "cpu/pass/cost_lines.hpp"

namespace monge::cpu {

struct CostSurveyInput {
  CostLines const& costs;  // Its mask is not read.
  std::span<double const> line_weight, place_weight;
  CostLines const* mask = nullptr;  // Null: all pairs with a finite cost are allowed.
  CostLines const* l1_weights = nullptr;
  double l1 = 0;
  /// The largest cost is that of a pair whose points both have weight, with l1 W; otherwise of any pair.
  bool of_weighted = false;
};

/// Sums over the allowed pairs of each point, w the weight of the other point of the pair.
struct SurveyedPoints {
  std::vector<double> cost;    // sum w C
  std::vector<double> weight;  // sum w: positive if the point has a partner of weight.

  std::vector<unsigned char> has_partner() const;
};

struct CostSurvey {
  double least = std::numeric_limits<double>::infinity(), most = -least;  // Of allowed pairs.
  double mean = 0;       // Of allowed pairs, each with the product of its two weights.
  bool is_valid = true;  // Every number is one that may be. Only then the others say something.
  SurveyedPoints line, place;
};

CostSurvey survey_costs(CostSurveyInput const& input, int threads);

/// Throws invalid_argument for the first pair, row by row, with a number that none may be: as
/// regularized/regularized_costs.hpp has it. Matrices without rows are not given.
[[noreturn]] void throw_first_bad(CostMatrix const& costs, MatrixView l1_weights = {}, MatrixView mask = {});

}  // namespace monge::cpu
