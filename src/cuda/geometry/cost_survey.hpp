// Findings about costs before their first use (cuda/geometry/cost_survey.cuh).
#pragma once
#include <climits>
#include <limits>

#include "core/side.hpp"
#include "cuda/geometry/regularized_matrix.hpp"
#include "cuda/launch/queue.hpp"
#include "cuda/runtime/device_ranks.hpp"

namespace monge::cuda {

struct CostSurvey {
  static constexpr unsigned long long kNone = ~0ull;
  static constexpr int kNobody = INT_MAX;

  unsigned long long first_bad;  // row columns + column of the first pair with an invalid number; kNone.
  double least;                  // Least cost of the allowed pairs.
  double least_with_mass;        // Least cost of the allowed pairs of two points of positive weight.
  double largest;                // Their largest cost, with l1 W.
  double cost_sum, weight_sum;   // Sums of a_i b_j C_ij and a_i b_j over the allowed pairs.
  double forbidden;              // Sum of a_i b_j over the forbidden pairs.
  int first_lonely[2];           // The first row and column of positive weight without a partner; kNobody.

  /// The pair with number row columns + column.
  struct Place {
    std::int64_t row, column;
  };
  Place first_bad_place(int columns) const {
    return {static_cast<std::int64_t>(first_bad) / columns, static_cast<std::int64_t>(first_bad) % columns};
  }
  /// Whether each point of a side has a partner, correct up to the first that has none.
  std::vector<unsigned char> has_partner(Side side, std::size_t size) const;
};

/// Sums of w C and w over the allowed pairs of a point, w the weight of the other point.
struct PointSums {
  double cost, weight;
};

struct CostSurveyInput {
  RegularizedMatrix matrix;  // The user's costs.
  double const* a;           // Weights of rows and columns.
  double const* b;
  /// Positive weights count as 1.
  bool of_support = false;
  double most = std::numeric_limits<double>::infinity();  // Pairs of a larger C + l1 W count as forbidden.
  double* shift =
      nullptr;  // Becomes half of the least cost, one number for each point of the longer side; null: not wanted.
  PointSums* sums = nullptr;  // Sums of lines, then of places; null: not wanted.
  unsigned char* scratch = nullptr;
  CostSurvey* result = nullptr;
  /// Each reads some of the lines, which need the stream of the queue, and no `sums`; null: this rank reads all.
  DeviceRanks const* ranks = nullptr;
};
/// Bytes of scratch memory, with or without `sums`.
std::int64_t survey_bytes(RegularizedMatrix const& matrix, bool sums, DeviceRanks const* ranks = nullptr);
/// Reads the costs once. Ranks that share them meet.
void survey_costs(CostSurveyInput const& input, Queue const& queue);

}  // namespace monge::cuda
