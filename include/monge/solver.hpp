// Solver: a problem that is solved again and again, with other points, weights or costs of the same shape.
#pragma once
#include <memory>

#include <monge/context.hpp>
#include <monge/entropic.hpp>
#include <monge/export.hpp>
#include <monge/geometry.hpp>
#include <monge/plan.hpp>

namespace monge {

/// A prepared solve(). On CUDA, memory and recorded launches are kept from one solve to the next. On the CPU new inputs
/// are packed into new memory, which takes a small part of a solve's time; for unchanged inputs packed points and
/// scores are kept. Results have the same bits as those of solve(). One thread at a time may use a Solver.
///
/// Each solve reads geometry and warm start, so their memory must not change until they are replaced or the last solve
/// is done. After writing new values to the same memory, call set_geometry(). A returned Plan does not change: while it
/// exists, the next problem gets new memory.
class MONGE_API Solver {
 public:
  /// Arguments as in solve(). The first solve checks points and costs. Throws Error (invalid_argument).
  Solver(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
         SolveOptions const& options = {});
  Solver(Context const& context, Geometry const& geometry, SolveOptions const& options = {})
      : Solver(context, geometry, {}, {}, options) {}
  Solver(Solver&&) noexcept;
  Solver& operator=(Solver&&) noexcept;
  ~Solver();

  /// Replaces the geometry by one of the same kind, n, m, d, cost function and number of classes; otherwise throws
  /// Error (invalid_argument).
  void set_geometry(Geometry const& geometry);
  /// Replaces the weights a (n) and b (m), which are read at once. Empty ones are uniform, as in solve().
  void set_weights(VectorView a, VectorView b);

  /// Solves with the options of the constructor.
  Plan solve();
  /// Solves with other options, in this call only. Another precision, schedule, cache_bytes or penalty prepares the
  /// problem again.
  Plan solve(SolveOptions const& options);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace monge
