// Arrays of Python as views: DLPack, the buffer protocol or the CUDA array interface, nothing copied.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <monge/monge.hpp>
#include <string>
#include <utility>
#include <vector>

namespace monge::python {

namespace nb = nanobind;

/// One argument of a call. Keeps the memory of its views alive; None is the empty view. `field` names the argument in
/// every message. Throws TypeError for a value that is no array, ValueError for an array of the wrong kind.
class Array {
 public:
  enum class Access { read, write };

  Array(std::string field, nb::handle value, Access access = Access::read);

  bool given() const { return !shape_.empty() || data_ != nullptr; }
  Device device() const { return device_; }
  bool is_matrix() const { return shape_.size() == 2; }
  /// Whether the transpose is row-major and the array is not.
  bool is_column_major() const;

  VectorView vector() const;
  MatrixView matrix() const;
  /// A batch of matrices with at most so many rows and columns.
  BatchView batch(int most = kLargestProjection) const;
  IndexView indices() const;
  IndexMatrixView index_matrix() const;
  MatrixView transposed_matrix() const;

  MutableVectorView out_vector() const;
  MutableMatrixView out_matrix() const;
  MutableBatchView out_batch() const;
  MutableIndexView out_indices() const;

 private:
  template <class Tensor>
  void take(Tensor const& tensor);
  bool read_exchange(nb::handle value);
  bool read_dlpack(nb::handle value, Access access);
  bool read_cuda_array_interface(nb::handle value, Access access);
  DataType real_type() const;
  void require_dimensions(std::size_t dimensions, char const* what) const;
  void require_index() const;
  std::int64_t vector_stride() const;
  /// Whether dimension k has this stride. A dimension of at most one element, or of an empty array, may have any.
  bool lies_at(std::size_t k, std::int64_t stride) const;
  std::int64_t row_stride(std::size_t row) const;

  std::string field_;
  nb::ndarray<nb::ro> dlpack_;  // dlpack_ or owner_ keeps the memory alive.
  nb::object owner_;
  void* data_ = nullptr;
  std::string type_;
  std::vector<std::int64_t> shape_, strides_;  // Strides in elements.
  Device device_;
};

inline Array out(char const* field, nb::handle value) {
  return Array(field, value, Array::Access::write);
}

/// A NumPy array that owns the numbers.
inline nb::ndarray<nb::numpy, double> to_numpy(std::vector<double> values) {
  auto* const kept = new std::vector<double>(std::move(values));
  nb::capsule const owner(kept, [](void* memory) noexcept { delete static_cast<std::vector<double>*>(memory); });
  return {kept->data(), {kept->size()}, owner};
}

}  // namespace monge::python
