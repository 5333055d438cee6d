#include "cuda/geometry/point_costs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "core/strided.hpp"
#include "cuda/launch/copy_words.hpp"
#include "cuda/vectors/kernels.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"

namespace monge::cuda {
namespace {

/// Scores with labels are kept from so many features on. Fewer are multiplied in the time of reading a score.
constexpr int kLeastFeatures = 33;

/// In few dimensions scores are exact differences, else inner products. Coordinates of labels are differences where
/// passes leave out pairs, which is for few of them.
ScoreForm form_for(PointCost const& cost, bool listed) {
  if (cost.is_distance()) return ScoreForm::distances;
  bool const few = cost.features() <= kLargestDifferenceDimension;
  return cost.is_invariant() && few && (listed || !cost.labels) ? ScoreForm::differences : ScoreForm::products;
}

/// Elements between packed points: as the difference kernel reads them for small dimensions, else whole chunks.
int point_stride(ScoreForm form, int dimension) {
  if (form == ScoreForm::products || dimension > kLargestDifferenceDimension)
    return static_cast<int>(round_up(dimension, 16));
  if (dimension <= 2) return dimension;
  return dimension <= 4 ? 4 : 8;
}

PointCost cost_of(Runtime const& runtime, PointCloud const& clouds) {
  if (!clouds.labels.empty() && !has_products(clouds.cost_function))
    throw Error(ErrorCode::unsupported,
                fmt::format("labels: are given with the cost function {} on a CUDA device; it must be sqeuclidean, "
                            "cosine or dot there, or the device the CPU",
                            name(clouds.cost_function)));
  MatrixView const& label_cost = clouds.labels.cost;
  std::vector<double> const copy = host_copy(runtime, label_cost);
  return PointCost(clouds, {copy.data(), label_cost.rows(), label_cost.columns()});
}

/// The points themselves, without directions and labels.
PointCloud undirected(PointCloud const& clouds) {
  PointCloud result{clouds.x, clouds.y};
  result.cost_function = CostFunction::dot;
  return result;
}

}  // namespace

PointCosts::Points PointCosts::points_of(PointCloud const& clouds, Side side) {
  return side == Side::rows ? Points{"x", clouds.x, clouds.labels.x} : Points{"y", clouds.y, clouds.labels.y};
}

PointCosts::PointCosts(SharedRuntime runtime, PointCost cost, DataType scalar, bool listed)
    : Costs(std::move(runtime)), cost_(std::move(cost)), listed_(listed) {
  scalar_ = scalar;
  form_ = form_for(cost_, listed);
  p_ = cost_.p;
  factor_ = form_ == ScoreForm::products ? cost_.product : form_ == ScoreForm::differences ? cost_.square : cost_.scale;
}

PointCosts::PointCosts(SharedRuntime runtime, PointCloud const& clouds, PointWeights a, PointWeights b, DataType scalar,
                       FindingsMemory const& findings, std::int64_t first, Queue const& queue, bool listed)
    : PointCosts(runtime, cost_of(*runtime, clouds), scalar, listed) {
  make_side(Side::rows, points_of(clouds, Side::rows), findings, first);
  make_side(Side::columns, points_of(clouds, Side::columns), findings, first + 1);
  pack(clouds, a, b, queue);
}

void PointCosts::pack(PointCloud const& clouds, PointWeights a, PointWeights b, Queue const& queue) {
  Staging staging[2];
  CloudPair const pair{{arguments(Side::rows, points_of(clouds, Side::rows), a, staging[0], queue),
                        arguments(Side::columns, points_of(clouds, Side::columns), b, staging[1], queue)},
                       2};
  survey_points(pair, queue);
  if (cost_.is_distance()) move_centre(pair.cloud[0].centre, pair.cloud[1].centre, queue);
  pack_points(pair, queue);
  if (cost_.function != CostFunction::cosine) return;
  auto const findings = std::make_shared<DeviceArray<CloudFindings> const>(runtime_, 2);
  undirected_ = std::make_shared<PointCosts>(runtime_, undirected(clouds), a, b, scalar_, findings, 0, queue);
}

void PointCosts::finish(PointCloud const& clouds, CloudFindings const* found) {
  take_findings(Side::rows, points_of(clouds, Side::rows), found[0]);
  take_findings(Side::columns, points_of(clouds, Side::columns), found[1]);
  set_sides(found[0].constant);
  if (cost_.is_distance()) return;
  mean_ = found[0].constant;
  for (int s : {0, 1}) mean_ += found[s].mean_square + found[s].mean_lean;
}

/// Copies a centre: distances have no shifts that could hold the difference of two centres.
void PointCosts::move_centre(double const* from, double* to, Queue const& queue) const {
  copy_words(from, to, cost_.dimension * static_cast<std::int64_t>(sizeof(double)), queue);
}

std::shared_ptr<PointCosts::Survey> PointCosts::make_survey(int size, FindingsMemory const& findings,
                                                            std::int64_t at) const {
  std::int64_t const features = cost_.features();
  auto survey = std::make_shared<Survey>();
  survey->findings_memory = findings;
  survey->findings = findings->data() + at;
  std::int64_t const blocks = survey_blocks(size);
  int const padded = static_cast<int>(round_up(size, kRowPadding));
  survey->memory =
      allocate_parts(runtime_, Part{survey->centre, features}, Part{survey->partial_centres, blocks * features},
                     Part{survey->first_not_finite, blocks}, Part{survey->row_findings, pack_blocks(padded)});
  return survey;
}

std::shared_ptr<PointCosts::Cloud> PointCosts::make_cloud(std::shared_ptr<Survey> survey, int size) const {
  auto cloud = std::make_shared<Cloud>();
  cloud->survey = std::move(survey);
  cloud->size = size;
  Operand& packed = cloud->operand;
  packed.padded_size = static_cast<int>(round_up(size, kRowPadding));
  packed.dimension = checked_size("dimension", cost_.features());
  packed.stride = point_stride(form_, packed.dimension);
  packed.scalar = scalar_;
  bool const halves = form_ == ScoreForm::products && scalar_ == DataType::float32;
  if (halves) packed.half_stride = half_stride_of(packed.dimension);
  std::int64_t const padded = packed.padded_size;
  unsigned char *points = nullptr, *high = nullptr, *low = nullptr;
  cloud->memory =
      allocate_parts(runtime_, Part{points, padded * packed.stride * size_of(scalar_)}, Part{cloud->norm, padded},
                     Part{high, padded * packed.half_stride * 2}, Part{low, padded * packed.half_stride * 2});
  packed.points = points;
  packed.high = high;
  packed.low = low;
  return cloud;
}

void PointCosts::make_side(Side side, Points const& points, FindingsMemory const& findings, std::int64_t at) {
  int const size = checked_size(points.field, points.points.rows());
  clouds_[side_index(side)] = make_cloud(make_survey(size, findings, at), size);
  shifts_[side_index(side)] = std::make_shared<Shift>(runtime_, size);
  side_[side_index(side)].size = size;
}

StridedView PointCosts::features(Side side, Points const& points, Staging& staging, Queue const& queue) const {
  StridedView const input = upload(runtime_, points.points, staging.points);
  bool const directions = cost_.function == CostFunction::cosine;
  if (!directions && !cost_.labels) return input;
  std::int64_t const size = points.points.rows();
  FeatureArguments arguments{};
  arguments.points = input;
  arguments.size = static_cast<int>(size);
  arguments.dimension = static_cast<int>(cost_.dimension);
  arguments.directions = directions;
  if (cost_.labels) {
    IndexView const& labels = points.labels;
    arguments.labels = labels.data;
    arguments.label_stride = labels.stride;
    if (labels.device.type == DeviceType::cpu) {
      std::vector<std::int64_t> contiguous;
      for (std::int64_t i = 0; i < size; ++i) contiguous.push_back(labels.data[i * labels.stride]);
      staging.labels = uploaded(runtime_, contiguous);
      arguments.labels = staging.labels.data();
      arguments.label_stride = 1;
    }
    staging.classes = uploaded(runtime_, cost_.label_features(side));
    arguments.classes = staging.classes.data();
    arguments.width = static_cast<int>(cost_.labels->width());
    arguments.class_count = static_cast<int>(cost_.labels->classes(side));
  }
  staging.features = DeviceArray<double>(runtime_, size * cost_.features());
  arguments.out = staging.features.data();
  make_features(arguments, queue);
  return {staging.features.data(), cost_.features(), DataType::float64};
}

CloudArguments PointCosts::arguments(Side side, Points const& points, PointWeights weights, Staging& staging,
                                     Queue const& queue) const {
  Cloud const& cloud = *clouds_[side_index(side)];
  Survey const& survey = *cloud.survey;
  return {
      .input = features(side, points, staging, queue),
      .dimension = static_cast<int>(cost_.dimension),
      .square = cost_.square,
      .product = cost_.product,
      .weight = weights.weight,
      .total = weights.total,
      .packed = cloud.operand,
      .size = cloud.size,
      .survey_blocks = survey_blocks(cloud.size),
      .partial_centres = survey.partial_centres,
      .first_not_finite = survey.first_not_finite,
      .centre = survey.centre,
      .other_centre = clouds_[side_index(opposite(side))]->survey->centre,
      .row_findings = survey.row_findings,
      .findings = survey.findings,
      .norm_factor = form_ == ScoreForm::products ? cost_.square : 0.0,
      // s |u - v|^2 of two labels exceeds their cost, which is -2 s <u, v>, by the norms.
      .label_norm_factor = form_ == ScoreForm::differences ? -cost_.square : 0.0,
      .norm = cloud.norm,
      .shift = shifts_[side_index(side)]->data(),
  };
}

void PointCosts::take_findings(Side side, Points const& points, CloudFindings const& found) {
  clouds_[side_index(side)]->survey->found = found;
  if (found.first_not_finite == kAllFinite) return;
  std::int64_t const first = static_cast<std::int64_t>(found.first_not_finite);
  std::int64_t const row = first / cost_.features(), column = first % cost_.features();
  if (column >= cost_.dimension) {
    std::int64_t const* const at = points.labels.data + row * points.labels.stride;
    std::int64_t label = 0;
    if (points.labels.device.type == DeviceType::cpu) {
      label = *at;
    } else {
      label = download(*runtime_, at, 1)[0];
    }
    throw_no_class((std::string("labels_") + points.field).c_str(), row, label, cost_.labels->classes(side));
  }
  MatrixView const& view = points.points;
  std::vector<double> const value = with_data(view, [&](auto const* data) {
    return host_copy(*runtime_, {data + row * view.row_stride() + column, 1, 1, 1, view.device()});
  });
  if (std::isfinite(value[0])) throw_no_direction(points.field, row);
  throw_not_finite(points.field, row, column, value[0]);
}

void PointCosts::set_sides(double constant) {
  double largest_square[2], largest_square_of_mass[2];
  for (int s : {0, 1}) {
    Cloud& cloud = *clouds_[s];
    CloudFindings const& found = cloud.survey->found;
    cloud.operand.half_scale = found.half_scale;
    largest_square[s] = found.largest_squared_norm;
    largest_square_of_mass[s] = found.largest_squared_norm_of_mass;
    side_[s] = {cloud.size, cloud.operand, cloud.norm, shifts_[s]->data(), constant / 2};
  }
  bool const is_double = scalar_ == DataType::float64;
  auto const bound = [&](double const(&square)[2]) {
    return cost_.bound(square[0], square[1],
                       is_double ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max());
  };
  bound_of_all_ = bound(largest_square);
  bound_ = std::isfinite(bound_of_all_) ? bound(largest_square_of_mass) : bound_of_all_;
}

void PointCosts::keep_scores(double cache_bytes) {
  cache_bytes_ = cache_bytes;
  std::int64_t const n = padded_size(Side::rows), m = padded_size(Side::columns), size = n * m;
  if (!cost_.labels || scalar_ != DataType::float32 || cost_.features() < kLeastFeatures ||
      static_cast<double>(size) * sizeof(float) > cache_bytes)
    return;
  cudaStream_t const stream = runtime_->stream();
  kept_scores_ = DeviceArray<float>(runtime_, size);
  DeviceArray<float> const largest(runtime_, size / kLogitGroup), zeros(runtime_, std::max(n, m));
  MONGE_CUDA_TRY(cudaMemsetAsync(zeros.data(), 0, to_size(zeros.bytes()), stream));
  Launch pass = launch(Side::rows, 0, padded_size(Side::rows), Pass::logits);
  pass.arguments.factor *= -1;  // Costs, not logits.
  pass.arguments.logits = pass.arguments.factors = pass.arguments.references = zeros.data();
  pass.arguments.entries = {scalar_, m, kept_scores_.data(), largest.data()};
  launch_pass(pass.plan, pass.arguments, stream);
  order_logits(kept_scores_.data(), size, stream);
  form_ = ScoreForm::stored;
  stored_ = {.data = kept_scores_.data(),
             .scalar = scalar_,
             .stride = m,
             .aligned = true,
             .rows = this->size(Side::rows),
             .columns = this->size(Side::columns)};
}

PointValues PointCosts::points(Side side) const {
  return undirected_ ? undirected_->features(side) : features(side);
}

PointValues PointCosts::features(Side side) const {
  Cloud const& cloud = *clouds_[side_index(side)];
  Operand const& operand = cloud.operand;
  return {{const_cast<void*>(operand.points), operand.stride, operand.scalar},
          static_cast<int>(cost_.dimension),
          cloud.survey->centre};
}

PointValues PointCosts::labels(Side side) const {
  if (!cost_.labels) return {};
  Cloud const& cloud = *clouds_[side_index(side)];
  Operand const& operand = cloud.operand;
  auto* const first =
      static_cast<unsigned char*>(const_cast<void*>(operand.points)) + cost_.dimension * size_of(operand.scalar);
  return {{first, operand.stride, operand.scalar},
          static_cast<int>(cost_.labels->width()),
          cloud.survey->centre + cost_.dimension};
}

std::shared_ptr<Costs const> PointCosts::renewed(Geometry const& geometry, PointWeights a, PointWeights b,
                                                 bool unshared) const {
  PointCloud const& clouds = clouds_of(geometry);
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, cost_of(*runtime_, clouds), scalar_, listed_));
  auto const is_free = [&](int s) {
    return clouds_[s].use_count() == 1 && clouds_[s]->survey.use_count() == 1 && shifts_[s].use_count() == 1;
  };
  if (unshared && is_free(0) && is_free(1)) {
    for (int s : {0, 1}) {
      result->clouds_[s] = clouds_[s];
      result->shifts_[s] = shifts_[s];
    }
  } else {
    auto const findings = std::make_shared<DeviceArray<CloudFindings> const>(runtime_, 2);
    result->make_side(Side::rows, points_of(clouds, Side::rows), findings, 0);
    result->make_side(Side::columns, points_of(clouds, Side::columns), findings, 1);
  }
  result->pack(clouds, a, b, runtime_->stream());
  CloudFindings found[2];
  download(*runtime_, result->clouds_[0]->survey->findings, found, sizeof found);
  result->finish(clouds, found);
  result->keep_scores(cache_bytes_);
  return result;
}

