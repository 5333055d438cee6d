#include "cpu/geometry/cost_survey.hpp"

// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/geometry/cost_survey.cpp"
#include "cpu/pass/simd_targets.hpp"
// foreach_target.h must come first.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/compensated_sum.hpp"
#include "core/strided.hpp"
#include "cpu/threads.hpp"
#include "geometry/cost_matrix.hpp"
#include "regularized/regularized_costs.hpp"

#ifndef MONGE_CPU_SURVEY_RUN
#define MONGE_CPU_SURVEY_RUN
namespace monge::cpu {
/// Some places of one line; null where nothing is given. The sums of the places are those of one thread.
struct SurveyRun {
  double const *costs, *mask, *l1_weights;
  double l1;
  std::int64_t count;
  double line_weight;
  double const* place_weight;
  double *place_cost_sum, *place_weight_sum;
};
struct SurveyedLine {
  double least = std::numeric_limits<double>::infinity(), most = -least, cost = 0, weight = 0;
  bool is_valid = true;
};
}  // namespace monge::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void SurveyCosts(SurveyRun const& run, bool of_weighted, SurveyedLine& line) {
  using D = hn::CappedTag<double, kPanel<double>>;
  D const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  auto const infinity = hn::Inf(d), largest = hn::Set(d, std::numeric_limits<double>::max()), zero = hn::Zero(d);
  auto const own = hn::Set(d, run.line_weight), l1 = hn::Set(d, run.l1);
  bool const line_counts = !of_weighted || run.line_weight > 0;
  auto least = infinity, most = hn::Neg(infinity), cost_sum = zero, weight_sum = zero;
  for (std::int64_t j = 0; j < run.count; j += kLanes) {
    auto const inside = hn::FirstN(d, static_cast<std::size_t>(std::min(kLanes, run.count - j)));
    auto const cost = hn::Load(d, run.costs + j);
    auto valid = hn::Ge(cost, hn::Neg(largest)), allowed = hn::And(inside, hn::And(valid, hn::Le(cost, largest)));
    auto score = cost;
    if (run.mask != nullptr) {
      auto const mask = hn::Load(d, run.mask + j);
      valid = hn::And(valid, hn::Le(hn::Abs(mask), largest));
      allowed = hn::AndNot(hn::Eq(mask, zero), allowed);
    }
    if (run.l1_weights != nullptr) {
      auto const weight = hn::Load(d, run.l1_weights + j);
      valid = hn::And(valid, hn::And(hn::Ge(weight, zero), hn::Le(weight, largest)));
      score = hn::MulAdd(l1, weight, cost);
    }
    line.is_valid = line.is_valid && hn::AllTrue(d, hn::Or(valid, hn::Not(inside)));
    auto const weight = hn::IfThenElseZero(allowed, hn::LoadU(d, run.place_weight + j));
    auto const finite = hn::IfThenElseZero(allowed, cost), share = hn::IfThenElseZero(allowed, own);
    auto const counts = of_weighted ? hn::And(allowed, hn::Gt(weight, zero)) : allowed;
    least = hn::Min(least, hn::IfThenElse(allowed, cost, infinity));
    if (line_counts) most = hn::Max(most, hn::IfThenElse(counts, score, hn::Neg(infinity)));
    cost_sum = hn::MulAdd(weight, finite, cost_sum);
    weight_sum = hn::Add(weight_sum, weight);
    hn::StoreU(hn::MulAdd(share, finite, hn::LoadU(d, run.place_cost_sum + j)), d, run.place_cost_sum + j);
    hn::StoreU(hn::Add(share, hn::LoadU(d, run.place_weight_sum + j)), d, run.place_weight_sum + j);
  }
  line.least = std::min(line.least, hn::GetLane(hn::MinOfLanes(d, least)));
  line.most = std::max(line.most, hn::GetLane(hn::MaxOfLanes(d, most)));
  line.cost += hn::GetLane(hn::SumOfLanes(d, cost_sum));
  line.weight += hn::GetLane(hn::SumOfLanes(d, weight_sum));
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(SurveyCosts);

std::vector<unsigned char> SurveyedPoints::has_partner() const {
  std::vector<unsigned char> result;
  for (double const value : weight) result.push_back(value > 0);
  return result;
}

