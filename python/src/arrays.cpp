#include "arrays.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <numeric>

namespace monge::python {
namespace {

template <class... Parts>
[[noreturn]] void refuse(Parts const&... parts) {
  throw Error(ErrorCode::invalid_argument, (std::string() + ... + parts));
}

std::string shape_text(std::vector<std::int64_t> const& shape) {
  std::string text = "(";
  for (std::size_t k = 0; k < shape.size(); ++k) text += (k > 0 ? ", " : "") + std::to_string(shape[k]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string type_name(int code, int bits) {
  using Code = nb::dlpack::dtype_code;
  std::string const width = std::to_string(bits);
  switch (static_cast<Code>(code)) {
    case Code::Float:
      return "float" + width;
    case Code::Bfloat:
      return "bfloat" + width;
    case Code::Int:
      return "int" + width;
    case Code::UInt:
      return "uint" + width;
    case Code::Complex:
      return "complex" + width;
    case Code::Bool:
      return "bool";
    default:
      return "of another type";
  }
}

constexpr char const* kIndexType = "int64";

/// DLPackExchangeAPI of DLPack 1.3: PyTorch's tensor type has one. It makes a view of a tensor without a capsule, in
/// 0.1 us.
struct ExchangeApi {
  std::uint32_t major, minor;
  ExchangeApi const* previous;
  void* allocate;
  void* managed_tensor_of;
  void* object_of;
  int (*tensor_of)(void* object, nb::dlpack::dltensor* tensor);  // Borrowed from the object.
  void* current_stream;
};

/// A view made by ExchangeApi, with the interface of nb::ndarray.
struct Exchanged {
  nb::dlpack::dltensor view{};

  int device_type() const { return view.device.device_type; }
  int device_id() const { return view.device.device_id; }
  nb::dlpack::dtype dtype() const { return view.dtype; }
  void* data() const { return static_cast<char*>(view.data) + view.byte_offset; }
  std::size_t ndim() const { return static_cast<std::size_t>(view.ndim); }
  std::int64_t shape(std::size_t k) const { return view.shape[k]; }
  std::int64_t stride(std::size_t k) const { return view.strides[k]; }
};

}  // namespace

Array::Array(std::string field, nb::handle value, Access access) : field_(std::move(field)) {
  if (value.is_none()) return;
  if (read_exchange(value) || read_dlpack(value, access) || read_cuda_array_interface(value, access)) return;
  std::string const kind = nb::cast<std::string>(nb::str(value.type().attr("__name__")));
  throw nb::type_error((field_ + ": is of type " + kind + "; must be an array" +
                        (access == Access::write ? " that can be written" : "") +
                        " (NumPy, PyTorch, JAX, CuPy or anything with DLPack)")
                           .c_str());
}

template <class Tensor>
void Array::take(Tensor const& tensor) {
  constexpr int kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;
  int const device = tensor.device_type();
  if (device != kCpu && device != kCuda && device != kCudaHost && device != kCudaManaged)
    refuse(field_, ": lies on a device of DLPack's type ", std::to_string(device), "; must be on the CPU or on CUDA");
  bool const on_cuda = device == kCuda || device == kCudaManaged;
  device_ = on_cuda ? Device{DeviceType::cuda, tensor.device_id()} : Device{};
  type_ = type_name(tensor.dtype().code, tensor.dtype().bits);
  data_ = const_cast<void*>(static_cast<void const*>(tensor.data()));
  for (std::size_t k = 0; k < tensor.ndim(); ++k) {
    shape_.push_back(static_cast<std::int64_t>(tensor.shape(k)));
    strides_.push_back(tensor.stride(k));
  }
}

bool Array::read_exchange(nb::handle value) {
  constexpr char const* kAttribute = "__dlpack_c_exchange_api__";
  nb::handle const type = value.type();
  if (!nb::hasattr(type, kAttribute)) return false;
  nb::object const capsule = type.attr(kAttribute);
  auto const* api = static_cast<ExchangeApi const*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (api != nullptr && api->major > 1) api = api->previous;
  if (api == nullptr) PyErr_Clear();
  if (api == nullptr || api->major != 1 || api->tensor_of == nullptr) return false;
  Exchanged tensor;
  if (api->tensor_of(value.ptr(), &tensor.view) != 0) {
    PyErr_Clear();
    return false;
  }
  take(tensor);
  owner_ = nb::borrow(value);
  return true;
}

bool Array::read_dlpack(nb::handle value, Access access) {
  auto const keep = [&](auto const& array) {
    take(array);
    dlpack_ = nb::ndarray<nb::ro>(array);
    return true;
  };
  if (access == Access::write) {
    nb::ndarray<> array;
    return nb::try_cast(value, array, false) && keep(array);
  }
  nb::ndarray<nb::ro> array;
  return nb::try_cast(value, array, false) && keep(array);
}

bool Array::read_cuda_array_interface(nb::handle value, Access access) {
  if (!nb::hasattr(value, "__cuda_array_interface__")) return false;
  nb::dict const face = nb::cast<nb::dict>(value.attr("__cuda_array_interface__"));
  nb::tuple const data = nb::cast<nb::tuple>(face["data"]);
  if (access == Access::write && nb::cast<bool>(data[1])) return false;
  data_ = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(data[0]));
  std::string const format = nb::cast<std::string>(face["typestr"]);  // "<f4"
  int const bytes = std::atoi(format.c_str() + 2);
  char const kind = format[1];
  type_ = (kind == 'f'   ? "float"
           : kind == 'i' ? "int"
           : kind == 'u' ? "uint"
                         : "type " + format + " of ") +
          std::to_string(8 * bytes);
  for (nb::handle size : nb::cast<nb::tuple>(face["shape"])) shape_.push_back(nb::cast<std::int64_t>(size));
  strides_.resize(shape_.size());
  if (face.contains("strides") && !face["strides"].is_none()) {
    nb::tuple const strides = nb::cast<nb::tuple>(face["strides"]);
    for (std::size_t k = 0; k < shape_.size(); ++k) strides_[k] = nb::cast<std::int64_t>(strides[k]) / bytes;
  } else {
    std::exclusive_scan(shape_.rbegin(), shape_.rend(), strides_.rbegin(), std::int64_t(1), std::multiplies<>());
  }
  int const index = nb::hasattr(value, "device") && nb::hasattr(value.attr("device"), "id")
                        ? nb::cast<int>(value.attr("device").attr("id"))
                        : 0;
  device_ = {DeviceType::cuda, index};
  owner_ = nb::borrow(value);
  return true;
}

DataType Array::real_type() const {
  auto const type = from_name<DataType>(type_);
  if (!type) refuse(field_, ": is ", type_, "; must be ", names_text<DataType>(" or "));
  return *type;
}

void Array::require_dimensions(std::size_t dimensions, char const* what) const {
  if (given() && shape_.size() != dimensions) refuse(field_, ": has shape ", shape_text(shape_), "; must be ", what);
}

void Array::require_index() const {
  if (given() && type_ != kIndexType) refuse(field_, ": is ", type_, "; must be ", kIndexType);
}

bool Array::lies_at(std::size_t k, std::int64_t stride) const {
  bool const empty = std::any_of(shape_.begin(), shape_.end(), [](std::int64_t size) { return size == 0; });
  return empty || shape_[k] <= 1 || strides_[k] == stride;
}

std::int64_t Array::vector_stride() const {
  if (shape_[0] <= 1) return 1;
  if (strides_[0] < 1) refuse(field_, ": has stride ", std::to_string(strides_[0]), "; must be >= 1");
  return strides_[0];
}

std::int64_t Array::row_stride(std::size_t row) const {
  std::size_t const column = row + 1;
  if (!lies_at(column, 1))
    refuse(field_, ": has strides ", shape_text(strides_), "; the elements of a row must lie side by side");
  if (lies_at(row, shape_[column])) return shape_[column];
  if (strides_[row] < shape_[column])
    refuse(field_, ": has strides ", shape_text(strides_), "; rows must not overlap or run backwards");
  return strides_[row];
}

bool Array::is_column_major() const {
  return shape_.size() == 2 && !lies_at(1, 1) && lies_at(0, 1) && strides_[1] >= shape_[0];
}

VectorView Array::vector() const {
  if (!given()) return {};
  require_dimensions(1, "a vector");
  return {data_, real_type(), shape_[0], vector_stride(), device_};
}

MatrixView Array::matrix() const {
  if (!given()) return {};
  require_dimensions(2, "a matrix");
  return {data_, real_type(), shape_[0], shape_[1], row_stride(0), device_};
}

MatrixView Array::transposed_matrix() const {
  require_dimensions(2, "a matrix");
  return {data_, real_type(), shape_[1], shape_[0], lies_at(1, shape_[0]) ? shape_[0] : strides_[1], device_};
}

BatchView Array::batch(int most) const {
  if (!given()) return {};
  require_dimensions(3, "a batch of matrices (B, n, m)");
  std::int64_t const rows = row_stride(1);
  std::int64_t const matrix = lies_at(0, shape_[1] * rows) ? shape_[1] * rows : strides_[0];
  if (shape_[1] > most || shape_[2] > most)
    refuse(field_, ": has matrices of ", std::to_string(shape_[1]), " x ", std::to_string(shape_[2]),
           "; must be at most ", std::to_string(most), " x ", std::to_string(most));
  return {data_,  real_type(), shape_[0], static_cast<int>(shape_[1]), static_cast<int>(shape_[2]),
          matrix, rows,        device_};
}

IndexView Array::indices() const {
  if (!given()) return {};
  require_dimensions(1, "a vector");
  require_index();
  return {static_cast<std::int64_t const*>(data_), shape_[0], vector_stride(), device_};
}

IndexMatrixView Array::index_matrix() const {
  if (!given()) return {};
  require_dimensions(2, "a matrix");
  require_index();
  return {static_cast<std::int64_t const*>(data_), shape_[0], shape_[1], row_stride(0), device_};
}

MutableVectorView Array::out_vector() const {
  VectorView const view = vector();
  return {const_cast<void*>(view.data()), view.type(), view.size(), view.stride(), view.device()};
}

MutableMatrixView Array::out_matrix() const {
  MatrixView const view = matrix();
  return {const_cast<void*>(view.data()), view.type(), view.rows(), view.columns(), view.row_stride(), view.device()};
}

MutableBatchView Array::out_batch() const {
  BatchView const view = batch();
  return {const_cast<void*>(view.data()),
          view.type(),
          view.batch(),
          view.rows(),
          view.columns(),
          view.batch_stride(),
          view.row_stride(),
          view.device()};
}

MutableIndexView Array::out_indices() const {
  if (!given()) return {};
  require_index();
  auto* const data = static_cast<std::int64_t*>(data_);
  if (shape_.size() == 1) return {data, shape_[0], 1, vector_stride(), device_};
  require_dimensions(2, "a vector or a matrix");
  return {data, shape_[0], shape_[1], row_stride(0), device_};
}

}  // namespace monge::python
