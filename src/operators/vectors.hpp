// Vectors of a backend: float64 numbers, one a point of one side, where the backend keeps them. Solvers hold them by
// reference and never see an element, so a vector may lie on a device or in parts on several.
#pragma once
#include <memory>
#include <span>
#include <utility>

#include <monge/array.hpp>

#include "operators/side.hpp"

namespace monge {

class Vector {
 public:
  virtual ~Vector() = default;
};

/// factor * vector, or factor * vector * times element by element.
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
  /// Zeros.
  virtual std::unique_ptr<Vector> make(Side side) const = 0;
  virtual void read(VectorView from, Vector& to) const = 0;
  virtual void write(Vector const& from, MutableVectorView to) const = 0;
  /// out = the sum of the terms, in their order, in one pass over memory; out may be one of their vectors. At most
  /// kMostTerms.
  virtual void combine(std::span<Term const> terms, Vector& out) const = 0;
  /// out_i = 1 / in_i, or 0 where in_i is 0.
  virtual void reciprocal(Vector const& in, Vector& out) const = 0;
  /// out_k = <first_k, second_k>, summed in an order that depends on the size alone. Waits once for all; at most
  /// kMostDots.
  virtual void dots(std::span<std::pair<Vector const*, Vector const*> const> pairs, std::span<double> out) const = 0;
};

inline constexpr std::size_t kMostTerms = 4;
inline constexpr std::size_t kMostDots = 4;

}  // namespace monge
