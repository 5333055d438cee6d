// What must be known of a cost matrix before it is used (cuda/geometry/matrix_survey.cuh).
#pragma once
#include <climits>

#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

struct MatrixSurvey {
  static constexpr unsigned long long kNone = ~0ull;
  static constexpr int kNobody = INT_MAX;

  unsigned long long first_bad;  // row columns + column of the first cost that is neither finite nor +infinity; kNone.
  double least, largest;         // Of the finite costs.
  double cost_sum, weight_sum;   // Of a_i b_j C_ij and a_i b_j over pairs that are allowed.
  int first_lonely[2];           // The first row and column of weight without a finite cost to one of weight; kNobody.
};

/// Bytes of scratch memory.
std::int64_t survey_bytes(StoredCosts const& costs);
/// One read of the matrix. `a` and `b` are the weights of its rows and columns; `shift`, one number a row, becomes the
/// least cost.
struct MatrixSurveyInput {
  StoredCosts costs;
  double const* a;
  double const* b;
  unsigned char* scratch;
  double* shift;
  MatrixSurvey* result;
};
void survey_matrix(MatrixSurveyInput const& input, Queue const& queue);

}  // namespace monge::cuda
