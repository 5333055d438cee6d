// Solver: a problem that is solved again and again, with other points, weights or costs of the same shape.
#pragma once
#include <memory>

#include <monge/context.hpp>
#include <monge/entropic.hpp>
#include <monge/geometry.hpp>
#include <monge/plan.hpp>

namespace monge {

/// solve(), prepared. On CUDA memory and recorded launches are kept from one solve to the next. On the CPU other inputs
/// are packed into new memory, which is little of a solve; with the same ones it is kept, scores included. Results have
/// the bits that solve() gives. One thread at a time.
///
/// Geometry and warm start are read by each solve; their memory stays as it is until they are replaced or the last
/// solve is done. Where it was written anew, set_geometry() has to say so. A Plan that was returned stays what it is:
/// while there is one, the next problem gets memory of its own.
class Solver {
 public:
  /// As solve(); points and costs are looked at by the first solve. Throws Error (invalid_argument).
  Solver(Context const& context, Geometry const& geometry, VectorView a, VectorView b, SolveOptions const& options);
  Solver(Context const& context, Geometry const& geometry, SolveOptions const& options)
      : Solver(context, geometry, {}, {}, options) {}
  Solver(Solver&&) noexcept;
  Solver& operator=(Solver&&) noexcept;
  ~Solver();

  /// Of the same kind, n, m, d, cost function and number of classes as the one before; else throws Error
  /// (invalid_argument).
  void set_geometry(Geometry const& geometry);
  /// a (n), b (m), read at once. Empty ones are uniform, as in solve().
  void set_weights(VectorView a, VectorView b);

  /// With the options of the constructor.
  Plan solve();
  /// With others, this once. Another precision, cache_bytes or penalty prepares anew.
  Plan solve(SolveOptions const& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace monge
