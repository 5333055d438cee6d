// A backend makes operators on one device. geometry x backend -> operator; registry.cpp lists the backends of this
// build.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <monge/context.hpp>
#include <monge/entropic.hpp>

#include "operators/entropic_operator.hpp"
#include "projection/projection_operator.hpp"

namespace monge {

/// The marginals of a problem, on the host.
struct Marginals {
  std::vector<double> a, b;
};

struct OperatorOptions {
  Precision precision = Precision::float32;
  double cache_bytes = 0;  ///< As SolveOptions::cache_bytes, for the operator and the plans it makes.
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device device() const = 0;
  virtual DeviceInfo info() const = 0;

  /// The caller's vector as float64 on the host, waiting for the device if it lies there.
  virtual std::vector<double> read(VectorView view) const = 0;

  /// `geometry` has been checked for shape (core/validation.hpp) but not for values: packing finds and reports the
  /// first point that is not finite. The marginals are valid. Throws unsupported for a precision that the device lacks.
  /// `twin`, if given, is an operator of the same geometry and marginals in another precision: what it knows of them is
  /// not found out again.
  virtual std::unique_ptr<EntropicOperator> entropic_operator(Geometry const& geometry, Marginals const& marginals,
                                                              OperatorOptions const& options,
                                                              EntropicOperator const* twin = nullptr) const = 0;

  /// Batches of small matrices; lives as long as the backend.
  virtual ProjectionOperator const& projection() const = 0;
};

Backend const& backend_of(Context const& context);

}  // namespace monge
