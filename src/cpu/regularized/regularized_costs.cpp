#include "cpu/regularized/regularized_costs.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>

#include "core/numbers.hpp"
#include "core/overloaded.hpp"
#include "core/strided.hpp"
#include "cpu/geometry/cost_survey.hpp"
#include "geometry/validation.hpp"
#include "regularized/regularized_costs.hpp"

namespace monge::cpu {
namespace {

std::vector<double> indicator(std::vector<double> const& shares) {
  std::vector<double> result;
  result.reserve(shares.size());
  for (double const share : shares) result.push_back(share > 0);
  return result;
}

}  // namespace

RegularizedCosts::RegularizedCosts(RegularizedInput const& input, int threads)
    : monge::RegularizedCosts(input),
      terms_(input.terms),
      of_{{input.p, {}, {}}, {input.q, {}, {}}},
      order_(input.p.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  if (!terms_.groups.empty()) {
    std::ranges::stable_sort(order_, {}, [&](std::int64_t i) { return terms_.groups[to_size(i)]; });
  }
  std::visit(Overloaded{[&](PointCloud const& clouds) { set_points(clouds); },
                        [&](CostMatrix const& matrix) { set_matrix(matrix); }},
             input.geometry);

  auto const given = [&](MatrixView matrix) {
    return matrix.rows() > 0 ? std::make_shared<CostLines const>(CostLines::of_matrix(matrix, by_columns_)) : nullptr;
  };
  std::shared_ptr<CostLines const> const mask = given(terms_.mask), l1_weights = given(terms_.l1_weights);
  std::vector<double> const rows = indicator(input.p), columns = indicator(input.q);
  auto const survey = [&](std::vector<double> const& of_rows, std::vector<double> const& of_columns, double most) {
    return survey_costs({.costs = lines_,
                         .line_weight = by_columns_ ? of_columns : of_rows,
                         .place_weight = by_columns_ ? of_rows : of_columns,
                         .mask = mask.get(),
                         .l1_weights = l1_weights.get(),
                         .l1 = terms_.l1,
                         .most = most},
                        Workers{threads});
  };
  CostSurvey found = survey(rows, columns, kInfinity);
  if (!found.is_valid) throw_first_bad(matrix_of(input.geometry), terms_.l1_weights, terms_.mask);
  for (Side const side : kSides) require_allowed_partners(side, of(side).share, points_of(found, side).has_partner());
  require_finite_range(found.least, found.most);
  CostSearch search(found.least_with_mass, found.most);
  double const allowed = found.forbidden > 0 ? survey(input.p, input.q, kInfinity).weight : 1;
  for (bool goes_on = true; goes_on;) {
    CostSurvey const cheap = survey(input.p, input.q, search.limit());
    double share = 1;
    for (Side const side : kSides) share = std::min(share, points_of(cheap, side).least_weight(of(side).share));
    goes_on = search.take(cheap.most, share, cheap.weight / allowed);
  }
  set_scale(found.least, search, terms_);
  // Means without the dear pairs.
  if (input.means && search.has_dear_pairs()) found = survey(rows, columns, search.least() + search.range());
  take(found);
  lines_.mask = mask;
  if (!terms_.pair_groups.empty()) {
    std::vector<double> weights = terms_.group_weights;
    for (double& weight : weights) weight *= scale_.linear(terms_.group_lasso);
    pair_groups_ = std::make_shared<PairGroups const>(terms_.pair_groups, std::move(weights), threads);
  }
}

SurveyedPoints const& RegularizedCosts::points_of(CostSurvey const& found, Side side) const {
  return by_columns_ == (side == Side::columns) ? found.line : found.place;
}

void RegularizedCosts::set_points(PointCloud const& clouds) {
  points_ = std::make_shared<PointCosts<double> const>(clouds, of(Side::rows).share, of(Side::columns).share);
  require_no_overflow(clouds.cost_function, points_->bound(), points_->mean());
  lines_ = lines_of(*points_);  // take() scales them after the survey.
}

void RegularizedCosts::set_matrix(CostMatrix const& matrix) {
  cost_ = matrix.cost;
  by_columns_ = matrix.transposed;
  lines_ = CostLines::of_matrix(cost_);
}

/// Changes the user's costs to costs inside.
void RegularizedCosts::take(CostSurvey const& found) {
  for (Side const side : kSides) {
    Points& points = of_[static_cast<int>(side)];
    SurveyedPoints const& sum = points_of(found, side);
    points.shift.assign(points.share.size(), 0.0);
    for (std::size_t i = 0; i < points.share.size(); ++i) {
      // Equal costs are 0 inside; their sums are rounded.
      double const mean = sum.weight[i] > 0 && found.most > found.least_with_mass
                              ? sum.cost[i] / sum.weight[i] - found.mean / 2 - scale_.offset / 2
                              : 0;
      points.mean.push_back(mean / scale_.range);
    }
    if (!points_) continue;
    std::vector<double>& base = side == Side::rows ? lines_.line_base : lines_.place_base;
    double const offset = scale_.offset / 2;
    for (std::size_t i = 0; i < points.share.size(); ++i) {
      points.shift[i] = (points_->shift(side)[i] - offset) / scale_.range;
      base[i] = points_->norm(side)[i] / scale_.range;
    }
  }
  lines_.factor /= scale_.range;
  if (!points_) lines_.source.stored.origin = scale_.offset;
}

std::vector<RowGroup> RegularizedCosts::groups() const {
  std::vector<RowGroup> groups;
  if (terms_.groups.empty()) return groups;
  auto const group_of = [&](std::int64_t r) { return to_size(terms_.groups[to_size(order_[to_size(r)])]); };
  double const weight = scale_.linear(terms_.group_lasso);
  for (std::int64_t begin = 0, end = 0; begin < std::ssize(order_); begin = end) {
    std::size_t const group = group_of(begin);
    while (end < std::ssize(order_) && group_of(end) == group) ++end;
    groups.push_back({begin, end, weight * terms_.group_weights[group]});
  }
  return groups;
}

template <class Value>
void RegularizedCosts::load_from(MatrixView matrix, bool transposed, Tile const& tile, double* out,
                                 Value&& value) const {
  // A line of memory may be a row. Several rows at a time fill whole cache lines on both sides.
  constexpr std::int64_t kRows = 8;
  std::int64_t const row_step = transposed ? 1 : matrix.row_stride(),
                     column_step = transposed ? matrix.row_stride() : 1;
  with_data(matrix, [&](auto const* data) {
    for (std::int64_t begin = 0; begin < tile.rows; begin += kRows) {
      std::int64_t const count = std::min(kRows, tile.rows - begin);
      std::int64_t const* const rows = order_.data() + tile.row + begin;
      for (std::int64_t k = 0; k < tile.columns; ++k) {
        double* const line = out + k * tile.rows + begin;
        auto const* const column = data + (tile.column + k) * column_step;
        for (std::int64_t r = 0; r < count; ++r)
          line[r] = value(line[r], static_cast<double>(column[rows[r] * row_step]));
      }
    }
  });
}

void RegularizedCosts::load(Tile const& tile, double* c) const {
  if (!points_) {
    // The offset is subtracted before the factor multiplies, as in lines(): both round a cost alike.
    load_from(cost_, by_columns_, tile, c,
              [offset = scale_.offset, factor = lines_.factor, floor = scale_.floor()](double, double cost) {
                return std::max((cost - offset) * factor, floor);
              });
    if (terms_.mask.rows() == 0) return;
    load_from(terms_.mask, false, tile, c,
              [](double cost, double mask) { return mask == 0 ? std::numeric_limits<double>::infinity() : cost; });
    return;
  }
  // Rows of a group that do not follow each other read their eight lines again.
  LineReader reader(lines_);
  for (std::int64_t first = 0; first < tile.columns; first += kLineChunk) {
    std::int64_t const count = std::min(kLineChunk, tile.columns - first);
    double const* costs = nullptr;
    for (std::int64_t r = 0, in_reader = -1; r < tile.rows; ++r) {
      std::int64_t const line = order_[to_size(tile.row + r)], begin = line / kRowGroup * kRowGroup;
      if (begin != std::exchange(in_reader, begin)) costs = reader.read(begin, tile.column + first, count);
      for (std::int64_t k = 0; k < count; ++k) c[(first + k) * tile.rows + r] = costs[(line - begin) * kLineChunk + k];
    }
  }
}

void RegularizedCosts::load_whole(Tile const& tile, double* c) const {
  load(tile, c);
  if (!points_) return;
  std::vector<double> const &rows = of(Side::rows).shift, &columns = of(Side::columns).shift;
  for (std::int64_t k = 0; k < tile.columns; ++k) {
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      std::int64_t const i = order_[to_size(tile.row + r)];
      double& cost = c[k * tile.rows + r];
      cost = std::max(cost + (rows[to_size(i)] + columns[to_size(tile.column + k)]), scale_.floor());
    }
  }
}

void RegularizedCosts::load_l1(Tile const& tile, double* w) const {
  if (terms_.l1_weights.rows() == 0) {
    std::fill_n(w, tile.size(), 0.0);
    return;
  }
  load_from(terms_.l1_weights, false, tile, w,
            [l1 = scale_.linear(terms_.l1)](double, double weight) { return l1 * weight; });
}

void RegularizedCosts::load_sum(Tile const& tile, double* s) const {
  load_whole(tile, s);
  if (terms_.l1_weights.rows() == 0) return;
  load_from(terms_.l1_weights, false, tile, s,
            [l1 = scale_.linear(terms_.l1)](double cost, double weight) { return cost + l1 * weight; });
}

void RegularizedCosts::load_plan(MatrixView plan, Tile const& tile, double* x) const {
  load_from(plan, false, tile, x, [mass = scale_.mass](double, double value) { return value / mass; });
}

}  // namespace monge::cpu
