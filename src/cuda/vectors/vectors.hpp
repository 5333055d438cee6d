// Vectors in device memory.
#pragma once
#include "backend/vectors.hpp"
#include "cuda/runtime/runtime.hpp"
#include "cuda/transfer.hpp"

namespace monge::cuda {

/// `typical` is a number near the entries of a potential. It is taken from logits before they are rounded and put back
/// afterwards: it changes digits, never the plan.
struct DeviceVector final : Vector {
  DeviceVector() = default;
  DeviceVector(SharedRuntime const& runtime, std::int64_t rows, int width_of_rows = 1)
      : values(runtime, rows * width_of_rows), width(width_of_rows) {}

  int size() const { return static_cast<int>(values.size()); }
  int rows() const { return size() / width; }
  double* data() const { return values.data(); }

  DeviceArray<double> values;
  int width = 1;
  double typical = 0;
};

inline DeviceVector const& on_device(Vector const& vector) {
  return static_cast<DeviceVector const&>(vector);
}
inline DeviceVector& on_device(Vector& vector) {
  return static_cast<DeviceVector&>(vector);
}
/// Where a kernel writes it; null for null.
inline double* written(Vector* vector) {
  if (vector == nullptr) return nullptr;
  on_device(*vector).typical = 0;
  return on_device(*vector).data();
}

class DeviceVectorOperations final : public VectorOperations {
 public:
  DeviceVectorOperations(SharedRuntime runtime, std::int64_t n, std::int64_t m);

  std::unique_ptr<Vector> make(Side side, std::int64_t width) const override;
  std::unique_ptr<Vector> make_like(Vector const& vector) const override;
  using VectorOperations::read, VectorOperations::write;
  void read(MatrixView from, Vector& to) const override;
  void write(Vector const& from, MutableMatrixView to) const override;
  MatrixView view(Vector const& vector) const override;
  MutableMatrixView view(Vector& vector) const override;
  void combine(std::span<Term const> terms, Vector& out) const override;
  void reciprocal(Vector const& in, Vector& out) const override;
  void row_dots(Vector const& first, Vector const& second, Vector& out) const override;
  void dots(std::span<std::pair<Vector const*, Vector const*> const> pairs, std::span<double> out) const override;

 private:
  std::unique_ptr<Vector> zeros(std::int64_t rows, std::int64_t width) const;

  SharedRuntime runtime_;
  std::int64_t sizes_[2];
  mutable DeviceArray<double> partials_;  // Of dots(); made at the first.
};

}  // namespace monge::cuda
