// Vectors of a backend: float64 numbers, one a point of one side or a row of some for each, where the backend keeps
// them. Solvers hold them by reference and never see an element, so a vector may lie on a device or in parts on
// several.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <monge/array.hpp>

#include "backend/side.hpp"

namespace monge {

class Vector {
 public:
  virtual ~Vector() = default;
};

/// factor * vector, or factor * vector * times element by element. `times` may have one number for each row of
/// `vector`.
struct Term {
  double factor;
  Vector const* vector;
  Vector const* times = nullptr;
};

/// What solvers may do with vectors. Vectors of one operator and of the plans and twins made of the same problem go
/// together; those of one call belong to the same side. Nothing but dots() and write() to host memory waits.
class VectorOperations {
 public:
  virtual ~VectorOperations() = default;
  /// Zeros, in rows of `width`.
  virtual std::unique_ptr<Vector> make(Side side, std::int64_t width = 1) const = 0;
  /// Zeros, of the same side and width.
  virtual std::unique_ptr<Vector> make_like(Vector const& vector) const = 0;
  virtual void read(MatrixView from, Vector& to) const = 0;
  void read(VectorView from, Vector& to) const { read(as_column<MatrixView>(from), to); }
  virtual void write(Vector const& from, MutableMatrixView to) const = 0;
  void write(Vector const& from, MutableVectorView to) const { write(from, as_column<MutableMatrixView>(to)); }
  /// As products take it and give it: where it lies, with a row for each point.
  virtual MatrixView view(Vector const& vector) const = 0;
  virtual MutableMatrixView view(Vector& vector) const = 0;
  /// out = the sum of the terms, in their order, in one pass over memory; out may be one of their vectors. At most
  /// kMostTerms.
  virtual void combine(std::span<Term const> terms, Vector& out) const = 0;
  /// out_i = 1 / in_i, or 0 where in_i is 0.
  virtual void reciprocal(Vector const& in, Vector& out) const = 0;
  /// out_i = <first_i, second_i>, of rows of one width.
  virtual void row_dots(Vector const& first, Vector const& second, Vector& out) const = 0;
  /// out_k = <first_k, second_k>, summed in an order that depends on the size alone. Waits once for all; at most
  /// kMostDots.
  virtual void dots(std::span<std::pair<Vector const*, Vector const*> const> pairs, std::span<double> out) const = 0;

 private:
  template <class Matrix, class View>
  static Matrix as_column(View const& view) {
    return Matrix(view.data(), view.type(), view.size(), 1, view.stride(), view.device());
  }
};

inline constexpr std::size_t kMostTerms = 4;
inline constexpr std::size_t kMostDots = 4;

}  // namespace monge
