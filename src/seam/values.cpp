#include "seam/values.hpp"

#include <bit>
#include <variant>

#include "core/overloaded.hpp"
#include "geometry/validation.hpp"

namespace monge {

std::vector<double> read_values(char const* field, Backend const& backend, VectorView view, std::int64_t size,
                                Bounds const& bounds, char const* must) {
  validate_vector(field, view, size, backend.device());
  std::vector<double> values = backend.read(view);
  for (std::size_t i = 0; i < values.size(); ++i)
    require(bounds.contains(values[i]), "{}: entry {} is {}; {} {}", field, i, values[i], must, bounds.text_in_full());
  return values;
}

std::vector<std::int64_t> read_labels(Backend const& backend, IndexView labels) {
  std::vector<std::int64_t> result;
  // A backend reads float64. A label is read as the number of the same bits.
  for (double const value : backend.read({labels.data, DataType::float64, labels.size, labels.stride, labels.device}))
    result.push_back(std::bit_cast<std::int64_t>(value));
  return result;
}

MatrixView on_host(Backend const& backend, MatrixView view, std::vector<std::vector<double>>& copies) {
  if (view.device().type == DeviceType::cpu) return view;
  copies.push_back(backend.read(view));
  return {copies.back().data(), view.rows(), view.columns()};
}

Geometry on_host(Backend const& backend, Geometry geometry, std::vector<std::vector<double>>& copies) {
  auto const move = [&](MatrixView& view) { view = on_host(backend, view, copies); };
  std::visit(Overloaded{[&](PointCloud& clouds) {
                          move(clouds.x);
                          move(clouds.y);
                        },
                        [&](CostMatrix& matrix) { move(matrix.cost); }},
             geometry);
  return geometry;
}

}  // namespace monge
