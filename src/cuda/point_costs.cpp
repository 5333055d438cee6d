#include "cuda/point_costs.hpp"

#include <cmath>
#include <variant>

#include "core/points.hpp"
#include "core/strided.hpp"
#include "cuda/launch/vectors.hpp"

namespace monge::cuda {
namespace {

/// Up to this dimension costs come from exact differences, above it from inner products.
constexpr int kLargestDifferenceDimension = 8;

/// Elements between the packed rows: small dimensions as the difference kernel wants them, others in whole chunks.
int point_stride(int dimension) {
  if (dimension <= 2) return dimension;
  if (dimension <= 4) return 4;
  if (dimension <= 8) return 8;
  return static_cast<int>(round_up(dimension, 16));
}

}  // namespace

PointCosts::PointCosts(SharedRuntime runtime, double scale, DataType scalar, std::int64_t dimension)
    : Costs(std::move(runtime)), scale_(scale) {
  scalar_ = scalar;
  form_ = dimension <= kLargestDifferenceDimension ? ScoreForm::differences : ScoreForm::products;
  factor_ = form_ == ScoreForm::differences ? scale : -2 * scale;
}

PointCosts::PointCosts(SharedRuntime runtime, PointCloud const& clouds, PointWeights a, PointWeights b, DataType scalar,
                       FindingsMemory const& findings, std::int64_t first, Queue const& queue)
    : PointCosts(std::move(runtime), clouds.scale, scalar, clouds.x.columns()) {
  make_side(Side::rows, "x", clouds.x, findings, first);
  make_side(Side::columns, "y", clouds.y, findings, first + 1);
  pack(clouds, a, b, queue);
}

void PointCosts::pack(PointCloud const& clouds, PointWeights a, PointWeights b, Queue const& queue) const {
  DeviceArray<unsigned char> staging[2];
  CloudPair const pair{
      {arguments(Side::rows, clouds.x, a, staging[0]), arguments(Side::columns, clouds.y, b, staging[1])}, 2};
  survey_points(pair, queue);
  pack_points(pair, queue);
}

void PointCosts::finish(PointCloud const& clouds, CloudFindings const* found) {
  take_findings(Side::rows, "x", clouds.x, found[0]);
  take_findings(Side::columns, "y", clouds.y, found[1]);
  set_sides(found[0].squared_offset);
  mean_ = found[0].mean_cost + found[1].mean_cost + scale_ * found[0].squared_offset;
}

std::shared_ptr<PointCosts::Survey> PointCosts::make_survey(int size, int dimension, FindingsMemory const& findings,
                                                            std::int64_t at) const {
  auto survey = std::make_shared<Survey>();
  survey->findings_memory = findings;
  survey->findings = findings->data() + at;
  std::int64_t const blocks = survey_blocks(size);
  int const padded = static_cast<int>(round_up(size, kRowPadding));
  survey->memory =
      allocate_parts(runtime_, Part{survey->centre, dimension}, Part{survey->partial_centres, blocks * dimension},
                     Part{survey->first_not_finite, blocks}, Part{survey->row_findings, pack_blocks(padded)});
  return survey;
}

std::shared_ptr<PointCosts::Cloud> PointCosts::make_cloud(std::shared_ptr<Survey> survey, int size,
                                                          int dimension) const {
  auto cloud = std::make_shared<Cloud>();
  cloud->survey = std::move(survey);
  cloud->size = size;
  Operand& packed = cloud->operand;
  packed.padded_size = static_cast<int>(round_up(size, kRowPadding));
  packed.dimension = dimension;
  packed.stride = point_stride(dimension);
  packed.scalar = scalar_;
  bool const halves = form_ == ScoreForm::products && scalar_ == DataType::float32;
  if (halves) packed.half_stride = half_stride_of(dimension);
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

void PointCosts::make_side(Side side, char const* field, MatrixView points, FindingsMemory const& findings,
                           std::int64_t at) {
  int const size = checked_size(field, points.rows()), dimension = checked_size("dimension", points.columns());
  clouds_[side_index(side)] = make_cloud(make_survey(size, dimension, findings, at), size, dimension);
  shifts_[side_index(side)] = std::make_shared<Shift>(runtime_, size);
  side_[side_index(side)].size = size;
}

CloudArguments PointCosts::arguments(Side side, MatrixView points, PointWeights weights,
                                     DeviceArray<unsigned char>& staging) const {
  Cloud const& cloud = *clouds_[side_index(side)];
  Survey const& survey = *cloud.survey;
  return {
      .input = upload(runtime_, points, staging),
      .is_rows = side == Side::rows,
      .scale = scale_,
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
      .norm_factor = form_ == ScoreForm::products ? scale_ : 0.0,
      .norm = cloud.norm,
      .shift = shifts_[side_index(side)]->data(),
  };
}

void PointCosts::take_findings(Side side, char const* field, MatrixView points, CloudFindings const& found) {
  clouds_[side_index(side)]->survey->found = found;
  if (found.first_not_finite == kAllFinite) return;
  std::int64_t const first = static_cast<std::int64_t>(found.first_not_finite);
  std::int64_t const row = first / points.columns(), column = first % points.columns();
  std::vector<double> const value = with_data(points, [&](auto const* data) {
    return host_copy(*runtime_, {data + row * points.row_stride() + column, 1, 1, 1, points.device()});
  });
  throw_not_finite(field, row, column, value[0]);
}

void PointCosts::set_sides(double squared_offset) {
  double reach = 0;
  for (int s : {0, 1}) {
    Cloud& cloud = *clouds_[s];
    CloudFindings const& found = cloud.survey->found;
    cloud.operand.half_scale = found.half_scale;
    reach += std::sqrt(found.largest_squared_norm);
    side_[s] = {cloud.size, cloud.operand, cloud.norm, shifts_[s]->data(), s == 0 ? scale_ * squared_offset : 0.0};
  }
  bound_ = scale_ * reach * reach;
}

PointValues PointCosts::points(Side side) const {
  Cloud const& cloud = *clouds_[side_index(side)];
  Operand const& operand = cloud.operand;
  return {{const_cast<void*>(operand.points), operand.stride, operand.scalar}, operand.dimension, cloud.survey->centre};
}

std::shared_ptr<Costs const> PointCosts::renewed(Geometry const& geometry, PointWeights a, PointWeights b,
                                                 bool unshared) const {
  PointCloud const& clouds = std::get<PointCloud>(geometry);
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, clouds.scale, scalar_, clouds.x.columns()));
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
    result->make_side(Side::rows, "x", clouds.x, findings, 0);
    result->make_side(Side::columns, "y", clouds.y, findings, 1);
  }
  result->pack(clouds, a, b, runtime_->stream());
  CloudFindings found[2];
  download(*runtime_, result->clouds_[0]->survey->findings, found, sizeof found);
  result->finish(clouds, found);
  return result;
}

