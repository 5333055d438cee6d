#include "cuda/regularized/regularized_costs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <variant>

#include "core/numbers.hpp"
#include "core/overloaded.hpp"
#include "cuda/geometry/point_costs.hpp"
#include "cuda/vectors/kernels.hpp"
#include "regularized/regularized_costs.hpp"

namespace monge::cuda {

DeviceArray<unsigned char> load_points(SharedRuntime const& runtime, PointCloud const& clouds, PointWeights a,
                                       PointWeights b, RegularizedPoints& points) {
  auto const findings = std::make_shared<DeviceArray<CloudFindings> const>(runtime, 2);
  cudaStream_t const stream = runtime->stream();
  PointCosts costs(runtime, clouds, a, b, DataType::float64, findings, 0, stream);
  costs.finish(clouds, download(*runtime, findings->data(), 2).data());
  require_no_overflow(clouds.cost_function, costs.bound(), costs.mean());
  PassArguments const scores = costs.scores(Side::rows);
  points.dimension = scores.rows.dimension;
  points.form = scores.form;
  points.p = scores.p;
  points.factor = costs.factor();
  std::int64_t const n = costs.size(Side::rows), m = costs.size(Side::columns);
  DeviceArray<unsigned char> memory = allocate_parts(runtime, Part{points.coordinates[0], n * points.dimension},
                                                     Part{points.coordinates[1], m * points.dimension},
                                                     Part{points.base[0], n}, Part{points.base[1], m});
  for (Side const side : kSides) {
    int const s = side_index(side);
    turn_points(side == Side::rows ? scores.rows : scores.columns, costs.size(side), points.coordinates[s], stream);
    combine({costs.size(side), 2, {{1, costs.norm(side), nullptr}, {1, costs.shift(side), nullptr}}, points.base[s]},
            stream);
  }
  return memory;
}

RegularizedCosts::RegularizedCosts(SharedRuntime runtime, RegularizedInput const& input)
    : monge::RegularizedCosts(input),
      runtime_(std::move(runtime)),
      given_(input.terms),
      of_{{input.p, {}}, {input.q, {}}},
      wants_means_(input.means),
      survey_(runtime_, 1) {
  given_.groups.clear();
  matrix_.rows = checked_size("C", rows());
  matrix_.columns = checked_size("C", columns());
  if (given_.l1 > 0) {
    matrix_.l1_weights = upload(runtime_, given_.l1_weights, l1_copy_);
    matrix_.l1 = given_.l1;  // Until the range is known.
  }
  if (given_.mask.data()) matrix_.mask = upload(runtime_, given_.mask, mask_copy_);
  sort_rows(input.terms);

  std::int64_t const n = rows(), m = columns();
  shares_ = DeviceArray<double>(runtime_, n + m);
  upload(*runtime_, input.p.data(), shares_.data(), n * static_cast<std::int64_t>(sizeof(double)));
  upload(*runtime_, input.q.data(), shares_.data() + n, m * static_cast<std::int64_t>(sizeof(double)));
  std::visit(
      Overloaded{
          [&](PointCloud const& clouds) {
            point_memory_ = load_points(runtime_, clouds, {shares_.data(), 1}, {shares_.data() + n, 1}, matrix_.points);
          },
          [&](CostMatrix const& matrix) { matrix_.cost = upload_costs(runtime_, matrix, cost_copy_); }},
      input.geometry);
  sums_ = DeviceArray<PointSums>(runtime_, n + m);
  scratch_ = DeviceArray<unsigned char>(runtime_, survey_bytes(matrix_, true));
}

void RegularizedCosts::survey(Queue const& queue) {
  survey_costs({.matrix = matrix_,
                .a = shares_.data(),
                .b = shares_.data() + rows(),
                .of_support = next_ == Survey::of_all || next_ == Survey::of_means,
                .most = next_ == Survey::of_search  ? search_->limit()
                        : next_ == Survey::of_means ? search_->least() + search_->range()
                                                    : std::numeric_limits<double>::infinity(),
                .sums = sums_.data(),
                .scratch = scratch_.data(),
                .result = survey_.data()},
               queue);
}

bool RegularizedCosts::finish_survey() {
  CostSurvey const survey = download(*runtime_, survey_.data(), 1)[0];
  switch (next_) {
    case Survey::of_all:
      check(survey);
      least_ = survey.least;
      search_.emplace(survey.least_with_mass, survey.largest);
      keep_means(survey);
      next_ = survey.forbidden > 0 ? Survey::of_allowed : Survey::of_search;
      return true;
    case Survey::of_allowed:
      allowed_ = survey.weight_sum;
      next_ = Survey::of_search;
      return true;
    case Survey::of_search:
      if (search(survey)) return true;
      next_ = Survey::of_means;
      if (wants_means_ && search_->has_dear_pairs()) return true;
      break;
    case Survey::of_means:
      keep_means(survey);
  }
  finish();
  return false;
}

void RegularizedCosts::keep_means(CostSurvey const& survey) {
  found_ = survey;
  if (wants_means_) means_ = download(*runtime_, sums_.data(), sums_.size());
}

bool RegularizedCosts::search(CostSurvey const& survey) {
  std::vector<PointSums> const sums = download(*runtime_, sums_.data(), sums_.size());
  double share = 1;
  auto sum = sums.begin();
  for (Side const side : {side_of_lines(), opposite(side_of_lines())}) {
    for (double const own : of(side).share) {
      if (own > 0) share = std::min(share, sum->weight);
      ++sum;
    }
  }
  return search_->take(survey.largest, share, survey.weight_sum / allowed_);
}

void RegularizedCosts::check(CostSurvey const& survey) const {
  if (survey.first_bad != CostSurvey::kNone) throw_first_bad(survey);
  for (Side const side : kSides)
    require_allowed_partners(side, of(side).share, survey.has_partner(side, of(side).share.size()));
  require_finite_range(survey.least, survey.largest);
}

/// Scales the points to the costs inside. Scaling the costs of pairs would cancel digits against the offset.
void RegularizedCosts::scale_points() {
  RegularizedPoints& points = matrix_.points;
  points.factor /= scale_.range;
  for (Side const side : kSides) {
    double* const base = points.base[side_index(side)];
    double const offset = scale_.offset / 2;
    std::vector<double> values = download(*runtime_, base, side == Side::rows ? rows() : columns());
    for (double& value : values) value = (value - offset) / scale_.range;
    upload(*runtime_, values.data(), base, std::ssize(values) * static_cast<std::int64_t>(sizeof(double)));
  }
}

void RegularizedCosts::sort_rows(RegularizerTerms const& terms) {
  if (terms.group_lasso == 0) return;
  std::vector<int> next(terms.group_weights.size() + 1);
  for (std::int32_t const group : terms.groups) ++next[to_size(group)];
  int begin = 0;
  for (int& entry : next) {
    group_begin_.push_back(begin);
    begin += static_cast<int>(round_up(std::exchange(entry, begin), kGroupRows));
  }
  row_.assign(to_size(begin), -1);
  std::vector<int> group(to_size(begin / kGroupRows));
  for (std::size_t i = 0; i < terms.groups.size(); ++i) {
    int const place = next[to_size(terms.groups[i])]++;
    row_[to_size(place)] = static_cast<int>(i);
    group[to_size(place / kGroupRows)] = terms.groups[i];
  }
  device_row_ = uploaded(runtime_, row_);
  device_group_ = uploaded(runtime_, group);
  device_group_begin_ = uploaded(runtime_, group_begin_);
  group_weight_ = uploaded(runtime_, terms.group_weights);
}

void RegularizedCosts::finish() {
  set_scale(least_, *search_, given_);
  set_means();
  survey_ = {};
  sums_ = {};
  scratch_ = {};
  shares_ = {};
  matrix_.cost.least = scale_.offset;
  matrix_.inverse_range = 1 / scale_.range;
  matrix_.floor = scale_.floor();
  if (!matrix_.cost.data) scale_points();
  matrix_.l1 = scale_.linear(given_.l1);
  terms_.quadratic = scale_.quadratic(given_.quadratic);
  terms_.group_lasso = scale_.linear(given_.group_lasso);
  terms_.hypentropy = scale_.linear(given_.hypentropy);
  terms_.width = scale_.width(given_.hypentropy_width);
  terms_.group = device_group_.data();
  terms_.group_begin = device_group_begin_.data();
  terms_.group_weight = group_weight_.data();
  if (!given_.slopes) return;
  slopes_ = given_.slopes->in_units(scale_.mass, scale_.range);
  slope_mass_ = uploaded(runtime_, slopes_->mass);
  slope_ = uploaded(runtime_, slopes_->slope);
  slope_value_ = uploaded(runtime_, slopes_->value);
  terms_.slopes = {slope_mass_.data(), slope_.data(), slope_value_.data(), slopes_->view().size};
}

void RegularizedCosts::set_means() {
  if (!wants_means_) return;
  bool const differ = found_.largest > found_.least_with_mass;  // Equal costs are 0 inside; their sums are rounded.
  double const half = found_.cost_sum / found_.weight_sum / 2 + scale_.offset / 2;
  auto sum = means_.begin();
  for (Side const side : {side_of_lines(), opposite(side_of_lines())}) {
    Points& points = of_[side_index(side)];
    for (std::size_t i = 0; i < points.share.size(); ++i, ++sum)
      points.mean.push_back(sum->weight > 0 && differ ? (sum->cost / sum->weight - half) / scale_.range : 0);
  }
}

void RegularizedCosts::throw_first_bad(CostSurvey const& survey) const {
  auto const [row, column] = survey.first_bad_place(matrix_.columns);
  auto const value = [&, row = row, column = column](StridedView const& view) {
    return view.data ? element(*runtime_, view.data, view.scalar, row * view.stride + column) : 0;
  };
  StoredCosts const& costs = matrix_.cost;
  double const cost = costs.data ? element(*runtime_, costs.data, costs.scalar, costs.place(row, column)) : NAN;
  throw_bad_entry(row, column, cost, value(matrix_.l1_weights), value(matrix_.mask));
}

RowOrder RegularizedCosts::order() const {
  if (row_.empty()) return {matrix_.rows, nullptr};
  return {static_cast<int>(std::ssize(row_)), device_row_.data()};
}

std::vector<double> RegularizedCosts::in_order(std::span<double const> of_rows) const {
  if (row_.empty()) return {of_rows.begin(), of_rows.end()};
  std::vector<double> result(row_.size());
  for (std::size_t k = 0; k < row_.size(); ++k) {
    if (row_[k] >= 0) result[k] = of_rows[to_size(row_[k])];
  }
  return result;
}

}  // namespace monge::cuda
