// A backend makes operators on one device. geometry x backend -> operator; registry.cpp lists the backends of this
// build.
#pragma once
#include <memory>
#include <span>
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

/// What an operator is made of. Nothing of it is kept.
struct OperatorInput {
  Geometry const& geometry;
  Marginals const& marginals;
  OperatorOptions options;
};

/// One operator's part of a step that many take together: `count` sweeps, and the errors of the last.
struct SweepStep {
  EntropicOperator* entropic;
  Sweep sweep;
  int count;
  SweepErrors errors{};
};
/// The evaluation of the plan at eps, of the potentials of `potentials`: the same operator or another of the same
/// problem, whatever its precision.
struct EvaluationStep {
  EntropicOperator* entropic;
  EntropicOperator const* potentials;
  double eps;
  Evaluation value{};
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
  virtual std::unique_ptr<EntropicOperator> entropic_operator(Geometry const& geometry, Marginals const& marginals,
                                                              OperatorOptions const& options) const = 0;

  /// The same for many at once. Throws ProblemError.
  virtual std::vector<std::unique_ptr<EntropicOperator>> entropic_operators(
      std::span<OperatorInput const> inputs) const = 0;
  /// Many operators of this backend at once, each of which stands in one step: the bits of their own sweep() and
  /// evaluate(). Wait.
  virtual void sweep(std::span<SweepStep> steps) const = 0;
  virtual void evaluate(std::span<EvaluationStep> steps) const = 0;

  /// Batches of small matrices; lives as long as the backend.
  virtual ProjectionOperator const& projection() const = 0;
};

Backend const& backend_of(Context const& context);

}  // namespace monge
