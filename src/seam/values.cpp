#include "seam/values.hpp"

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

}  // namespace monge
