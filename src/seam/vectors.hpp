// Vectors of a backend: float64 in the backend's memory, one number or one row of numbers for each point of a side.
// Solvers hold them by reference and never see an element, so a vector may lie on a device or in parts on several.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include <monge/array.hpp>

#include "core/host_device.hpp"
#include "core/side.hpp"
#include "core/strided.hpp"

namespace monge {

class Vector {
 public:
  Vector(std::int64_t rows, std::int64_t width) : rows_(rows), width_(width) {}
  virtual ~Vector() = default;
  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }
  /// The side that VectorOperations::make() was given. A backend that keeps points in an order of its own needs it.
  Side side() const { return side_; }
  void set_side(Side side) { side_ = side; }

 private:
  std::int64_t rows_, width_;
  Side side_ = Side::rows;
};

/// factor * vector, or factor * vector * times element by element. `times` may have one number for each row of
/// `vector`.
struct Term {
  double factor;
  Vector const* vector;  // Null for ones.
  Vector const* times = nullptr;
};

/// 1 / x, or 0 where x is 0 or a denormal number, whose reciprocal may overflow.
MONGE_HOST_DEVICE inline double reciprocal_or_zero(double x) {
  return std::abs(x) < std::numeric_limits<double>::min() ? 0.0 : 1 / x;
}

/// Norms and extremes of the elements of a vector. The L1 norm is finite only if all elements are.
struct VectorNorms {
  double l1 = 0, l2 = 0;
  double least = 0, largest = 0;
  double linf() const { return std::max(-least, largest); }
};

/// The operations of solvers on vectors. A call may combine vectors of an operator, its twins and their plans; all
/// belong to the same side, except that dots() take pairs of either side. Only dots(), norms() and write() to host
/// memory wait.
class VectorOperations {
 public:
  VectorOperations(std::int64_t n, std::int64_t m) : n_(n), m_(m) {}
  virtual ~VectorOperations() = default;
  /// Zeros, in rows of `width`.
  std::unique_ptr<Vector> make(Side side, std::int64_t width = 1) const {
    std::unique_ptr<Vector> vector = zeros(side == Side::rows ? n_ : m_, width);
    vector->set_side(side);
    return vector;
  }
  /// Zeros, of the same side and width.
  std::unique_ptr<Vector> make_like(Vector const& like) const {
    std::unique_ptr<Vector> vector = zeros(like.rows(), like.width());
    vector->set_side(like.side());
    return vector;
  }
  virtual void read(MatrixView from, Vector& to) const = 0;
  void read(VectorView from, Vector& to) const { read(as_column(from), to); }
  virtual void write(Vector const& from, MutableMatrixView to) const = 0;
  void write(Vector const& from, MutableVectorView to) const { write(from, as_column(to)); }
  /// out = the sum of the terms, in their order, in one pass over memory; out may be one of their vectors. At most
  /// kMostTerms terms.
  virtual void combine(std::span<Term const> terms, Vector& out) const = 0;
  void combine(std::initializer_list<Term> terms, Vector& out) const {
    combine(std::span<Term const>(terms.begin(), terms.size()), out);
  }
  void copy(Vector const& from, Vector& to) const { combine({{1, &from}}, to); }
  /// Row i of out is the concatenation of the rows i of all terms' vectors, each times its factor.
  virtual void concatenate(std::span<Term const> terms, Vector& out) const = 0;
  /// out_i = reciprocal_or_zero(in_i).
  virtual void reciprocal(Vector const& in, Vector& out) const = 0;
  /// out_i = 1 to rounding where weight_i is a normal positive number, or 0.
  void support(Vector const& weight, Vector& out) const {
    reciprocal(weight, out);
    combine({{1, &weight, &out}}, out);
  }
  /// out_i = weight_i exp((first_i - second_i) / scale), or 0 where weight_i is 0.
  virtual void exp_difference(Vector const& weight, Vector const& first, Vector const& second, double scale,
                              Vector& out) const = 0;
  /// out_i = <first_i, second_i>, of rows of one width.
  virtual void row_dots(Vector const& first, Vector const& second, Vector& out) const = 0;
  /// out_k = <first_k, second_k>, summed in an order that depends on the size alone. Waits once; at most kMostDots
  /// pairs.
  virtual void dots(std::span<std::pair<Vector const*, Vector const*> const> pairs, std::span<double> out) const = 0;
  double dot(Vector const& first, Vector const& second) const {
    std::pair<Vector const*, Vector const*> const pair{&first, &second};
    double value = 0;
    dots({&pair, 1}, {&value, 1});
    return value;
  }
  /// Summed as dots() are. Waits.
  virtual VectorNorms norms(Vector const& vector) const = 0;

 private:
  virtual std::unique_ptr<Vector> zeros(std::int64_t rows, std::int64_t width) const = 0;

  std::int64_t n_, m_;
};

/// A vector of each side. As input a null vector means zeros, as output that none is wanted.
struct VectorPair {
  std::unique_ptr<Vector> of_rows, of_columns;
  std::unique_ptr<Vector>& operator[](Side side) { return side == Side::rows ? of_rows : of_columns; }
  Vector* operator[](Side side) const { return (side == Side::rows ? of_rows : of_columns).get(); }
};

inline constexpr std::size_t kMostTerms = 4;
inline constexpr std::size_t kMostDots = 4;

}  // namespace monge
