#include "cuda/point_costs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/points.hpp"
#include "core/strided.hpp"
#include "cuda/launch/pack.hpp"

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

std::vector<double> difference(std::vector<double> const& p, std::vector<double> const& q) {
  std::vector<double> result(p.size());
  std::transform(p.begin(), p.end(), q.begin(), result.begin(), std::minus<>());
  return result;
}

double squared_length(std::vector<double> const& v) {
  return std::inner_product(v.begin(), v.end(), v.begin(), 0.0);
}

}  // namespace

PointCosts::PointCosts(SharedRuntime runtime, double scale, DataType scalar, std::int64_t dimension)
    : Costs(std::move(runtime)), scale_(scale) {
  scalar_ = scalar;
  form_ = dimension <= kLargestDifferenceDimension ? ScoreForm::differences : ScoreForm::products;
  factor_ = form_ == ScoreForm::differences ? scale : -2 * scale;
}

PointCosts::PointCosts(SharedRuntime runtime, PointCloud const& geometry, double const* a, double const* b,
                       DataType scalar)
    : PointCosts(std::move(runtime), geometry.scale, scalar, geometry.x.columns()) {
  Survey x = survey("x", geometry.x, a);
  Survey y = survey("y", geometry.y, b);
  std::vector<double> const w = difference(x.centre, y.centre);
  pack(Side::rows, std::move(x), w);
  pack(Side::columns, std::move(y), w);
  set_bound();
}

PointCosts::Survey PointCosts::survey(char const* field, MatrixView points, double const* weight) const {
  constexpr unsigned long long kNone = std::numeric_limits<unsigned long long>::max();
  constexpr int kLeastRows = 32, kMostBlocks = 1024;
  Survey result;
  result.size = checked_size(field, points.rows());
  result.dimension = checked_size("dimension", points.columns());
  result.points = upload(runtime_, points, result.staging);

  int const rows = std::max(kLeastRows, (result.size - 1) / kMostBlocks + 1);
  int const blocks = (result.size - 1) / rows + 1;
  std::int64_t const d = result.dimension;
  DeviceArray<double> const means(runtime_, blocks * d), totals(runtime_, blocks);
  DeviceArray<unsigned long long> const found = uploaded(runtime_, std::vector<unsigned long long>{kNone});
  survey_points(
      {
          .input = result.points,
          .size = result.size,
          .dimension = result.dimension,
          .rows_per_block = rows,
          .weight = weight,
          .means = means.data(),
          .totals = totals.data(),
          .first_not_finite = found.data(),
      },
      blocks, runtime_->stream());
  if (unsigned long long const first = download(*runtime_, found.data(), 1)[0]; first != kNone) {
    std::int64_t const row = static_cast<std::int64_t>(first) / d, column = static_cast<std::int64_t>(first) % d;
    std::vector<double> const value = with_data(points, [&](auto const* data) {
      return host_copy(*runtime_, {data + row * points.row_stride() + column, 1, 1, 1, points.device()});
    });
    throw_not_finite(field, row, column, value[0]);
  }
  std::vector<double> const mean = download(*runtime_, means.data(), means.size());
  std::vector<double> const total = download(*runtime_, totals.data(), totals.size());
  result.centre.assign(static_cast<std::size_t>(d), 0.0);
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    double const weight_of_block = total[static_cast<std::size_t>(block)];
    if (weight_of_block == 0) continue;
    sum += weight_of_block;
    for (std::int64_t k = 0; k < d; ++k) {
      double& centre = result.centre[static_cast<std::size_t>(k)];
      centre += (mean[static_cast<std::size_t>(block * d + k)] - centre) * (weight_of_block / sum);
    }
  }
  return result;
}

