#include "cuda/launch/matrix_survey.hpp"

#include "cuda/kernels/matrix_survey.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {

MatrixSurveyPlan plan_matrix_survey(StoredCosts const& costs) {
  std::int64_t const blocks = ((costs.line_size() - 1) / kSurveyColumns + std::int64_t{1}) *
                              ((costs.lines() - 1) / kSurveyLines + std::int64_t{1});
  return {static_cast<int>(blocks),
          blocks * static_cast<std::int64_t>(sizeof(SurveyPart)) + costs.lines() + costs.line_size()};
}

void survey_matrix(MatrixSurveyPlan const& plan, StoredCosts const& costs, double const* a, double const* b,
                   unsigned char* scratch, MatrixSurvey* result, cudaStream_t stream) {
  double const* const line_weight = costs.transposed ? b : a;
  double const* const column_weight = costs.transposed ? a : b;
  auto* const parts = reinterpret_cast<SurveyPart*>(scratch);
  auto* const lines = reinterpret_cast<unsigned char*>(parts + plan.blocks);
  SurveyScratch const memory{parts, {lines, lines + costs.lines()}};
  std::size_t const points = static_cast<std::size_t>(costs.lines()) + static_cast<std::size_t>(costs.line_size());
  MONGE_CUDA_TRY(cudaMemsetAsync(lines, 0, points, stream));
  start_survey_kernel<<<1, 1, 0, stream>>>(result);
  auto const kernel = costs.scalar == DataType::float32 ? survey_matrix_kernel<float> : survey_matrix_kernel<double>;
  kernel<<<static_cast<unsigned>(plan.blocks), kSurveyThreads, 0, stream>>>(costs, line_weight, column_weight, memory,
                                                                            result);
  join_survey_kernel<<<1, kSurveyThreads, 0, stream>>>(costs, line_weight, column_weight, memory, plan.blocks, result);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
