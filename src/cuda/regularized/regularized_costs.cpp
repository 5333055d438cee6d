#include "cuda/regularized/regularized_costs.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <variant>

#include "core/overloaded.hpp"
#include "cuda/geometry/point_costs.hpp"
#include "cuda/vectors/kernels.hpp"
#include "regularized/regularized_costs.hpp"

namespace monge::cuda {
namespace {

double element(Runtime const& runtime, StridedView const& view, std::int64_t at) {
  if (view.scalar == DataType::float32)
    return static_cast<double>(download(runtime, static_cast<float const*>(view.data) + at, 1)[0]);
  return download(runtime, static_cast<double const*>(view.data) + at, 1)[0];
}

}  // namespace

RegularizedCosts::RegularizedCosts(SharedRuntime runtime, RegularizedInput const& input, Queue const& queue)
    : runtime_(std::move(runtime)), weights_(input.terms), p_(input.p), q_(input.q) {
  weights_.groups.clear();
  scale_.mass = input.mass;
  matrix_.rows = checked_size("C", std::ssize(p_));
  matrix_.columns = checked_size("C", std::ssize(q_));
  if (weights_.l1 > 0) {
    matrix_.l1_weights = upload(runtime_, weights_.l1_weights, l1_copy_);
    matrix_.l1 = weights_.l1;  // Until the range is known.
  }
  if (weights_.mask.data()) matrix_.mask = upload(runtime_, weights_.mask, mask_copy_);
  sort_rows(input.terms);

  std::int64_t const n = rows(), m = columns();
  shares_ = DeviceArray<double>(runtime_, n + m);
  upload(*runtime_, p_.data(), shares_.data(), n * static_cast<std::int64_t>(sizeof(double)));
  upload(*runtime_, q_.data(), shares_.data() + n, m * static_cast<std::int64_t>(sizeof(double)));
  std::visit(Overloaded{[&](PointCloud const& clouds) { set_points(clouds); },
                        [&](CostMatrix const& matrix) {
                          matrix_.transposed = matrix.transposed;
                          matrix_.cost = upload(runtime_, matrix.cost, cost_copy_);
                        }},
             input.geometry);
  constexpr auto kResult = static_cast<std::int64_t>(sizeof(RegularizedSurvey));
  survey_ = DeviceArray<unsigned char>(runtime_, kResult + n + m);
  survey_regularized({matrix_, shares_.data(), shares_.data() + n, reinterpret_cast<RegularizedSurvey*>(survey_.data()),
                      survey_.data() + kResult, survey_.data() + kResult + n},
                     queue);
}

void RegularizedCosts::set_points(PointCloud const& clouds) {
  std::int64_t const n = rows(), m = columns();
  auto const findings = std::make_shared<DeviceArray<CloudFindings> const>(runtime_, 2);
  cudaStream_t const stream = runtime_->stream();
  PointCosts costs(runtime_, clouds, {shares_.data(), 1}, {shares_.data() + n, 1}, DataType::float64, findings, 0,
                   stream);
  costs.finish(clouds, download(*runtime_, findings->data(), 2).data());
  require_finite_range(-costs.bound(), costs.bound());
  PassArguments const scores = costs.scores(Side::rows);
  RegularizedPoints& points = matrix_.points;
  points.dimension = scores.rows.dimension;
  points.form = scores.form;
  points.p = scores.p;
  points.factor = costs.factor();
  point_memory_ = allocate_parts(runtime_, Part{points.coordinates[0], n * points.dimension},
                                 Part{points.coordinates[1], m * points.dimension}, Part{points.base[0], n},
                                 Part{points.base[1], m});
  for (Side const side : kSides) {
    int const s = side_index(side);
    turn_points(side == Side::rows ? scores.rows : scores.columns, costs.size(side), points.coordinates[s], stream);
    combine({costs.size(side), 2, {{1, costs.norm(side), nullptr}, {1, costs.shift(side), nullptr}}, points.base[s]},
            stream);
  }
}

/// Scales the points to the costs inside. Scaling the costs of pairs would cancel digits against the offset.
void RegularizedCosts::scale_points() {
  RegularizedPoints& points = matrix_.points;
  points.factor /= scale_.range;
  for (Side const side : kSides) {
    double* const base = points.base[side_index(side)];
    double const offset = side == Side::rows ? scale_.offset : 0;
    std::vector<double> values = download(*runtime_, base, side == Side::rows ? rows() : columns());
    for (double& value : values) value = (value - offset) / scale_.range;
    upload(*runtime_, values.data(), base, std::ssize(values) * static_cast<std::int64_t>(sizeof(double)));
  }
}

void RegularizedCosts::sort_rows(RegularizerTerms const& terms) {
  if (terms.group_lasso == 0) return;
  std::vector<int> next(terms.group_weights.size() + 1);
  for (std::int32_t const group : terms.groups) ++next[static_cast<std::size_t>(group)];
  int begin = 0;
  for (int& entry : next) {
    group_begin_.push_back(begin);
    begin += static_cast<int>(round_up(std::exchange(entry, begin), kGroupRows));
  }
  row_.assign(static_cast<std::size_t>(begin), -1);
  std::vector<int> group(static_cast<std::size_t>(begin / kGroupRows));
  for (std::size_t i = 0; i < terms.groups.size(); ++i) {
    int const place = next[static_cast<std::size_t>(terms.groups[i])]++;
    row_[static_cast<std::size_t>(place)] = static_cast<int>(i);
    group[static_cast<std::size_t>(place / kGroupRows)] = terms.groups[i];
  }
  device_row_ = uploaded(runtime_, row_);
  device_group_ = uploaded(runtime_, group);
  device_group_begin_ = uploaded(runtime_, group_begin_);
  group_weight_ = uploaded(runtime_, terms.group_weights);
}

void RegularizedCosts::finish() {
  std::vector<unsigned char> const found = download(*runtime_, survey_.data(), survey_.size());
  RegularizedSurvey survey;
  std::memcpy(&survey, found.data(), sizeof survey);
  if (survey.first_bad != RegularizedSurvey::kNone) throw_bad_entry(survey.first_bad);
  auto const partners = std::span(found).subspan(sizeof survey);
  require_allowed_partners(Side::rows, p_, partners.first(p_.size()));
  require_allowed_partners(Side::columns, q_, partners.subspan(p_.size()));
  double const least = from_ordered_bits(survey.least), largest = from_ordered_bits(survey.largest);
  require_finite_range(least, largest);
  survey_ = {};
  shares_ = {};
  scale_.offset = least;
  if (largest > least) scale_.range = largest - least;
  matrix_.offset = least;
  matrix_.inverse_range = 1 / scale_.range;
  if (!matrix_.cost.data) scale_points();
  matrix_.l1 = scale_.linear(weights_.l1);
  terms_.quadratic = scale_.quadratic(weights_.quadratic);
  terms_.group_lasso = scale_.linear(weights_.group_lasso);
  terms_.hypentropy = scale_.linear(weights_.hypentropy);
  terms_.width = scale_.width(weights_.hypentropy_width);
  terms_.group = device_group_.data();
  terms_.group_begin = device_group_begin_.data();
  terms_.group_weight = group_weight_.data();
}

void RegularizedCosts::throw_bad_entry(unsigned long long place) const {
  auto const row = static_cast<std::int64_t>(place) / columns(), column = static_cast<std::int64_t>(place) % columns();
  auto const value = [&](StridedView const& view, bool transposed) {
    return element(*runtime_, view, transposed ? column * view.stride + row : row * view.stride + column);
  };
  double const cost = matrix_.cost.data ? value(matrix_.cost, matrix_.transposed) : NAN;
  if (!is_cost(cost)) throw_bad_cost(row, column, cost);
  if (matrix_.l1_weights.data) {
    double const weight = value(matrix_.l1_weights, false);
    if (!is_l1_weight(weight)) throw_bad_l1_weight(row, column, weight);
  }
  throw_bad_mask(row, column, value(matrix_.mask, false));
}

RowOrder RegularizedCosts::order() const {
  if (row_.empty()) return {rows(), nullptr};
  return {static_cast<int>(std::ssize(row_)), device_row_.data()};
}

std::vector<double> RegularizedCosts::in_order(std::span<double const> of_rows) const {
  if (row_.empty()) return {of_rows.begin(), of_rows.end()};
  std::vector<double> result(row_.size());
  for (std::size_t k = 0; k < row_.size(); ++k) {
    if (row_[k] >= 0) result[k] = of_rows[static_cast<std::size_t>(row_[k])];
  }
  return result;
}

}  // namespace monge::cuda