std::shared_ptr<Costs const> PointCosts::twin(Geometry const& geometry, DataType scalar, Queue const& queue) const {
  PointCloud const& clouds = clouds_of(geometry);
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, cost_, scalar, listed_));
  bool const is_self = clouds_[0] == clouds_[1];
  for (int s : {0, 1}) {
    Cloud const& cloud = *clouds_[s];
    result->clouds_[s] = is_self && s == 1 ? result->clouds_[0] : result->make_cloud(cloud.survey, cloud.size);
    result->shifts_[s] = shifts_[s];
  }
  Staging staging[2];
  CloudPair pair{{result->arguments(Side::rows, points_of(clouds, Side::rows), {}, staging[0], queue)}, 1};
  if (!is_self)
    pair.cloud[pair.count++] =
        result->arguments(Side::columns, points_of(clouds, Side::columns), {}, staging[1], queue);
  for (CloudArguments& cloud : pair.cloud) cloud.row_findings = nullptr;
  pack_points(pair, queue);
  if (undirected_) {
    result->undirected_ =
        std::static_pointer_cast<PointCosts const>(undirected_->twin(undirected(clouds), scalar, queue));
  }
  result->set_sides(is_self ? 0 : clouds_[0]->survey->found.constant);
  result->mean_ = mean_;
  return result;
}

