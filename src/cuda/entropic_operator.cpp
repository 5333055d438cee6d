#include "cuda/entropic_operator.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/plan_operator.hpp"

namespace monge::cuda {
namespace {

/// A graph holds at most this many sweeps: enough to hide what launching it costs, few enough to be recorded quickly.
constexpr int kSweepsPerGraph = 10;

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
  if (!graphs_.empty()) cudaStreamSynchronize(problem_.runtime->stream());
}

void EntropicOperator::set_potentials(VectorView f, VectorView g) {
  DeviceGuard const guard(problem_.runtime->index());
  swept_eps_ = 0;
  for (Side side : {Side::rows, Side::columns}) {
    VectorView const view = side == Side::rows ? f : g;
    DeviceVector& target = potentials_[side_index(side)];
    std::vector<double> const& weight = problem_.weights[side_index(side)]->host();
    std::vector<double> const values = view.empty() ? std::vector<double>(weight.size()) : read(problem_.runtime, view);
    DeviceArray<double> const source = uploaded(problem_.runtime, values);
    load_vector({source.data(), 1, DataType::float64}, target.size(), problem_.costs->shift(side), target.data(),
                problem_.runtime->stream());
    double const mean = std::inner_product(values.begin(), values.end(), weight.begin(), 0.0) /
                        std::accumulate(weight.begin(), weight.end(), 0.0);
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
    if (fill) idle = transform(problem_, side, potentials_, swept_eps_, false);
    store_potential(problem_, side, potentials_[side_index(side)], idle.plus.data(), view);
  }
}

Vector& EntropicOperator::potential(Side side) {
  swept_eps_ = 0;
  return potentials_[side_index(side)];
}

void EntropicOperator::prepare_sweeps() {
  if (parameters_.data()) return;
  SharedRuntime const& runtime = problem_.runtime;
  parameters_ = DeviceArray<SweepParameters>(runtime, 1);
  for (Side side : {Side::rows, Side::columns}) {
    SweepState& target = state(side);
    PackedSide const rows = problem_.side(side);
    target.half_step = problem_.costs->launch(side, Pass::softmin, problem_.precision == Precision::tf32);
    target.logits = Logits(runtime, rows.padded_size, rows.scalar);
    std::int64_t const parts = static_cast<std::int64_t>(rows.padded_size) * target.half_step.plan.work.slots;
    target.partials = DeviceArray<unsigned char>(runtime, parts * 2 * size_of(rows.scalar));
    target.errors = DeviceArray<double>(runtime, error_parts(rows.size));
    target.host_errors = PinnedArray<double>(target.errors.size());
    MONGE_CUDA_TRY(
        cudaMemsetAsync(target.errors.data(), 0, static_cast<std::size_t>(target.errors.bytes()), runtime->stream()));
  }
  for (Side side : {Side::rows, Side::columns}) {
    PassArguments& arguments = state(side).half_step.arguments;
    arguments.logits = state(opposite(side)).logits.values.data();
    arguments.factors = state(opposite(side)).logits.factors.data();
    arguments.parameters = parameters_.data();
    arguments.partials = state(side).partials.data();
  }
  if (std::optional<Costs::FusedSweep> sweep = problem_.costs->fused_sweep()) prepare_fused_sweep(std::move(*sweep));
}

void EntropicOperator::prepare_fused_sweep(Costs::FusedSweep sweep) {
  SharedRuntime const& runtime = problem_.runtime;
  FusedSweepArguments& arguments = sweep.arguments;
  PackedSide const lines = problem_.side(sweep.lines), across = problem_.side(opposite(sweep.lines));
  std::int64_t const bytes = size_of(lines.scalar);
  DeviceArray<unsigned char> line_sums(runtime, lines.padded_size * 2 * bytes);
  DeviceArray<unsigned char> across_sums(runtime, across.padded_size * sweep.plan.clusters * bytes);
  arguments.parameters = parameters_.data();
  arguments.lines = lines;
  arguments.potential = potentials_[side_index(sweep.lines)].data();
  arguments.logits = state(opposite(sweep.lines)).logits.arrays();
  arguments.inverse_mass = 1 / problem_.weights[0]->total();
  arguments.line_sums = line_sums.data();
  arguments.across_sums = across_sums.data();
  fused_ = FusedState{std::move(sweep), std::move(line_sums), std::move(across_sums)};
}

void EntropicOperator::enqueue_half_step(Side side, cudaStream_t stream) const {
  launch_pass(state(side).half_step.plan, state(side).half_step.arguments, stream);
}

UpdateArguments EntropicOperator::update_arguments(Side side, void const* partials, WorkPlan const& work,
                                                   bool symmetric) const {
  return {
      .sums = {side_index(side), problem_.side(side), partials, nullptr, work, parameters_.data()},
      .potential = potentials_[side_index(side)].data(),
      .arrays = state(side).logits.arrays(),
      .errors = state(side).errors.data(),
      .symmetric = symmetric,
  };
}

void EntropicOperator::enqueue_update(Side side, bool symmetric, cudaStream_t stream) const {
  SweepState const& target = state(side);
  update_potential(update_arguments(side, target.partials.data(), target.half_step.plan.work, symmetric), stream);
}

/// One read of the costs; both sides are updated. Sums that cannot be trusted are made again from the logits of the
/// lines, so these must be those of the potentials that the pass has used: the new ones, or the old ones of a symmetric
/// sweep.
void EntropicOperator::enqueue_fused_sweep(bool symmetric, cudaStream_t stream) const {
  Costs::FusedSweep const& sweep = fused_->sweep;
  FusedSweepArguments arguments = sweep.arguments;
  arguments.symmetric = symmetric;
  auto const update_lines = [&] {
    // One sum a line: a plan with one slot.
    update_potential(update_arguments(sweep.lines, fused_->line_sums.data(), WorkPlan{}, symmetric), stream);
  };
  launch_fused_sweep(sweep.plan, arguments, stream);
  if (!symmetric) update_lines();
  update_across(
      {
          .update = update_arguments(opposite(sweep.lines), fused_->across_sums.data(), WorkPlan{}, symmetric),
          .costs = arguments.costs,
          .factor = arguments.factor,
          .lines = state(sweep.lines).logits.arrays(),
          .clusters = sweep.plan.clusters,
          .mass = problem_.weights[0]->total(),
      },
      stream);
  if (symmetric) update_lines();
}

void EntropicOperator::enqueue_sweeps(bool symmetric, int count, cudaStream_t stream) const {
  // The logits depend on eps, which may have changed since the last update left some; updates leave the padding alone.
  for (Side side : {Side::rows, Side::columns}) {
    make_logits({side_index(side), problem_.side(side), potentials_[side_index(side)].data(), parameters_.data(),
                 state(side).logits.arrays(), nullptr},
                stream);
  }
  if (fused_) {
    enqueue_fused_sweeps(symmetric, count, stream);
  } else {
    enqueue_plain_sweeps(symmetric, count, stream);
  }
}

/// A fused sweep updates the lines and then the other side. Where the lines are columns, it is the second half of one
/// alternating sweep and the first of the next.
void EntropicOperator::enqueue_fused_sweeps(bool symmetric, int count, cudaStream_t stream) const {
  if (symmetric || fused_->sweep.lines == Side::rows) {
    for (int k = 0; k < count; ++k) enqueue_fused_sweep(symmetric, stream);
    return;
  }
  enqueue_half_step(Side::rows, stream);
  enqueue_update(Side::rows, symmetric, stream);
  for (int k = 1; k < count; ++k) enqueue_fused_sweep(symmetric, stream);
  enqueue_half_step(Side::columns, stream);
  enqueue_update(Side::columns, symmetric, stream);
}

void EntropicOperator::enqueue_plain_sweeps(bool symmetric, int count, cudaStream_t stream) const {
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
  set_parameters(parameters_.data(), parameters_for(potentials_, sweep.eps, sweep.relaxation), runtime.stream());
  for (int left = count; left > 0;) {
    int const now = std::min(left, kSweepsPerGraph);
    auto const key = std::pair(sweep.symmetric, now);
    auto found = graphs_.find(key);
    if (found == graphs_.end()) {
      auto const record = [&](cudaStream_t stream) { enqueue_sweeps(sweep.symmetric, now, stream); };
      found = graphs_.try_emplace(key, runtime, record).first;
    }
    found->second.launch(runtime.stream());
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
  for (SweepState const& part : states_) {
    MONGE_CUDA_TRY(cudaMemcpyAsync(part.host_errors.data(), part.errors.data(),
                                   static_cast<std::size_t>(part.errors.bytes()), cudaMemcpyDeviceToHost,
                                   problem_.runtime->stream()));
  }
  problem_.runtime->wait();
  auto const total = [](PinnedArray<double> const& values) {
    return std::accumulate(values.data(), values.data() + values.size(), 0.0);
  };
  return {total(state(Side::rows).host_errors), total(state(Side::columns).host_errors)};
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