CostSurvey survey_costs(CostSurveyInput const& input, int threads) {
  CostLines const& costs = input.costs;
  int const team = useful_threads(threads, costs.lines, costs.places);
  std::vector<SurveyedLine> lines(static_cast<std::size_t>(costs.lines));
  std::vector<double> place_weight = costs.place_vector();
  std::ranges::copy(input.place_weight, place_weight.begin());
  std::vector<SurveyedPoints> places(static_cast<std::size_t>(team));  // One a thread.
#pragma omp parallel for num_threads(team) schedule(static)
  for (int t = 0; t < team; ++t) {
    SurveyedPoints& sums = places[static_cast<std::size_t>(t)];
    sums = {costs.place_vector(), costs.place_vector()};
    std::unique_ptr<LineReader> mask, l1_weights;
    if (input.mask) mask = std::make_unique<LineReader>(*input.mask);
    if (input.l1_weights) l1_weights = std::make_unique<LineReader>(*input.l1_weights);
    for_each_group(costs, t, team, [&](std::int64_t line, std::int64_t rows, LineReader& reader) {
      for_each_chunk(reader, costs.places, line, [&](std::int64_t first, std::int64_t count, double const* cost) {
        double const* const masks = mask ? mask->read(line, first, count) : nullptr;
        double const* const weights = l1_weights ? l1_weights->read(line, first, count) : nullptr;
        for (std::int64_t r = 0; r < rows; ++r) {
          std::int64_t const at = r * kLineChunk;
          SurveyRun const run{cost + at,
                              masks ? masks + at : nullptr,
                              weights ? weights + at : nullptr,
                              input.l1,
                              count,
                              input.line_weight[static_cast<std::size_t>(line + r)],
                              place_weight.data() + first,
                              sums.cost.data() + first,
                              sums.weight.data() + first};
          HWY_DYNAMIC_DISPATCH(SurveyCosts)(run, input.of_weighted, lines[static_cast<std::size_t>(line + r)]);
        }
      });
    });
  }

  CostSurvey result;
  CompensatedSum cost, weight;
  for (std::size_t l = 0; l < lines.size(); ++l) {
    SurveyedLine const& line = lines[l];
    result.is_valid = result.is_valid && line.is_valid;
    result.least = std::min(result.least, line.least);
    result.most = std::max(result.most, line.most);
    result.line.cost.push_back(line.cost);
    result.line.weight.push_back(line.weight);
    cost.add(input.line_weight[l] * line.cost);
    weight.add(input.line_weight[l] * line.weight);
  }
  result.mean = cost.value() / weight.value();
  auto const join = [&](std::vector<double> SurveyedPoints::*sums) {
    std::vector<double> sum = std::move(places[0].*sums);
    sum.resize(static_cast<std::size_t>(costs.places));
    for (std::size_t t = 1; t < places.size(); ++t) {
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += (places[t].*sums)[k];
    }
    return sum;
  };
  result.place = {join(&SurveyedPoints::cost), join(&SurveyedPoints::weight)};
  return result;
}

void throw_first_bad(CostMatrix const& costs, MatrixView l1_weights, MatrixView mask) {
  std::int64_t const n = costs.transposed ? costs.cost.columns() : costs.cost.rows();
  std::int64_t const m = costs.transposed ? costs.cost.rows() : costs.cost.columns();
  auto const at = [](MatrixView matrix, std::int64_t line, std::int64_t place) {
    return with_data(matrix, [&](auto const* data) -> double { return data[line * matrix.row_stride() + place]; });
  };
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      double const cost = costs.transposed ? at(costs.cost, j, i) : at(costs.cost, i, j);
      if (!is_cost(cost)) throw_bad_cost(i, j, cost);
      if (l1_weights.rows() > 0 && !is_l1_weight(at(l1_weights, i, j))) throw_bad_l1_weight(i, j, at(l1_weights, i, j));
      if (mask.rows() > 0 && !is_mask(at(mask, i, j))) throw_bad_mask(i, j, at(mask, i, j));
    }
  }
  throw_bad_cost(0, 0, std::nan(""));
}

}  // namespace monge::cpu
#endif