std::shared_ptr<PointCosts const> PointCosts::self(Side side, Queue const& queue) const {
  std::shared_ptr<Cloud> const& cloud = clouds_[side_index(side)];
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, cost_, scalar_, listed_));
  auto const shift = std::make_shared<Shift>(runtime_, cloud->size);
  combine({cloud->size, 0, {}, shift->data()}, queue);
  for (int s : {0, 1}) {
    result->clouds_[s] = cloud;
    result->shifts_[s] = shift;
  }
  result->set_sides(0);
  if (!cost_.is_distance()) result->mean_ = 2 * cloud->survey->found.mean_square;
  if (undirected_) result->undirected_ = undirected_->self(side, queue);
  return result;
}

std::shared_ptr<PointCosts const> PointCosts::at(Side side, MatrixView points, IndexView labels) const {
  require_labels(cost_, labels);
  Side const other = opposite(side);
  Points const fresh_points{"points", points, labels};
  std::shared_ptr<Cloud> const& kept = clouds_[side_index(other)];
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, cost_, scalar_, listed_));
  auto const findings = std::make_shared<DeviceArray<CloudFindings> const>(runtime_, 1);
  result->make_side(side, fresh_points, findings, 0);
  result->clouds_[side_index(other)] = kept;
  Staging staging;
  Queue const queue = runtime_->stream();
  PointWeights const ones{nullptr, static_cast<double>(points.rows())};
  CloudPair const fresh{{result->arguments(side, fresh_points, ones, staging, queue)}, 1};
  survey_points(fresh, queue);
  if (cost_.is_distance()) move_centre(kept->survey->centre, fresh.cloud[0].centre, queue);
  pack_points(fresh, queue);
  result->shifts_[side_index(other)] = moved_shift(*this, other, fresh.cloud[0].centre);
  CloudFindings const found = download(*runtime_, findings->data(), 1)[0];
  result->take_findings(side, fresh_points, found);
  result->set_sides(found.constant);
  require_no_overflow_of_new(result->bound());
  if (undirected_) result->undirected_ = undirected_->at(side, points, {});
  return result;
}