std::shared_ptr<Costs const> PointCosts::twin(Geometry const& geometry, DataType scalar, Queue const& queue) const {
  PointCloud const& clouds = std::get<PointCloud>(geometry);
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, scale_, scalar, clouds.x.columns()));
  bool const is_self = clouds_[0] == clouds_[1];
  for (int s : {0, 1}) {
    Cloud const& cloud = *clouds_[s];
    result->clouds_[s] =
        is_self && s == 1 ? result->clouds_[0] : result->make_cloud(cloud.survey, cloud.size, cloud.operand.dimension);
    result->shifts_[s] = shifts_[s];
  }
  DeviceArray<unsigned char> staging[2];
  CloudPair pair{{result->arguments(Side::rows, clouds.x, {}, staging[0])}, 1};
  if (!is_self) pair.cloud[pair.count++] = result->arguments(Side::columns, clouds.y, {}, staging[1]);
  for (CloudArguments& cloud : pair.cloud) cloud.row_findings = nullptr;
  pack_points(pair, queue);
  result->set_sides(is_self ? 0 : clouds_[0]->survey->found.squared_offset);
  result->mean_ = mean_;
  return result;
}

std::shared_ptr<Costs const> PointCosts::self(Side side, Queue const& queue) const {
  std::shared_ptr<Cloud> const& cloud = clouds_[side_index(side)];
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, scale_, scalar_, cloud->operand.dimension));
  auto const shift = std::make_shared<Shift>(runtime_, cloud->size);
  combine({cloud->size, 0, {}, shift->data()}, queue);
  for (int s : {0, 1}) {
    result->clouds_[s] = cloud;
    result->shifts_[s] = shift;
  }
  result->set_sides(0);
  result->mean_ = 2 * cloud->survey->found.mean_cost;
  return result;
}

std::shared_ptr<Costs const> PointCosts::at(Side side, MatrixView points) const {
  Side const other = opposite(side);
  std::shared_ptr<Cloud> const& kept = clouds_[side_index(other)];
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, scale_, scalar_, points.columns()));
  auto const findings = std::make_shared<DeviceArray<CloudFindings> const>(runtime_, 1);
  result->make_side(side, "points", points, findings, 0);
  result->clouds_[side_index(other)] = kept;
  result->shifts_[side_index(other)] = std::make_shared<Shift>(runtime_, kept->size);
  DeviceArray<unsigned char> staging;
  CloudPair const fresh{{result->arguments(side, points, {nullptr, static_cast<double>(points.rows())}, staging)}, 1};
  survey_points(fresh, runtime_->stream());
  pack_points(fresh, runtime_->stream());
  move_gauge(
      {
          .points = kept->operand,
          .size = kept->size,
          .is_rows = other == Side::rows,
          .scale = scale_,
          .centre = kept->survey->centre,
          .before = clouds_[side_index(side)]->survey->centre,
          .after = fresh.cloud[0].centre,
          .shift_in = shift(other),
          .shift_out = result->shifts_[side_index(other)]->data(),
      },
      runtime_->stream());
  CloudFindings const found = download(*runtime_, findings->data(), 1)[0];
  result->take_findings(side, "points", points, found);
  result->set_sides(found.squared_offset);
  return result;
}

}  // namespace monge::cuda
