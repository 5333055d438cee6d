#include <monge/batch.hpp>
#include <monge/solver.hpp>

#include "core/out_of_memory.hpp"
#include "core/stopwatch.hpp"
#include "entropic/sinkhorn.hpp"
#include "geometry/validation.hpp"

namespace monge {

struct Solver::State {
  Context context;
  SolveOptions options;
  SinkhornProblem problem;
  ValidMarginals given;   // The caller's weights; those of the problem have equal totals where its options need it.
  bool prepared = false;  // The operator is made for problem.options.
  bool current = false;   // The operator has the present geometry and weights.

  Plan solve(SolveOptions const& options);
};

Solver::Solver(Context const& context, Geometry const& geometry, VectorView a, VectorView b,
               SolveOptions const& options) try {
  validate(options);
  validate(geometry, context.device());
  Shape const shape = shape_of(geometry);
  ValidMarginals given = read_marginals(backend_of(context), a, b, shape);
  SinkhornProblem problem = checked_problem(context, {geometry, a, b, options.f, options.g}, given, options, true);
  state_ = std::make_unique<State>(State{context, options, std::move(problem), std::move(given)});
} catch (std::bad_alloc const&) {
  throw_out_of_memory("Solver::Solver");
}

Solver::Solver(Solver&&) noexcept = default;
Solver& Solver::operator=(Solver&&) noexcept = default;
Solver::~Solver() = default;

void Solver::set_geometry(Geometry const& geometry) {
  Geometry& present = state_->problem.geometry;
  validate(geometry, state_->context.device());
  require_same_kind(present, geometry);
  present = geometry;
  state_->current = false;
}

void Solver::set_weights(VectorView a, VectorView b) try {
  Shape const shape = shape_of(state_->problem.geometry);
  ValidMarginals given = read_marginals(backend_of(state_->context), a, b, shape);
  state_->problem.marginals = with_equal_totals(given, state_->options);
  state_->given = std::move(given);
  state_->current = false;
} catch (std::bad_alloc const&) {
  throw_out_of_memory("Solver::set_weights");
}

Plan Solver::solve() {
  return solve(state_->options);
}

Plan Solver::solve(SolveOptions const& options) {
  auto const inputs = [&](Digests& inputs) {
    add(inputs, options);
    inputs.add(state_->problem.geometry);
    inputs.add("a", VectorView(state_->given.a));
    inputs.add("b", VectorView(state_->given.b));
    inputs.add("f", options.f);
    inputs.add("g", options.g);
  };
  return in_step(state_->context, "Solver::solve", inputs,
                 [&] { return state_->solve(agreed(state_->context, options)); });
}

Plan Solver::State::solve(SolveOptions const& options) {
  Stopwatch const watch;
  Backend const& backend = backend_of(context);
  MemoryPeak const memory(backend.memory());
  validate(options);
  require_method(backend, problem.geometry, options);
  WarmStart start = validated_warm_start(backend, options.f, options.g, problem.marginals);
  problem.marginals = with_equal_totals(given, options);

  double const truncation = truncation_of(backend, problem.geometry, options);
  bool const was_prepared = prepared && first_precision(options) == first_precision(problem.options) &&
                            options.cache_bytes == problem.options.cache_bytes && truncation == problem.truncation &&
                            options.schedule == problem.options.schedule &&
                            penalties_of(options) == penalties_of(problem.options);
  bool const was_current = was_prepared && current;
  prepared = current = false;  // Until the end: a solve may throw half-way.
  problem.first.reset();       // A solve that threw may have left it.
  problem.options = options;
  problem.truncation = truncation;
  problem.start = std::move(start);
  problem.report = {};
  problem.translation = 0;
  OperatorInput const input{problem.geometry, problem.marginals, first_operator(problem)};
  if (was_current) {
    forget_potentials(*problem.entropic);
  } else {
    if (was_prepared && !problem.entropic->is_self()) {
      backend.renew(problem.entropic, input);
    } else {
      problem.entropic.reset();
      problem.entropic = backend.entropic_operator(input.geometry, input.marginals, input.options);
    }
    keep_potentials_equal(backend, problem);
  }
  begin(backend, problem, true);
  double const setup = watch.seconds();
  run_sinkhorn(backend, {&problem, 1});
  Plan plan = std::move(finished_plans(context, {&problem, 1}, setup, memory)[0]);
  if (problem.first) problem.entropic = std::move(problem.first);
  prepared = current = true;
  return plan;
}

}  // namespace monge