bool PointCosts::packs_like(PointCosts const& other) const {
  bool const has_own_centres = !cost_.is_distance() && !undirected_;
  bool const computes = kept_scores_.size() == 0 && other.kept_scores_.size() == 0;
  return form_ == other.form_ && scalar_ == other.scalar_ && has_own_centres && computes;
}

std::shared_ptr<PointCosts const> PointCosts::at(Side side, PointCosts const& owner) const {
  Side const other = opposite(side);
  int const s = side_index(side), o = side_index(other);
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, cost_, scalar_, listed_));
  result->clouds_[s] = owner.clouds_[s];
  result->clouds_[o] = clouds_[o];
  result->shifts_[s] = moved_shift(owner, side, clouds_[o]->survey->centre);
  result->shifts_[o] = moved_shift(*this, other, owner.clouds_[s]->survey->centre);
  result->set_sides(owner.clouds_[0]->survey->found.constant);
  require_no_overflow_of_new(result->bound());
  return result;
}

std::shared_ptr<PointCosts::Shift> PointCosts::moved_shift(PointCosts const& from, Side side,
                                                           double const* centre) const {
  Cloud const& cloud = *from.clouds_[side_index(side)];
  auto shift = std::make_shared<Shift>(runtime_, cloud.size);
  move_gauge(
      {
          .points = cloud.operand,
          .size = cloud.size,
          .dimension = static_cast<int>(cost_.dimension),
          .square = cost_.square,
          .product = cost_.product,
          .centre = cloud.survey->centre,
          .before = from.clouds_[side_index(opposite(side))]->survey->centre,
          .after = centre,
          .shift_in = from.shifts_[side_index(side)]->data(),
          .shift_out = shift->data(),
      },
      runtime_->stream());
  return shift;
}

}  // namespace monge::cuda
