// What must be known of a cost matrix before it is used (kernels/matrix_survey.cuh).
#pragma once
#include <climits>

#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

struct MatrixSurvey {
  static constexpr unsigned long long kNone = ~0ull;
  static constexpr int kNobody = INT_MAX;

  unsigned long long first_bad;  // row columns + column of the first cost that is neither finite nor +infinity; kNone.
  double least, largest;         // Of the finite costs.
  double cost_sum, weight_sum;   // Of a_i b_j C_ij and a_i b_j over pairs that are allowed.
  int first_lonely[2];           // The first row and column of weight without a finite cost to one of weight; kNobody.
};

struct MatrixSurveyPlan {
  int blocks = 1;
  std::int64_t scratch_bytes = 0;
};
MatrixSurveyPlan plan_matrix_survey(StoredCosts const& costs);
/// One read of the matrix. `a` and `b` are the weights of its rows and columns; `scratch`, `result`: device memory.
void survey_matrix(MatrixSurveyPlan const& plan, StoredCosts const& costs, double const* a, double const* b,
                   unsigned char* scratch, MatrixSurvey* result, cudaStream_t stream);

}  // namespace monge::cuda
