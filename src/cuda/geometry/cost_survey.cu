#include "cuda/geometry/cost_survey.hpp"

#include <limits>
#include <string>

#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "cuda/geometry/cost_survey.cuh"
#include "cuda/geometry/costs.hpp"
#include "cuda/launch/sizes.hpp"

namespace monge::cuda {
namespace {

struct Shape {
  int lines, places;
  int blocks[2];
  RankPart own;           // The lines of this rank.
  SurveyRecords records;  // Records, without their memory.

  Shape(RegularizedMatrix const& matrix, DeviceRanks const* ranks)
      : lines(matrix.cost.transposed ? matrix.columns : matrix.rows),
        places(matrix.cost.transposed ? matrix.rows : matrix.columns),
        blocks{divided_up(lines, kSurveyLines), divided_up(places, kSurveyPlaces)} {
    int const padded = blocks[0] * kSurveyLines;
    own = ranks ? ranks->part_of(padded, kSurveyLines) : RankPart{0, padded, padded, padded};
    if (std::int64_t{blocks[0]} * blocks[1] > std::numeric_limits<int>::max())
      throw Error(ErrorCode::unsupported,
                  "C: is " + std::to_string(matrix.rows) + " x " + std::to_string(matrix.columns) +
                      "; CUDA finds range and mean of less than 2^31 tiles of " + std::to_string(kSurveyLines) + " x " +
                      std::to_string(kSurveyPlaces) + " costs");
    int const parts = own.each / kSurveyLines * blocks[1];
    std::int64_t const bytes =
        parts * std::int64_t{sizeof(SurveyPart)} + std::int64_t{sizeof(unsigned long long)} + own.each + places;
    records = {nullptr, ranks ? ranks->rank() : 0, ranks ? ranks->size() : 1, own.each, parts, round_up(bytes, 8)};
  }
  std::int64_t line_sums() const { return static_cast<std::int64_t>(blocks[1]) * lines; }
  std::int64_t place_sums() const { return static_cast<std::int64_t>(blocks[0]) * places; }
};

using Survey = Kernel<CostSurveyArguments>;

template <class Costs>
Survey survey_of() {
  return {survey_costs_kernel<Costs>, survey_costs_kernel<Costs>};
}

}  // namespace

std::vector<unsigned char> CostSurvey::has_partner(Side side, std::size_t size) const {
  std::vector<unsigned char> result(size, 1);
  int const lonely = first_lonely[side == Side::rows ? 0 : 1];
  if (lonely != kNobody) result[to_size(lonely)] = 0;
  return result;
}

std::int64_t survey_bytes(RegularizedMatrix const& matrix, bool sums, DeviceRanks const* ranks) {
  Shape const shape(matrix, ranks);
  return shape.records.all * shape.records.ranks +
         (sums ? shape.line_sums() + shape.place_sums() : 0) * static_cast<std::int64_t>(sizeof(PointSums));
}

void survey_costs(CostSurveyInput const& input, Queue const& queue) {
  Shape const shape(input.matrix, input.ranks);
  bool const transposed = input.matrix.cost.transposed;
  CostSurveyArguments arguments{};
  arguments.matrix = input.matrix;
  arguments.lines = shape.lines;
  arguments.places = shape.places;
  arguments.blocks[0] = shape.blocks[0];
  arguments.blocks[1] = shape.blocks[1];
  arguments.of_support = input.of_support;
  arguments.most = input.most;
  arguments.line_weight = transposed ? input.b : input.a;
  arguments.place_weight = transposed ? input.a : input.b;
  arguments.records = shape.records;
  arguments.records.data = input.scratch;
  arguments.line_sums = reinterpret_cast<PointSums*>(input.scratch + shape.records.all * shape.records.ranks);
  arguments.place_sums = arguments.line_sums + (input.sums ? shape.line_sums() : 0);
  arguments.sums = input.sums;
  arguments.shift = input.shift;
  arguments.result = input.result;
  StoredCosts const& costs = input.matrix.cost;
  queue.launch(Survey{start_survey_kernel, start_survey_kernel},
               {divided_up(shape.records.lines + shape.places, kSurveyThreads), kSurveyThreads}, arguments);
  int const blocks = shape.own.count / kSurveyLines * shape.blocks[1];
  if (blocks > 0)
    queue.launch(!costs.data                         ? survey_of<PointCostsOf>()
                 : costs.scalar == DataType::float32 ? survey_of<MatrixCostsOf<float>>()
                                                     : survey_of<MatrixCostsOf<double>>(),
                 {blocks, kSurveyThreads}, arguments);
  if (input.ranks) {
    input.ranks->meet();
    input.ranks->gather(input.scratch, shape.records.all, queue.stream());
  }
  if (input.sums)
    queue.launch(Survey{join_point_sums_kernel, join_point_sums_kernel},
                 {divided_up(shape.lines + shape.places, kSurveyThreads), kSurveyThreads}, arguments);
  queue.launch(Survey{join_survey_kernel, join_survey_kernel}, {1, kSurveyThreads}, arguments);
}

}  // namespace monge::cuda
