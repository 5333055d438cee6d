#include "cuda/geometry/matrix_survey.hpp"

#include "cuda/geometry/matrix_survey.cuh"
#include "cuda/launch/divided_up.hpp"

namespace monge::cuda {
namespace {

int survey_blocks(StoredCosts const& costs) {
  return divided_up(costs.line_size(), kSurveyColumns) * divided_up(costs.lines(), kSurveyLines);
}

}  // namespace

std::int64_t survey_bytes(StoredCosts const& costs) {
  return survey_blocks(costs) * static_cast<std::int64_t>(sizeof(SurveyPart)) + costs.lines() + costs.line_size();
}

void survey_matrix(MatrixSurveyInput const& input, Queue const& queue) {
  StoredCosts const& costs = input.costs;
  MatrixSurveyArguments arguments{};
  arguments.costs = costs;
  arguments.blocks = survey_blocks(costs);
  arguments.line_weight = costs.transposed ? input.b : input.a;
  arguments.column_weight = costs.transposed ? input.a : input.b;
  arguments.parts = reinterpret_cast<SurveyPart*>(input.scratch);
  arguments.line_partner = reinterpret_cast<unsigned char*>(arguments.parts + arguments.blocks);
  arguments.column_partner = arguments.line_partner + costs.lines();
  arguments.shift = input.shift;
  arguments.result = input.result;
  using Survey = Kernel<MatrixSurveyArguments>;
  queue.launch(Survey{start_survey_kernel, start_survey_kernel},
               {divided_up(costs.lines() + costs.line_size(), kSurveyThreads), kSurveyThreads}, arguments);
  queue.launch(costs.scalar == DataType::float32 ? Survey{survey_matrix_kernel<float>, survey_matrix_kernel<float>}
                                                 : Survey{survey_matrix_kernel<double>, survey_matrix_kernel<double>},
               {arguments.blocks, kSurveyThreads}, arguments);
  queue.launch(Survey{join_matrix_survey_kernel, join_matrix_survey_kernel}, {1, kSurveyThreads}, arguments);
}

}  // namespace monge::cuda
