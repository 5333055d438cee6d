#include "cuda/entropic_operator.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/plan_operator.hpp"

namespace monge::cuda {
namespace {

/// Sweeps are launched in groups of at most this many. A graph holds a whole group: enough to hide what launching it
/// costs, few enough to be recorded quickly.
constexpr int kSweepsPerGraph = 10;

/// Recording a graph takes the host as long as launching twice its sweeps one by one (bench/notes/cuda_small.md), so
/// there is none before so many sweeps were done without.
constexpr int kSweepsBeforeGraph = 20;

}  // namespace

EntropicOperator::EntropicOperator(Problem problem, double cache_bytes)
    : monge::EntropicOperator(problem.size(Side::rows), problem.size(Side::columns)),
      problem_(std::move(problem)),
      vectors_(problem_.runtime, size(Side::rows), size(Side::columns)),
      cache_bytes_(cache_bytes) {
  for (Side side : {Side::rows, Side::columns}) {
    DeviceVector& potential = potentials_[side_index(side)];
    potential = DeviceVector(problem_.runtime, size(side));
    MONGE_CUDA_TRY(cudaMemsetAsync(potential.data(), 0, static_cast<std::size_t>(potential.values.bytes()),
                                   problem_.runtime->stream()));
  }
}

EntropicOperator::~EntropicOperator() {
  // Graphs may still run on memory that is about to go.
  if (graphs_[0] || graphs_[1]) cudaStreamSynchronize(problem_.runtime->stream());
}

void EntropicOperator::set_potentials(VectorView f, VectorView g) {
  DeviceGuard const guard(problem_.runtime->index());
  swept_eps_ = 0;
  for (Side side : {Side::rows, Side::columns}) {
    VectorView const view = side == Side::rows ? f : g;
    DeviceVector& target = potentials_[side_index(side)];
    Weights const& weights = *problem_.weights[side_index(side)];
    std::vector<double> const values =
        view.empty() ? std::vector<double>(weights.host().size()) : read(problem_.runtime, view);
    DeviceArray<double> const source = uploaded(problem_.runtime, values);
    load_vector({source.data(), 1, DataType::float64}, target.size(), problem_.costs->shift(side), target.data(),
                problem_.runtime->stream());
    double const mean = std::inner_product(values.begin(), values.end(), weights.host().begin(), 0.0) / weights.total();
    target.typical = mean - problem_.costs->mean_shift(side);
  }
}

void EntropicOperator::get_potentials(MutableVectorView f, MutableVectorView g) const {
  DeviceGuard const guard(problem_.runtime->index());
  for (Side side : {Side::rows, Side::columns}) {
    MutableVectorView const view = side == Side::rows ? f : g;
    if (view.empty()) continue;
    // Points of no weight do not see relaxed or averaged steps: theirs is the soft c-transform of the other side.
    bool const fill = swept_eps_ > 0 && problem_.weights[side_index(side)]->has_idle_points();
    Transform idle;
    if (fill) idle = transform(problem_, side, potentials_, swept_eps_);
    store_potential(problem_, side, potentials_[side_index(side)], idle.plus.data(), view);
  }
}

Vector& EntropicOperator::potential(Side side) {
  swept_eps_ = 0;
  return potentials_[side_index(side)];
}

void EntropicOperator::prepare_sweeps() {
  if (parameters_) return;
  SharedRuntime const& runtime = problem_.runtime;
  for (Side side : {Side::rows, Side::columns}) {
    SweepState& target = state(side);
    PackedSide const rows = problem_.side(side);
    target.half_step = problem_.costs->launch(side, Pass::softmin, problem_.precision == Precision::tf32);
    target.logits = Logits(runtime, rows.padded_size, rows.scalar);
  }
  auto const partial_bytes = [&](Side side) {
    PackedSide const rows = problem_.side(side);
    return static_cast<std::int64_t>(rows.padded_size) * state(side).half_step.plan.work.slots * 2 *
           size_of(rows.scalar);
  };
  double* errors = nullptr;
  std::int64_t const row_errors = error_parts(problem_.size(Side::rows));
  std::int64_t const all_errors = row_errors + error_parts(problem_.size(Side::columns));
  sweep_memory_ = allocate_parts(runtime, Part{parameters_, 1}, Part{errors, all_errors},
                                 Part{states_[0].partials, partial_bytes(Side::rows)},
                                 Part{states_[1].partials, partial_bytes(Side::columns)});
  states_[0].errors = errors;
  states_[1].errors = errors + row_errors;
  MONGE_CUDA_TRY(cudaMemsetAsync(errors, 0, static_cast<std::size_t>(all_errors) * sizeof(double), runtime->stream()));
  for (Side side : {Side::rows, Side::columns}) {
    PassArguments& arguments = state(side).half_step.arguments;
    arguments.logits = state(opposite(side)).logits.values.data();
    arguments.factors = state(opposite(side)).logits.factors.data();
    arguments.parameters = parameters_;
    arguments.partials = state(side).partials;
  }
}

void EntropicOperator::enqueue_half_step(Side side, cudaStream_t stream) const {
  launch_pass(state(side).half_step.plan, state(side).half_step.arguments, stream);
}

void EntropicOperator::enqueue_update(Side side, bool symmetric, cudaStream_t stream) const {
  SweepState const& target = state(side);
  update_potential(
      {
          .sums = {side_index(side), problem_.side(side), target.partials, nullptr, target.half_step.plan.work,
                   parameters_},
          .potential = potentials_[side_index(side)].data(),
          .arrays = target.logits.arrays(),
          .errors = target.errors,
          .symmetric = symmetric,
      },
      stream);
}

void EntropicOperator::enqueue_sweeps(bool symmetric, int count, cudaStream_t stream) const {
  for (int k = 0; k < count; ++k) {
    enqueue_half_step(Side::rows, stream);
    if (symmetric) {
      enqueue_half_step(Side::columns, stream);
      enqueue_update(Side::rows, symmetric, stream);
    } else {
      enqueue_update(Side::rows, symmetric, stream);
      enqueue_half_step(Side::columns, stream);
    }
    enqueue_update(Side::columns, symmetric, stream);
  }
}

void EntropicOperator::launch_sweeps(Sweep const& sweep, int count) {
  Runtime const& runtime = *problem_.runtime;
  LogitArguments logits{parameters_for(potentials_, sweep.eps, sweep.relaxation), parameters_, {}};
  for (Side side : {Side::rows, Side::columns}) {
    logits.side[side_index(side)] = {problem_.side(side), potentials_[side_index(side)].data(),
                                     state(side).logits.arrays(), nullptr};
  }
  for (int left = count; left > 0;) {
    int const now = std::min(left, kSweepsPerGraph);
    // The logits depend on eps, which may have changed since the last update left some.
    make_logits(logits, runtime.stream());
    std::optional<Graph>& graph = graphs_[sweep.symmetric];
    if (now < kSweepsPerGraph || sweeps_ < kSweepsBeforeGraph) {
      enqueue_sweeps(sweep.symmetric, now, runtime.stream());
    } else {
      if (!graph) graph.emplace(runtime, [&](cudaStream_t stream) { enqueue_sweeps(sweep.symmetric, now, stream); });
      graph->launch(runtime.stream());
    }
    sweeps_ += now;
    left -= now;
  }
}

/// An alternating sweep makes f from g, so f's typical value becomes minus g's. A symmetric one averages: the first
/// runs at the old values, then both meet.
void EntropicOperator::sweep(Sweep const& sweep, int count) {
  DeviceGuard const guard(problem_.runtime->index());
  prepare_sweeps();
  double& f = potentials_[0].typical;
  double& g = potentials_[1].typical;
  if (!sweep.symmetric) {
    f = -g;
  } else if (f != -g && count > 0) {
    launch_sweeps(sweep, 1);
    --count;
    f = (f - g) / 2;
    g = -f;
  }
  launch_sweeps(sweep, count);
  swept_eps_ = sweep.eps;
}

SweepErrors EntropicOperator::errors() {
  DeviceGuard const guard(problem_.runtime->index());
  prepare_sweeps();
  auto const rows = static_cast<std::ptrdiff_t>(error_parts(problem_.size(Side::rows)));
  std::vector<double> const parts =
      download(*problem_.runtime, state(Side::rows).errors, rows + error_parts(problem_.size(Side::columns)));
  return {std::accumulate(parts.begin(), parts.begin() + rows, 0.0),
          std::accumulate(parts.begin() + rows, parts.end(), 0.0)};
}

Evaluation EntropicOperator::evaluate(double eps) {
  DeviceGuard const guard(problem_.runtime->index());
  return cuda::evaluate(problem_, potentials_, eps);
}

std::unique_ptr<monge::PlanOperator> EntropicOperator::plan(double eps) const {
  DeviceGuard const guard(problem_.runtime->index());
  return std::make_unique<PlanOperator>(problem_, potentials_, eps, cache_bytes_);
}

}  // namespace monge::cuda
