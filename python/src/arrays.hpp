// Arrays of Python as views: DLPack, the buffer protocol or the CUDA array interface, nothing copied.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <monge/monge.hpp>
#include <string>
#include <vector>

namespace monge::python {

namespace nb = nanobind;

/// One argument of a call. Keeps the memory alive that its views show; None is the empty view. `field` names the
/// argument in every message; TypeError says that it is no array, ValueError that it is none of the right kind.
class Array {
 public:
  enum class Access { read, write };

  Array(std::string field, nb::handle value, Access access = Access::read);

  bool given() const { return !shape_.empty() || data_ != nullptr; }
  Device device() const { return device_; }
  /// Whether the elements of a column lie side by side and those of a row do not: the transpose is row-major.
  bool is_column_major() const;

  VectorView vector() const;
  MatrixView matrix() const;
  BatchView batch() const;
  IndexView indices() const;
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
  /// Of dimension k; one that holds at most one element, or is in an array of none, may have any.
  bool lies_at(std::size_t k, std::int64_t stride) const;
  std::int64_t row_stride(std::size_t row) const;

  std::string field_;
  nb::ndarray<nb::ro> dlpack_;  // This or the next keeps the memory.
  nb::object owner_;
  void* data_ = nullptr;
  std::string type_;
  std::vector<std::int64_t> shape_, strides_;  // In elements.
  Device device_;
};

inline Array out(char const* field, nb::handle value) {
  return Array(field, value, Array::Access::write);
}

}  // namespace monge::python