void PointCosts::pack(Side side, Survey survey, std::vector<double> const& w) {
  bool const rows = side == Side::rows;
  cudaStream_t const stream = runtime_->stream();
  auto cloud = std::make_shared<Cloud>();
  Operand& packed = cloud->operand;
  packed.padded_size = static_cast<int>(round_up(survey.size, kRowPadding));
  packed.dimension = survey.dimension;
  packed.stride = point_stride(packed.dimension);
  packed.scalar = scalar_;
  std::int64_t const padded = packed.padded_size;
  bool const products = form_ == ScoreForm::products;

  cloud->points = DeviceArray<unsigned char>(runtime_, padded * packed.stride * size_of(scalar_));
  cloud->norm = DeviceArray<double>(runtime_, padded);
  cloud->centre_memory = uploaded(runtime_, survey.centre);
  packed.points = cloud->points.data();
  DeviceArray<double> const offset = uploaded(runtime_, w);
  DeviceArray<double> const squared(runtime_, survey.size), largest(runtime_, survey.size);
  DeviceArray<double> shift(runtime_, survey.size);
  double const mean_shift = rows ? scale_ * squared_length(w) : 0.0;
  pack_points(
      {
          .input = survey.points,
          .size = survey.size,
          .padded_size = packed.padded_size,
          .dimension = packed.dimension,
          .stride = packed.stride,
          .scalar = packed.scalar,
          .centre = cloud->centre_memory.data(),
          .offset = offset.data(),
          .norm_factor = products ? scale_ : 0.0,
          .shift_slope = (rows ? 2 : -2) * scale_,
          .shift_constant = mean_shift,
          .points = cloud->points.data(),
          .squared = squared.data(),
          .largest = largest.data(),
          .norm = cloud->norm.data(),
          .shift = shift.data(),
      },
      stream);
  auto const largest_of = [&](DeviceArray<double> const& values) {
    std::vector<double> const host = download(*runtime_, values.data(), values.size());
    return *std::max_element(host.begin(), host.end());
  };
  cloud->largest_squared_norm = largest_of(squared);

  if (products && packed.scalar == DataType::float32) {
    // The largest coordinate to [2^13, 2^14): the high parts are then far from overflow and the low parts of all but
    // very small coordinates are normal numbers.
    double const coordinate = largest_of(largest);
    packed.half_scale = coordinate > 0 ? std::ldexp(1.0, 13 - std::ilogb(coordinate)) : 1.0;
    packed.half_stride = half_stride_of(packed.dimension);
    cloud->high = DeviceArray<unsigned char>(runtime_, padded * packed.half_stride * 2);
    cloud->low = DeviceArray<unsigned char>(runtime_, padded * packed.half_stride * 2);
    packed.high = cloud->high.data();
    packed.low = cloud->low.data();
    split_points(
        {
            .points = static_cast<float const*>(packed.points),
            .size = survey.size,
            .padded_size = packed.padded_size,
            .stride = packed.stride,
            .half_stride = packed.half_stride,
            .half_scale = packed.half_scale,
            .norm_factor = scale_,
            .high = cloud->high.data(),
            .low = cloud->low.data(),
            .norm = cloud->norm.data(),
        },
        stream);
  }
  cloud->centre = std::move(survey.centre);
  set_side(side, survey.size, std::move(cloud), std::move(shift), mean_shift);
}

void PointCosts::set_side(Side side, int size, std::shared_ptr<Cloud const> cloud, DeviceArray<double> shift,
                          double mean_shift) {
  int const s = side_index(side);
  clouds_[s] = std::move(cloud);
  shifts_[s] = std::move(shift);
  side_[s] = {size, clouds_[s]->operand, clouds_[s]->norm.data(), shifts_[s].data(), mean_shift};
}

void PointCosts::set_bound() {
  double const reach = std::sqrt(clouds_[0]->largest_squared_norm) + std::sqrt(clouds_[1]->largest_squared_norm);
  bound_ = scale_ * reach * reach;
}

PointValues PointCosts::points(Side side) const {
  Cloud const& cloud = *clouds_[side_index(side)];
  Operand const& operand = cloud.operand;
  return {{const_cast<void*>(operand.points), operand.stride, operand.scalar},
          operand.dimension,
          cloud.centre_memory.data()};
}

std::shared_ptr<Costs const> PointCosts::at(Side side, MatrixView points) const {
  bool const rows = side == Side::rows;
  Side const other = opposite(side);
  std::shared_ptr<Cloud const> const kept = clouds_[side_index(other)];
  std::shared_ptr<PointCosts> result(new PointCosts(runtime_, scale_, scalar_, points.columns()));
  std::vector<double> const ones(static_cast<std::size_t>(points.rows()), 1.0);
  DeviceArray<double> const weight = uploaded(runtime_, ones);
  Survey fresh = survey("points", points, weight.data());
  std::vector<double> const w = rows ? difference(fresh.centre, kept->centre) : difference(kept->centre, fresh.centre);
  std::vector<double> const w_before = difference(clouds_[0]->centre, clouds_[1]->centre);
  result->pack(side, std::move(fresh), w);

  // w enters the shift of the kept side; the length of w that of the rows alone.
  double const constant = rows ? 0.0 : scale_ * (squared_length(w) - squared_length(w_before));
  DeviceArray<double> const change = uploaded(runtime_, difference(w, w_before));
  DeviceArray<double> shift(runtime_, size(other));
  move_gauge(
      {
          .points = kept->operand,
          .size = size(other),
          .offset = change.data(),
          .shift_slope = (rows ? -2 : 2) * scale_,
          .shift_constant = constant,
          .shift_in = this->shift(other),
          .shift_out = shift.data(),
      },
      runtime_->stream());
  result->set_side(other, size(other), kept, std::move(shift), mean_shift(other) + constant);
  result->set_bound();
  return result;
}

}  // namespace monge::cuda
