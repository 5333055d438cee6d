#include "cpu/geometry/cost_survey.hpp"

#include <algorithm>
#include <array>

#include "core/compensated_sum.hpp"
#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/strided.hpp"
#include "cpu/runtime/threads.hpp"
#include "regularized/regularized_costs.hpp"

namespace monge::cpu {

std::vector<unsigned char> SurveyedPoints::has_partner() const {
  std::vector<unsigned char> result;
  for (double const value : weight) result.push_back(value > 0);
  return result;
}

double SurveyedPoints::least_weight(std::span<double const> shares) const {
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i] > 0) least = std::min(least, weight[i]);
  }
  return least;
}

CostLines lines_of(PointCosts<double> const& points) {
  CostLines costs;
  costs.lines = points.size(Side::rows);
  costs.places = points.size(Side::columns);
  costs.source = points.scores(Side::rows);
  costs.factor = points.factor();
  auto const bases = [&](Side side, std::vector<double> base) {
    for (std::size_t i = 0; i < points.norm(side).size(); ++i) base[i] = points.norm(side)[i] + points.shift(side)[i];
    return base;
  };
  costs.line_base = bases(Side::rows, costs.line_vector());
  costs.place_base = bases(Side::columns, costs.place_vector());
  return costs;
}

namespace {

/// Completes the lines and joins the sums of places of all ranks, in order.
void share_survey(CostLines const& costs, Team const& team, std::vector<SurveyedLine>& lines, SurveyedPoints& places) {
  std::size_t const ranks = to_size(team.ranks->size()), count = places.cost.size();
  std::vector<std::int64_t> of_lines, of_ranks;
  for (int rank = 0; rank <= team.ranks->size(); ++rank) {
    of_lines.push_back(share_of_lines(costs, team.edge(rank), team.size).begin);
    of_ranks.push_back(rank * static_cast<std::int64_t>(count));
  }
  std::vector<double> cost(ranks * count), weight(ranks * count);
  std::int64_t const own = of_ranks[to_size(team.ranks->rank())];
  std::ranges::copy(places.cost, cost.begin() + own);
  std::ranges::copy(places.weight, weight.begin() + own);
  team.ranks->exchange(std::array{shared_items(lines.data(), 1, of_lines), shared_items(cost.data(), 1, of_ranks),
                                  shared_items(weight.data(), 1, of_ranks)});
  places = {std::vector<double>(count), std::vector<double>(count)};
  for (std::size_t k = 0; k < ranks * count; ++k) {
    places.cost[k % count] += cost[k];
    places.weight[k % count] += weight[k];
  }
}

}  // namespace

CostSurvey survey_costs(CostSurveyInput const& input, Workers const& workers) {
  CostLines const& costs = input.costs;
  Team const team(workers, costs.lines, costs.places);
  std::vector<SurveyedLine> lines(to_size(costs.lines));
  std::vector<double> place_weight = costs.place_vector();
  std::ranges::copy(input.place_weight, place_weight.begin());
  std::vector<SurveyedPoints> places(to_size(team.own));  // One for each thread.
  on_threads(team.own, [&](int t) {
    SurveyedPoints& sums = places[to_size(t)];
    sums = {costs.place_vector(), costs.place_vector()};
    std::unique_ptr<LineReader> mask, l1_weights;
    if (input.mask) mask = std::make_unique<LineReader>(*input.mask);
    if (input.l1_weights) l1_weights = std::make_unique<LineReader>(*input.l1_weights);
    for_each_group(costs, team.first + t, team.size, [&](std::int64_t line, std::int64_t rows, LineReader& reader) {
      for_each_chunk(reader, costs.places, line, [&](std::int64_t first, std::int64_t count, double const* cost) {
        double const* const masks = mask ? mask->read(line, first, count) : nullptr;
        double const* const weights = l1_weights ? l1_weights->read(line, first, count) : nullptr;
        for (std::int64_t r = 0; r < rows; ++r) {
          std::int64_t const at = r * kLineChunk;
          std::size_t const l = to_size(line + r);
          survey_costs({.costs = cost + at,
                        .mask = masks ? masks + at : nullptr,
                        .l1_weights = weights ? weights + at : nullptr,
                        .count = count,
                        .l1 = input.l1,
                        .line_weight = input.line_weight[l],
                        .most = input.most,
                        .place_weight = place_weight.data() + first,
                        .place_cost_sum = sums.cost.data() + first,
                        .place_weight_sum = sums.weight.data() + first},
                       lines[l]);
        }
      });
    });
  });
  // The sums of a place are added over the threads of this rank here, and over the ranks in share_survey().
  auto const join = [&](std::vector<double> SurveyedPoints::*sums) {
    std::vector<double> sum(to_size(costs.places));
    for (SurveyedPoints const& of_thread : places) {
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += (of_thread.*sums)[k];
    }
    return sum;
  };
  CostSurvey result;
  result.place = {join(&SurveyedPoints::cost), join(&SurveyedPoints::weight)};
  if (team.ranks != nullptr) share_survey(costs, team, lines, result.place);

  CompensatedSum cost, weight;
  for (std::size_t l = 0; l < lines.size(); ++l) {
    SurveyedLine const& line = lines[l];
    result.is_valid = result.is_valid && line.is_valid;
    result.least = std::min(result.least, line.least);
    result.least_with_mass = std::min(result.least_with_mass, line.least_with_mass);
    result.most = std::max(result.most, line.most);
    result.line.cost.push_back(line.cost);
    result.line.weight.push_back(line.weight);
    cost.add(input.line_weight[l] * line.cost);
    weight.add(input.line_weight[l] * line.weight);
    result.forbidden += input.line_weight[l] * line.forbidden;
  }
  result.mean = cost.value() / weight.value();
  result.weight = weight.value();
  return result;
}

void throw_first_bad(CostMatrix const& costs, MatrixView l1_weights, MatrixView mask) {
  std::int64_t const n = costs.transposed ? costs.cost.columns() : costs.cost.rows();
  std::int64_t const m = costs.transposed ? costs.cost.rows() : costs.cost.columns();
  auto const at = [](MatrixView matrix, std::int64_t line, std::int64_t place) -> double {
    if (matrix.rows() == 0) return 0;
    return with_data(matrix, [&](auto const* data) -> double { return data[line * matrix.row_stride() + place]; });
  };
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      double const cost = costs.transposed ? at(costs.cost, j, i) : at(costs.cost, i, j);
      double const weight = at(l1_weights, i, j), allowed = at(mask, i, j);
      if (!is_cost(cost) || !is_l1_weight(weight) || !is_mask(allowed)) throw_bad_entry(i, j, cost, weight, allowed);
    }
  }
  throw_bad_cost(0, 0, std::nan(""));
}

}  // namespace monge::cpu
