#include "cpu/geometry/point_costs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/numbers.hpp"
#include "cpu/geometry/features.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"

namespace monge::cpu {
namespace {

/// Up to this dimension exact differences cost no more than the exponential, and no digits cancel.
constexpr std::int64_t kLargestDifferenceDimension = 8;

ScoreForm form_for(PointCost const& cost) {
  if (cost.is_distance()) return ScoreForm::distances;
  return cost.is_invariant() && cost.dimension <= kLargestDifferenceDimension ? ScoreForm::differences
                                                                              : ScoreForm::products;
}

}  // namespace

template <class T>
PointCosts<T>::PointCosts(std::int64_t n, std::int64_t m, PointCost cost)
    : Costs<T>(n, m), cost_(std::move(cost)), form_(form_for(cost_)) {}

template <class T>
PointCosts<T>::PointCosts(PointCloud const& geometry, std::span<double const> a, std::span<double const> b)
    : PointCosts(geometry.x.rows(), geometry.y.rows(), PointCost(geometry, geometry.labels.cost)) {
  Features const x(cost_, "x", geometry.x), y(cost_, "y", geometry.y);
  std::vector<double> mu = centre_of("x", x.view(), a), nu = centre_of("y", y.view(), b);
  if (cost_.is_distance()) nu = mu;  // Distances have no shifts that could hold the difference of the centres.
  auto const mean_square = [&](MatrixView features, std::vector<double> const& centre,
                               std::span<double const> weights) {
    return cost_.square != 0 ? mean_squared_distance(features, centre, weights) : 0;
  };
  double const of_x = mean_square(x.view(), mu, a), of_y = mean_square(y.view(), nu, b);
  clouds_[0] = packed(x.view(), mu, of_x, a);
  clouds_[1] = packed(y.view(), nu, of_y, b);
  set_bounds();
  shift_[0] = shift_of(Side::rows, x.view());
  shift_[1] = shift_of(Side::columns, y.view());
  if (cost_.function == CostFunction::cosine) {
    undirected_[0] = undirected(geometry.x, centre_of("x", geometry.x, a));
    undirected_[1] = undirected(geometry.y, centre_of("y", geometry.y, b));
  }
  // Centred points have mean 0, so only the constant of the shifts contributes to the mean.
  if (!cost_.is_distance()) this->mean_ = constant() + cost_.square * (of_x + of_y);
  add_labels(geometry, a, b);
}

template <class T>
void PointCosts<T>::use_labels(std::shared_ptr<PointLabels const> labels) {
  labels_ = std::move(labels);
  if (!labels_) return;
  for (Side const side : kSides) {
    int const s = static_cast<int>(side);
    packed_labels_[s] = cpu::pack_labels<T>(labels_->of[s]);
    label_scores_[s] = std::make_shared<std::vector<T>>(cpu::label_scores<T>(*labels_, side, factor()));
  }
}

template <class T>
void PointCosts<T>::add_labels(PointCloud const& geometry, std::span<double const> a, std::span<double const> b) {
  if (!cost_.labels) return;
  use_labels(std::make_shared<PointLabels>(cost_.labels, geometry.labels, a, b));
  for (Side const side : kSides) add_label_shifts(side);
  this->mean_ += labels_->mean;
}

template <class T>
void PointCosts<T>::add_label_shifts(Side side) {
  if (!labels_) return;
  int const s = static_cast<int>(side);
  for (std::size_t i = 0; i < shift_[s].size(); ++i) shift_[s][i] += labels_->shift[s][to_size(labels_->of[s][i])];
}

template <class T>
PointCosts<T>::PointCosts(PointCosts const& like, std::shared_ptr<Cloud const> rows,
                          std::shared_ptr<Cloud const> columns)
    : Costs<T>(rows->packed.size, columns->packed.size),
      cost_(like.cost_),
      form_(like.form_),
      clouds_{std::move(rows), std::move(columns)},
      undirected_{like.undirected_[0], like.undirected_[1]},
      label_scores_{like.label_scores_[0], like.label_scores_[1]} {
  set_bounds();
}

/// Adds the norms of the packed points to a cloud.
template <class T>
auto PointCosts<T>::measured(Cloud cloud, std::span<double const> weights) const -> std::shared_ptr<Cloud> {
  PackedPoints<T> const& points = cloud.packed;
  cloud.norm.assign(to_size(points.size), 0.0);
  for (std::int64_t i = 0; i < points.size; ++i) {
    double square = 0;
    for (std::int64_t k = 0; k < cost_.dimension; ++k) {
      double const value = points.coordinate(i, k);
      square += value * value;
    }
    cloud.largest_squared_norm = std::max(cloud.largest_squared_norm, square);
    if (weights.empty() || weights[to_size(i)] > 0)
      cloud.largest_squared_norm_of_mass = std::max(cloud.largest_squared_norm_of_mass, square);
    if (form_ == ScoreForm::products) cloud.norm[to_size(i)] = cost_.square * square;
  }
  return std::make_shared<Cloud>(std::move(cloud));
}

template <class T>
auto PointCosts<T>::packed(MatrixView features, std::vector<double> const& centre, double mean_square,
                           std::span<double const> weights) const -> std::shared_ptr<Cloud> {
  Cloud cloud;
  cloud.centre = centre;
  cloud.mean_square = mean_square;
  pack(features, cloud.centre, cloud.packed);
  return measured(std::move(cloud), weights);
}

template <class T>
auto PointCosts<T>::undirected(MatrixView points, std::vector<double> const& centre) const
    -> std::shared_ptr<Cloud const> {
  auto cloud = std::make_shared<Cloud>();
  cloud->centre = centre;
  pack(points, cloud->centre, cloud->packed);
  return cloud;
}

template <class T>
std::shared_ptr<Costs<Other<T>> const> PointCosts<T>::twin(Geometry const& geometry) const {
  using Twin = PointCosts<Other<T>>;
  PointCloud const& clouds = clouds_of(geometry);
  std::shared_ptr<Twin> result(new Twin(this->size(Side::rows), this->size(Side::columns), cost_));
  bool const is_self = clouds_[0] == clouds_[1];
  for (Side const side : kSides) {
    int const s = static_cast<int>(side);
    bool const of_rows = side == Side::rows;
    MatrixView const points = of_rows ? clouds.x : clouds.y;
    if (is_self && !of_rows) {
      result->clouds_[1] = result->clouds_[0];
    } else {
      Features const features(cost_, of_rows ? "x" : "y", points);
      auto const packed = result->packed(features.view(), cloud(side).centre, cloud(side).mean_square);
      packed->largest_squared_norm_of_mass = cloud(side).largest_squared_norm_of_mass;
      result->clouds_[s] = packed;
    }
    if (undirected_[s]) result->undirected_[s] = result->undirected(points, undirected_[s]->centre);
    result->shift_[s] = shift_[s];
  }
  result->set_bounds();
  result->mean_ = this->mean_;
  result->use_labels(labels_);
  return result;
}

template <class T>
std::shared_ptr<PointCosts<T> const> PointCosts<T>::self(PointCloud const& geometry, std::span<double const> a,
                                                         PointCosts const& like, Side side) {
  std::shared_ptr<PointCosts> result;
  if (like.cost_.is_invariant()) {  // The packed cloud does not depend on the other cloud's centre.
    std::shared_ptr<Cloud const> const& cloud = like.clouds_[static_cast<int>(side)];
    result.reset(new PointCosts(like, cloud, cloud));
    for (std::vector<double>& shift : result->shift_) shift.assign(cloud->norm.size(), 0.0);
    result->mean_ = 2 * like.cost_.square * cloud->mean_square;
    for (std::shared_ptr<Cloud const>& undirected : result->undirected_)
      undirected = like.undirected_[static_cast<int>(side)];
    result->add_labels(geometry, a, a);
  } else {
    result = std::make_shared<PointCosts>(geometry, a, a);
    result->clouds_[1] = result->clouds_[0];
  }
  auto& [rows, columns] = result->shift_;  // Equal up to rounding: the cost is symmetric.
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = columns[i] = (rows[i] + columns[i]) / 2;
  return result;
}

template <class T>
double PointCosts<T>::constant() const {
  double sum = 0;
  for (std::size_t k = 0; k < cloud(Side::rows).centre.size(); ++k)
    sum += cost_.constant(cloud(Side::rows).centre[k], cloud(Side::columns).centre[k]);
  return sum;
}

template <class T>
std::vector<double> PointCosts<T>::shift_of(Side side, MatrixView features) const {
  std::vector<double> const& own = cloud(side).centre;
  std::vector<double> lean(own.size());
  for (std::size_t k = 0; k < own.size(); ++k) lean[k] = cost_.lean(own[k], cloud(opposite(side)).centre[k]);
  std::vector<double> shift = centred_products(features, own, lean);
  double const half = constant() / 2;
  for (double& value : shift) value += half;
  return shift;
}

template <class T>
void PointCosts<T>::set_bounds() {
  Cloud const &x = cloud(Side::rows), &y = cloud(Side::columns);
  auto const bound = [&](double of_x, double of_y) { return cost_.bound(of_x, of_y, std::numeric_limits<T>::max()); };
  this->depth_ = bound(x.largest_squared_norm, y.largest_squared_norm);
  this->bound_ = std::isfinite(this->depth_) ? bound(x.largest_squared_norm_of_mass, y.largest_squared_norm_of_mass)
                                             : this->depth_;
}

template <class T>
double PointCosts<T>::factor() const {
  if (form_ == ScoreForm::products) return cost_.product;
  return form_ == ScoreForm::differences ? cost_.square : cost_.scale;
}

template <class T>
ScoreSource<T> PointCosts<T>::scores(Side rows) const {
  LabelTable<T> labels;
  if (auto const& table = label_scores_[static_cast<int>(rows)]) {
    labels = {.table = table->data(),
              .size = std::ssize(*table),
              .row_stride = cost_.labels->classes(opposite(rows)),
              .rows = packed_labels_[static_cast<int>(rows)].data(),
              .columns = packed_labels_[static_cast<int>(opposite(rows))].data()};
  }
  return {.form = form_,
          .rows = &cloud(rows).packed,
          .columns = &cloud(opposite(rows)).packed,
          .p = cost_.p,
          .labels = labels};
}

template <class T>
PointValues<T> PointCosts<T>::points(Side side) const {
  std::shared_ptr<Cloud const> const& plain = undirected_[static_cast<int>(side)];
  Cloud const& values = plain ? *plain : cloud(side);
  return {&values.packed, values.centre};
}

template <class T>
std::unique_ptr<Costs<T> const> PointCosts<T>::part(Side side, std::span<std::int64_t const> points) const {
  Cloud some;
  some.packed = gather(cloud(side).packed, points);
  some.centre = cloud(side).centre;
  std::shared_ptr<Cloud const> clouds[2] = {clouds_[0], clouds_[1]};
  clouds[static_cast<int>(side)] = measured(std::move(some));
  std::unique_ptr<PointCosts> result(new PointCosts(*this, clouds[0], clouds[1]));
  result->shift_[static_cast<int>(opposite(side))] = shift_[static_cast<int>(opposite(side))];
  for (std::int64_t const i : points) result->shift_[static_cast<int>(side)].push_back(shift(side)[to_size(i)]);
  if (!labels_) return result;
  std::vector<std::int64_t> of;
  for (std::int64_t const i : points) of.push_back(labels_->of[static_cast<int>(side)][to_size(i)]);
  result->packed_labels_[static_cast<int>(side)] = cpu::pack_labels<T>(of);
  result->packed_labels_[static_cast<int>(opposite(side))] = packed_labels_[static_cast<int>(opposite(side))];
  return result;
}

template <class T>
std::shared_ptr<PointCosts<T> const> PointCosts<T>::at(Side side, MatrixView points, IndexView labels) const {
  require_labels(cost_, labels);
  Side const other = opposite(side);
  Features const features(cost_, "points", points);
  std::vector<double> centre = centre_of("points", features.view(), {});
  if (cost_.is_distance()) centre = cloud(other).centre;
  std::shared_ptr<Cloud const> clouds[2] = {clouds_[0], clouds_[1]};
  clouds[static_cast<int>(side)] = packed(features.view(), centre);
  std::shared_ptr<PointCosts> result(new PointCosts(*this, clouds[0], clouds[1]));
  result->shift_[static_cast<int>(side)] = result->shift_of(side, features.view());
  if (cost_.function == CostFunction::cosine)
    result->undirected_[static_cast<int>(side)] = undirected(points, centre_of("points", points, {}));
  if (labels_) result->use_labels(std::make_shared<PointLabels>(labels_->at(side, labels)));
  result->add_label_shifts(side);

  // The new points have another centre, so the kept side's shift, which depends on it, changes too.
  PackedPoints<T> const& kept = cloud(other).packed;
  std::vector<double> const& own = cloud(other).centre;
  std::vector<double> change(own.size());
  for (std::size_t k = 0; k < own.size(); ++k)
    change[k] = cost_.product * (result->cloud(side).centre[k] - cloud(side).centre[k]);
  double const offset = (result->constant() - constant()) / 2;
  std::vector<double>& moved = result->shift_[static_cast<int>(other)];
  moved = shift_[static_cast<int>(other)];
  for (std::int64_t j = 0; j < kept.size; ++j) {
    double sum = offset;
    for (std::size_t k = 0; k < own.size(); ++k) sum += change[k] * kept.coordinate(j, static_cast<std::int64_t>(k));
    moved[to_size(j)] += sum;
  }
  require_no_overflow_of_new(result->bound());
  return result;
}

template class PointCosts<float>;
template class PointCosts<double>;

}  // namespace monge::cpu
