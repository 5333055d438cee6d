// Vectors in device memory.
#pragma once
#include "cuda/launch/transfer.hpp"
#include "cuda/runtime/runtime.hpp"
#include "seam/vectors.hpp"

namespace monge::cuda {

/// `typical` is a number near the entries of a potential. Logits subtract it before rounding, and it is added back
/// afterwards: it affects rounding errors, never the plan.
struct DeviceVector final : Vector {
  DeviceVector() : Vector(0, 1) {}
  DeviceVector(SharedRuntime const& runtime, std::int64_t rows, std::int64_t width = 1)
      : Vector(rows, width), values(runtime, rows * width) {}

  int size() const { return static_cast<int>(values.size()); }
  double* data() const { return values.data(); }
  StridedView strided() const { return {values.data(), width(), DataType::float64}; }

  DeviceArray<double> values;
  double typical = 0;
};

inline DeviceVector const& on_device(Vector const& vector) {
  return static_cast<DeviceVector const&>(vector);
}
inline DeviceVector& on_device(Vector& vector) {
  return static_cast<DeviceVector&>(vector);
}
/// Where a kernel writes `vector`; null if `vector` is null.
inline double* written(Vector* vector) {
  if (vector == nullptr) return nullptr;
  on_device(*vector).typical = 0;
  return on_device(*vector).data();
}

class DeviceVectorOperations final : public VectorOperations {
 public:
  DeviceVectorOperations(SharedRuntime runtime, std::int64_t n, std::int64_t m);

  using VectorOperations::read, VectorOperations::write, VectorOperations::combine;
  void read(MatrixView from, Vector& to) const override;
  void write(Vector const& from, MutableMatrixView to) const override;
  void combine(std::span<Term const> terms, Vector& out) const override;
  void concatenate(std::span<Term const> terms, Vector& out) const override;
  void reciprocal(Vector const& in, Vector& out) const override;
  void exp_difference(Vector const& weight, Vector const& first, Vector const& second, double scale,
                      Vector& out) const override;
  void row_dots(Vector const& first, Vector const& second, Vector& out) const override;
  void dots(std::span<std::pair<Vector const*, Vector const*> const> pairs, std::span<double> out) const override;
  VectorNorms norms(Vector const& vector) const override;

 private:
  std::unique_ptr<Vector> zeros(std::int64_t rows, std::int64_t width) const override;
  /// Memory for `count` partial results, kept between calls.
  double* partials(std::int64_t count) const;

  SharedRuntime runtime_;
  mutable DeviceArray<double> partials_;
};

}  // namespace monge::cuda
