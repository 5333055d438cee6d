// Views of the caller's memory: pointer, shape, stride, element type and device. Nothing here owns or copies.
#pragma once
#include <cstdint>
#include <limits>
#include <monge/export.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <monge/names.hpp>

// Clang warns where a view outlives the range that it shows.
#if defined(__clang__)
#define MONGE_LIFETIME_BOUND [[clang::lifetimebound]]
#else
#define MONGE_LIFETIME_BOUND
#endif

namespace monge {

/// The type of stored elements. Batches of small matrices may be float16, bfloat16 or float32 (projection.hpp); vectors
/// and matrices must be float32 or float64. Functions throw Error for any other type.
enum class DataType { float16, bfloat16, float32, float64 };

constexpr auto names_of(DataType) {
  using enum DataType;
  return std::to_array<Named<DataType>>(
      {{float16, "float16"}, {bfloat16, "bfloat16"}, {float32, "float32"}, {float64, "float64"}});
}

/// Bytes of one element.
constexpr std::int64_t size_of(DataType type) {
  return type == DataType::float64 ? 8 : type == DataType::float32 ? 4 : 2;
}

enum class DeviceType { cpu, cuda };

/// Stands for the stride of contiguous rows. Functions throw Error for any other negative stride.
inline constexpr std::int64_t kContiguous = std::numeric_limits<std::int64_t>::min();

/// Where memory lies and work runs. `index` counts CUDA devices; it is 0 on the CPU.
struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  friend bool operator==(Device, Device) = default;
};

/// "cpu" or "cuda:0".
MONGE_API std::string to_string(Device device);

namespace detail {

template <class T>
concept Real = std::is_same_v<T, float> || std::is_same_v<T, double>;

template <class Range>
using RangeElement = typename decltype(std::span(std::declval<Range&>()))::element_type;

template <class Range>
concept RealRange = Real<std::remove_cv_t<RangeElement<Range>>>;

template <class Other, class Void>
concept ReadableAs = std::is_const_v<Void> && !std::is_const_v<Other>;

/// Shared by the read-only (Void = void const) and the writable (Void = void) views.
template <class Void>
class BasicVectorView {
  template <class T>
  using Element = std::conditional_t<std::is_const_v<Void>, T const, T>;

 public:
  BasicVectorView() = default;  ///< Empty: "not given".
  BasicVectorView(Void* data, DataType type, std::int64_t size, std::int64_t stride = 1, Device device = {})
      : data_(data), size_(size), stride_(stride), type_(type), device_(device) {}
  BasicVectorView(Element<float>* data, std::int64_t size, std::int64_t stride = 1, Device device = {})
      : BasicVectorView(data, DataType::float32, size, stride, device) {}
  BasicVectorView(Element<double>* data, std::int64_t size, std::int64_t stride = 1, Device device = {})
      : BasicVectorView(data, DataType::float64, size, stride, device) {}
  /// Any contiguous range of float or double in host memory: std::vector, std::array, std::span. A view of a temporary,
  /// such as plan.f(), is valid only within the same expression. Options that are kept need a view of a variable.
  template <RealRange Range>
  // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload): a range converts to its view
  BasicVectorView(Range&& range MONGE_LIFETIME_BOUND)
      : BasicVectorView(std::span(range).data(), static_cast<std::int64_t>(std::span(range).size())) {}
  /// A writable view is readable.
  template <ReadableAs<Void> Other>
  BasicVectorView(BasicVectorView<Other> const& other)  // NOLINT(google-explicit-constructor)
      : BasicVectorView(other.data(), other.type(), other.size(), other.stride(), other.device()) {}

  Void* data() const { return data_; }
  std::int64_t size() const { return size_; }
  std::int64_t stride() const { return stride_; }  ///< In elements.
  DataType type() const { return type_; }
  Device device() const { return device_; }
  bool empty() const { return size_ == 0; }
  template <Real T>
  Element<T>* as() const {
    return static_cast<Element<T>*>(data_);
  }

 private:
  Void* data_ = nullptr;
  std::int64_t size_ = 0;
  std::int64_t stride_ = 1;
  DataType type_ = DataType::float64;
  Device device_;
};

/// Row-major; element (i, k) is data[i * row_stride + k].
template <class Void>
class BasicMatrixView {
  template <class T>
  using Element = std::conditional_t<std::is_const_v<Void>, T const, T>;

 public:
  BasicMatrixView() = default;
  BasicMatrixView(Void* data, DataType type, std::int64_t rows, std::int64_t columns,
                  std::int64_t row_stride = kContiguous, Device device = {})
      : data_(data),
        rows_(rows),
        columns_(columns),
        row_stride_(row_stride == kContiguous ? columns : row_stride),
        type_(type),
        device_(device) {}
  BasicMatrixView(Element<float>* data, std::int64_t rows, std::int64_t columns, std::int64_t row_stride = kContiguous,
                  Device device = {})
      : BasicMatrixView(data, DataType::float32, rows, columns, row_stride, device) {}
  BasicMatrixView(Element<double>* data, std::int64_t rows, std::int64_t columns, std::int64_t row_stride = kContiguous,
                  Device device = {})
      : BasicMatrixView(data, DataType::float64, rows, columns, row_stride, device) {}

  /// A writable view is readable.
  template <ReadableAs<Void> Other>
  BasicMatrixView(BasicMatrixView<Other> const& other)  // NOLINT(google-explicit-constructor)
      : BasicMatrixView(other.data(), other.type(), other.rows(), other.columns(), other.row_stride(), other.device()) {
  }

  Void* data() const { return data_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::int64_t row_stride() const { return row_stride_; }  ///< In elements; >= columns.
  DataType type() const { return type_; }
  Device device() const { return device_; }
  template <Real T>
  Element<T>* as() const {
    return static_cast<Element<T>*>(data_);
  }

 private:
  Void* data_ = nullptr;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
  std::int64_t row_stride_ = 0;
  DataType type_ = DataType::float64;
  Device device_;
};

}  // namespace detail

using VectorView = detail::BasicVectorView<void const>;   ///< Read-only.
using MutableVectorView = detail::BasicVectorView<void>;  ///< Writable.
using MatrixView = detail::BasicMatrixView<void const>;   ///< Read-only, row-major.
using MutableMatrixView = detail::BasicMatrixView<void>;  ///< Writable, row-major.

/// Indices to be read.
struct IndexView {
  std::int64_t const* data = nullptr;
  std::int64_t size = 0;    ///< 0: "not given".
  std::int64_t stride = 1;  ///< In elements.
  Device device = {};

  bool empty() const { return size == 0; }
};

/// A matrix of indices to be read, row-major.
struct IndexMatrixView {
  std::int64_t const* data = nullptr;
  std::int64_t rows = 0;  ///< 0: "not given".
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  ///< In elements; >= columns.
  Device device = {};

  bool empty() const { return rows == 0 && columns == 0; }
};

/// Indices to be written, row-major; a vector is a matrix of one column.
struct MutableIndexView {
  std::int64_t* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  ///< In elements; >= columns.
  Device device = {};
};

}  // namespace monge
