#include "cpu/point_costs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "core/points.hpp"

namespace monge::cpu {
namespace {

/// Up to this dimension exact differences cost no more than the exponential does and lose no digits to cancellation.
constexpr std::int64_t kLargestDifferenceDimension = 8;

ScoreForm form_for(std::int64_t dimension) {
  return dimension <= kLargestDifferenceDimension ? ScoreForm::differences : ScoreForm::products;
}

}  // namespace

template <class T>
PointCosts<T>::PointCosts(PointCloud const& geometry, std::span<double const> a, std::span<double const> b)
    : PointCosts(geometry.scale, form_for(geometry.x.columns()),
                 packed("x", geometry.x, a, geometry.scale, form_for(geometry.x.columns())),
                 packed("y", geometry.y, b, geometry.scale, form_for(geometry.x.columns()))) {
  shift_[0] = shift_of(Side::rows, geometry.x);
  shift_[1] = shift_of(Side::columns, geometry.y);
  std::vector<double> const w = difference_of_centres();
  this->mean_ = scale_ * (cloud(Side::rows).mean_squared_norm + cloud(Side::columns).mean_squared_norm +
                          std::inner_product(w.begin(), w.end(), w.begin(), 0.0));
}

template <class T>
PointCosts<T>::PointCosts(double scale, ScoreForm form, std::shared_ptr<Cloud const> rows,
                          std::shared_ptr<Cloud const> columns)
    : Costs<T>(rows->points.packed.size, columns->points.packed.size),
      scale_(scale),
      form_(form),
      clouds_{std::move(rows), std::move(columns)} {}

/// The cloud with the norms of its packed points.
template <class T>
auto PointCosts<T>::finished(Cloud cloud, double scale, ScoreForm form) -> std::shared_ptr<Cloud const> {
  PackedPoints<T> const& points = cloud.points.packed;
  cloud.norm.assign(static_cast<std::size_t>(points.size), 0.0);
  for (std::int64_t i = 0; i < points.size; ++i) {
    double square = 0;
    for (std::int64_t k = 0; k < points.dimension; ++k) {
      double const value = points.coordinate(i, k);
      square += value * value;
    }
    cloud.largest_squared_norm = std::max(cloud.largest_squared_norm, square);
    if (form == ScoreForm::products) cloud.norm[static_cast<std::size_t>(i)] = scale * square;
  }
  return std::make_shared<Cloud>(std::move(cloud));
}

template <class T>
auto PointCosts<T>::packed(char const* field, MatrixView points, std::span<double const> weights, double scale,
                           ScoreForm form) -> std::shared_ptr<Cloud const> {
  Cloud cloud;
  cloud.points.centre = centre_of(field, points, weights);
  pack(points, cloud.points.centre, 1.0, cloud.points.packed);
  if (!weights.empty()) cloud.mean_squared_norm = mean_squared_distance(points, cloud.points.centre, weights);
  return finished(std::move(cloud), scale, form);
}

template <class T>
std::shared_ptr<PointCosts<T> const> PointCosts<T>::self(Side side) const {
  std::shared_ptr<Cloud const> const& cloud = clouds_[static_cast<int>(side)];
  std::shared_ptr<PointCosts> result(new PointCosts(scale_, form_, cloud, cloud));
  for (std::vector<double>& shift : result->shift_) shift.assign(cloud->norm.size(), 0.0);
  result->mean_ = 2 * scale_ * cloud->mean_squared_norm;
  return result;
}

template <class T>
std::vector<double> PointCosts<T>::difference_of_centres() const {
  std::vector<double> w = points(Side::rows).centre;
  std::vector<double> const& nu = points(Side::columns).centre;
  std::transform(w.begin(), w.end(), nu.begin(), w.begin(), std::minus<>());
  return w;
}

/// C_ij = C'_ij + s (2 <x'_i, w> + |w|^2) - 2 s <y'_j, w>, w the difference of the centres: the shift of one side.
template <class T>
std::vector<double> PointCosts<T>::shift_of(Side side, MatrixView points) const {
  std::vector<double> const w = difference_of_centres();
  std::vector<double> shift = centred_products(points, this->points(side).centre, w);
  double const factor = side == Side::rows ? 2 * scale_ : -2 * scale_;
  double const constant = side == Side::rows ? scale_ * std::inner_product(w.begin(), w.end(), w.begin(), 0.0) : 0.0;
  for (double& value : shift) value = factor * value + constant;
  return shift;
}

template <class T>
double PointCosts<T>::bound() const {
  double const reach =
      std::sqrt(cloud(Side::rows).largest_squared_norm) + std::sqrt(cloud(Side::columns).largest_squared_norm);
  return scale_ * reach * reach;
}

template <class T>
double PointCosts<T>::factor() const {
  return form_ == ScoreForm::differences ? scale_ : -2 * scale_;
}

template <class T>
ScoreSource<T> PointCosts<T>::scores(Side rows) const {
  return {form_, &cloud(rows).points.packed, &cloud(opposite(rows)).points.packed};
}

template <class T>
std::unique_ptr<Costs<T> const> PointCosts<T>::part(Side side, std::span<std::int64_t const> points) const {
  Cloud some;
  some.points.packed = gather(cloud(side).points.packed, points);
  some.points.centre = cloud(side).points.centre;
  std::shared_ptr<Cloud const> clouds[2] = {clouds_[0], clouds_[1]};
  clouds[static_cast<int>(side)] = finished(std::move(some), scale_, form_);
  std::unique_ptr<PointCosts> result(new PointCosts(scale_, form_, clouds[0], clouds[1]));
  result->shift_[static_cast<int>(opposite(side))] = shift_[static_cast<int>(opposite(side))];
  for (std::int64_t const i : points)
    result->shift_[static_cast<int>(side)].push_back(shift(side)[static_cast<std::size_t>(i)]);
  return result;
}

template <class T>
std::shared_ptr<Costs<T> const> PointCosts<T>::at(Side side, MatrixView points) const {
  Side const other = opposite(side);
  std::shared_ptr<Cloud const> clouds[2] = {clouds_[0], clouds_[1]};
  clouds[static_cast<int>(side)] = packed("points", points, {}, scale_, form_);
  std::shared_ptr<PointCosts> result(new PointCosts(scale_, form_, clouds[0], clouds[1]));
  result->shift_[static_cast<int>(side)] = result->shift_of(side, points);

  // The centre of one side has moved, and the shift of the other follows: from the rows it is -2 s <y'_j, w>, from the
  // columns the centre enters |w|^2 too.
  PackedPoints<T> const& kept = cloud(other).points.packed;
  std::vector<double> const& before = cloud(side).points.centre;
  std::vector<double> const& after = result->cloud(side).points.centre;
  std::vector<double> const& own = cloud(other).points.centre;
  double constant = 0;
  for (std::size_t k = 0; k < own.size(); ++k) {
    if (other == Side::rows) constant += (before[k] - after[k]) * (2 * own[k] - before[k] - after[k]);
  }
  std::vector<double>& moved = result->shift_[static_cast<int>(other)];
  moved = shift_[static_cast<int>(other)];
  for (std::int64_t j = 0; j < kept.size; ++j) {
    double product = 0;
    for (std::size_t k = 0; k < own.size(); ++k)
      product += (before[k] - after[k]) * kept.coordinate(j, static_cast<std::int64_t>(k));
    moved[static_cast<std::size_t>(j)] += scale_ * (2 * product + constant);
  }
  return result;
}

template class PointCosts<float>;
template class PointCosts<double>;

}  // namespace monge::cpu
