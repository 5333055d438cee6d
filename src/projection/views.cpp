#include "projection/views.hpp"

#include <limits>

#include "geometry/validation.hpp"

namespace monge {
namespace {

Memory memory(char const* field, void const* data, std::int64_t elements, DataType type) {
  auto const begin = reinterpret_cast<std::uintptr_t>(data);
  return {field, begin, begin + static_cast<std::uintptr_t>(elements * size_of(type))};
}

}  // namespace

Memory memory_of(char const* field, BatchView const& view) {
  if (view.batch() == 0) return {field};
  std::int64_t const elements =
      (view.batch() - 1) * view.batch_stride() + (view.rows() - 1) * view.row_stride() + view.columns();
  return memory(field, view.data(), elements, view.type());
}
Memory memory_of(char const* field, MatrixView const& view) {
  if (view.rows() == 0) return {field};
  return memory(field, view.data(), (view.rows() - 1) * view.row_stride() + view.columns(), view.type());
}
Memory memory_of(char const* field, VectorView const& view) {
  return memory(field, view.data(), view.size(), view.type());
}

void require_apart(std::initializer_list<Memory> written, std::initializer_list<Memory> read) {
  auto const check = [](Memory const& out, Memory const& other) {
    require(out.end <= other.begin || other.end <= out.begin, "{}: overlaps {}; must be other memory", out.field,
            other.field);
  };
  for (Memory const* out = written.begin(); out != written.end(); ++out) {
    for (Memory const& in : read) check(*out, in);
    for (Memory const* before = written.begin(); before != out; ++before) check(*out, *before);
  }
}

void require_float32(char const* field, DataType type) {
  require(type == DataType::float32, "{}: is {}; must be float32", field, name(type));
}

void validate_floats(char const* field, VectorView view, std::int64_t size, Device context) {
  require_float32(field, view.type());
  validate_vector(field, view, size, context);
  require(view.stride() == 1, "{}: has stride {}; must be contiguous", field, view.stride());
}

void validate_batch(char const* field, BatchView const& view, std::int64_t batch, int rows, int columns,
                    Device context) {
  require(view.batch() == batch && view.rows() == rows && view.columns() == columns,
          "{}: is {} x {} x {}; must be {} x {} x {}", field, view.batch(), view.rows(), view.columns(), batch, rows,
          columns);
  require(view.type() == DataType::float16 || view.type() == DataType::bfloat16 || view.type() == DataType::float32,
          "{}: is {}; must be float16, bfloat16 or float32", field, name(view.type()));
  require(view.data() != nullptr || batch == 0, "{}: is a null pointer; must point to {} matrices", field, batch);
  require(view.row_stride() >= columns, "{}: has row stride {}; must be at least its {} columns", field,
          view.row_stride(), columns);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 8;
  require(view.row_stride() <= kMost / rows, "{}: has row stride {}; too large", field, view.row_stride());
  std::int64_t const extent = (rows - 1) * view.row_stride() + columns;
  require(batch <= 1 || view.batch_stride() >= extent, "{}: has batch stride {}; must be at least {}", field,
          view.batch_stride(), extent);
  require(batch <= 1 || view.batch_stride() <= kMost / batch,
          "{}: is {} matrices with batch stride {}; the number of bytes must fit in 63 bits", field, batch,
          view.batch_stride());
  if (batch > 0) require_reachable(field, view.device(), context);
}

}  // namespace monge
