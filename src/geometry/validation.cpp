#include "geometry/validation.hpp"

#include <limits>

#include "core/overloaded.hpp"
#include "geometry/point_cost.hpp"

namespace monge {
namespace {

void require_real(char const* field, DataType type) {
  require(type == DataType::float32 || type == DataType::float64, "{}: is {}; must be float32 or float64", field,
          name(type));
}

/// The layout of a matrix of any type.
struct Layout {
  void const* data;
  std::int64_t rows, columns, row_stride;
  Device device;
};

void validate_layout(char const* field, Layout const& view, std::int64_t rows, std::int64_t columns, Device context) {
  require_reachable(field, view.device, context);
  require(view.rows >= 0 && view.columns >= 0, "{}: is {} x {}; must not be negative", field, view.rows, view.columns);
  require(view.rows == rows && view.columns == columns, "{}: is {} x {}; must be {} x {}", field, view.rows,
          view.columns, rows, columns);
  require(view.data != nullptr || rows == 0 || columns == 0, "{}: is a null pointer; must point to {} x {} values",
          field, rows, columns);
  require(view.row_stride >= columns, "{}: has row stride {}; must be at least its {} columns", field, view.row_stride,
          columns);
  // Rows are padded and copied as float64 inside, so this bound keeps every byte count in 63 bits.
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 64;
  require(rows == 0 || view.row_stride <= kMost / rows,
          "{}: is {} x {} with row stride {}; the number of bytes must fit in 63 bits", field, rows, columns,
          view.row_stride);
}

void validate_labels(Labels const& labels, std::int64_t n, std::int64_t m, Device context) {
  check("label_weight", kFinite, labels.weight);
  MatrixView const& cost = labels.cost;
  require(cost.rows() > 0 && cost.columns() > 0, "label_cost: is {} x {}; must have at least one row and column",
          cost.rows(), cost.columns());
  validate_matrix("label_cost", cost, cost.rows(), cost.columns(), context);
  auto const validate_side = [&](char const* field, IndexView const& side, std::int64_t size) {
    require_reachable(field, side.device, context);
    require(side.size == size, "{}: has {} entries; must have {}, one for each point", field, side.size, size);
    require(side.data != nullptr, "{}: is a null pointer; must point to {} labels", field, size);
    require(side.stride >= 1, "{}: has stride {}; must be >= 1", field, side.stride);
  };
  validate_side("labels_x", labels.x, n);
  validate_side("labels_y", labels.y, m);
}

void validate_clouds(PointCloud const& clouds, Device context) {
  check("scale", kPositive, clouds.scale);
  check("cost_function", OneOf<CostFunction>(), clouds.cost_function);
  if (clouds.cost_function == CostFunction::p_norm) check("norm_p", at_least(1), clouds.p);
  require(clouds.x.rows() > 0 && clouds.x.columns() > 0, "x: is {} x {}; must have at least one point and dimension",
          clouds.x.rows(), clouds.x.columns());
  require(clouds.y.rows() > 0 && clouds.y.columns() > 0, "y: is {} x {}; must have at least one point and dimension",
          clouds.y.rows(), clouds.y.columns());
  require(clouds.x.columns() == clouds.y.columns(), "y: has {} columns; must have {}, the dimension of x",
          clouds.y.columns(), clouds.x.columns());
  validate_matrix("x", clouds.x, clouds.x.rows(), clouds.x.columns(), context);
  validate_matrix("y", clouds.y, clouds.y.rows(), clouds.y.columns(), context);
  if (!clouds.labels.empty()) validate_labels(clouds.labels, clouds.x.rows(), clouds.y.rows(), context);
}

void validate_costs(CostMatrix const& costs, Device context) {
  MatrixView const& cost = costs.cost;
  require(cost.rows() > 0 && cost.columns() > 0, "cost: is {} x {}; must have at least one row and column", cost.rows(),
          cost.columns());
  validate_matrix("cost", cost, cost.rows(), cost.columns(), context);
}

}  // namespace

void check(char const* field, Bounds const& bounds, double value) {
  require(bounds.contains(value), "{}: is {}; must be {}", field, value, bounds.text_in_full());
}

void require_reachable(char const* field, Device memory, Device context) {
  require(memory.type == DeviceType::cpu || memory == context, "{}: lies on {}; must be in host memory or on {}", field,
          to_string(memory), to_string(context));
}

void validate(Geometry const& geometry, Device context) {
  std::visit(Overloaded{[&](PointCloud const& clouds) { validate_clouds(clouds, context); },
                        [&](CostMatrix const& costs) { validate_costs(costs, context); }},
             geometry);
}

Shape shape_of(Geometry const& geometry) {
  return std::visit(
      Overloaded{
          [](PointCloud const& clouds) {
            return Shape{clouds.x.rows(), clouds.y.rows(), clouds.x.columns()};
          },
          [](CostMatrix const& costs) {
            MatrixView const& cost = costs.cost;
            return costs.transposed ? Shape{cost.columns(), cost.rows(), 0} : Shape{cost.rows(), cost.columns(), 0};
          }},
      geometry);
}

PointCloud const& clouds_of(Geometry const& geometry) {
  return std::get<PointCloud>(geometry);
}

CostMatrix const& matrix_of(Geometry const& geometry) {
  return std::get<CostMatrix>(geometry);
}

void require_same_kind(Geometry const& before, Geometry const& now) {
  Shape const shape = shape_of(now), wanted = shape_of(before);
  require(now.index() == before.index(), "geometry: is of another kind; must be {} as before",
          wanted.has_points() ? "two point clouds" : "a cost matrix");
  require(shape == wanted, "geometry: has n {}, m {}, d {}; must have n {}, m {}, d {} as before", shape.rows,
          shape.columns, shape.dimension, wanted.rows, wanted.columns, wanted.dimension);
  if (!shape.has_points()) return;
  PointCloud const &clouds = clouds_of(now), &clouds_before = clouds_of(before);
  require(clouds.cost_function == clouds_before.cost_function, "cost_function: is {}; must be {} as before",
          name(clouds.cost_function), name(clouds_before.cost_function));
  MatrixView const &cost = clouds.labels.cost, &cost_before = clouds_before.labels.cost;
  require(cost.rows() == cost_before.rows() && cost.columns() == cost_before.columns(),
          "label_cost: is {} x {}; must be {} x {} as before", cost.rows(), cost.columns(), cost_before.rows(),
          cost_before.columns());
}

void validate_matrix(char const* field, MatrixView view, std::int64_t rows, std::int64_t columns, Device context) {
  require_real(field, view.type());
  validate_layout(field, {view.data(), view.rows(), view.columns(), view.row_stride(), view.device()}, rows, columns,
                  context);
}

void validate_indices(char const* field, MutableIndexView view, std::int64_t rows, std::int64_t columns,
                      Device context) {
  validate_layout(field, {view.data, view.rows, view.columns, view.row_stride, view.device}, rows, columns, context);
}

void validate_vector(char const* field, VectorView view, std::int64_t size, Device context) {
  require_reachable(field, view.device(), context);
  require_real(field, view.type());
  require(view.size() == size, "{}: has {} entries; must have {}", field, view.size(), size);
  require(view.data() != nullptr || size == 0, "{}: is a null pointer; must point to {} values", field, size);
  require(view.stride() >= 1, "{}: has stride {}; must be >= 1", field, view.stride());
}

}  // namespace monge
