// Vectors of the CPU: float64 in host memory.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/numbers.hpp"
#include "geometry/point_tree.hpp"
#include "seam/vectors.hpp"

namespace monge::cpu {

class HostVector final : public Vector {
 public:
  explicit HostVector(std::int64_t rows, std::int64_t width = 1)
      : Vector(rows, width), values_(to_size(rows * width), 0.0) {}
  HostVector(Side side, std::int64_t rows, std::int64_t width = 1) : HostVector(rows, width) { set_side(side); }

  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  double const& operator[](std::int64_t i) const { return values_[to_size(i)]; }
  double& operator[](std::int64_t i) { return values_[to_size(i)]; }
  std::vector<double>& values() { return values_; }
  std::vector<double> const& values() const { return values_; }
  MatrixView view() const { return {values_.data(), rows(), width()}; }
  MutableMatrixView view() { return {values_.data(), rows(), width()}; }

 private:
  std::vector<double> values_;
};

/// Every vector of a CPU operator is a HostVector.
inline HostVector const& on_host(Vector const& vector) {
  return static_cast<HostVector const&>(vector);
}
inline HostVector& on_host(Vector& vector) {
  return static_cast<HostVector&>(vector);
}

/// Serial: O(n + m) is small beside passes over all pairs.
class HostVectorOperations final : public VectorOperations {
 public:
  HostVectorOperations(std::int64_t n, std::int64_t m, PointOrders orders = {})
      : VectorOperations(n, m), orders_(std::move(orders)) {}

  PointOrders const& orders() const { return orders_; }

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

  PointOrders orders_;
};

}  // namespace monge::cpu
