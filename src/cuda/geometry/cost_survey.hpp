// What must be known of costs before they are used (cuda/geometry/cost_survey.cuh).
#pragma once
#include <climits>

#include "cuda/launch/queue.hpp"
#include "cuda/regularized/regularized_entries.hpp"

namespace monge::cuda {

struct CostSurvey {
  static constexpr unsigned long long kNone = ~0ull;
  static constexpr int kNobody = INT_MAX;

  unsigned long long first_bad;  // row columns + column of the first pair with a number that none may be; kNone.
  double least, largest;         // Of the pairs that are allowed.
  double cost_sum, weight_sum;   // Of a_i b_j C_ij and a_i b_j over these.
  int first_lonely[2];           // The first row and column of weight without an allowed pair with one of weight.

  /// Of row columns + column.
  struct Place {
    std::int64_t row, column;
  };
  Place first_bad_place(int columns) const {
    return {static_cast<std::int64_t>(first_bad) / columns, static_cast<std::int64_t>(first_bad) % columns};
  }
  /// Which points of a side have a partner, as far as the first that has none.
  std::vector<unsigned char> has_partner(Side side, std::size_t size) const;
};

/// Sums over the allowed pairs of a point, w the weight of the other point: w C and w.
struct PointSums {
  double cost, weight;
};

struct CostSurveyInput {
  RegularizedMatrix matrix;  // Its costs as the user has them.
  double const* a;           // Weights of rows and columns.
  double const* b;
  /// Weights count as 1 where they are positive, and the largest cost is that of pairs of weight, with l1 W.
  bool of_support = false;
  double* shift = nullptr;    // Becomes the least cost, one number a row; null: not wanted.
  PointSums* sums = nullptr;  // Of lines, then of places; null: not wanted.
  unsigned char* scratch = nullptr;
  CostSurvey* result = nullptr;
};
/// Bytes of scratch memory; `sums`: these are wanted.
std::int64_t survey_bytes(RegularizedMatrix const& matrix, bool sums);
/// One read of the costs.
void survey_costs(CostSurveyInput const& input, Queue const& queue);

}  // namespace monge::cuda
