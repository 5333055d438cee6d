#include "cuda/entropic_operator.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/launch/batch.hpp"
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
  }
  for (Side side : {Side::rows, Side::columns}) {
    PassArguments& arguments = state(side).half_step.arguments;
    arguments.logits = state(opposite(side)).logits.values.data();
    arguments.factors = state(opposite(side)).logits.factors.data();
    arguments.parameters = parameters_.data();
    arguments.partials = state(side).partials.data();
  }
}

void EntropicOperator::set_parameters(Sweep const& sweep, Queue const& queue) const {
  cuda::set_parameters({parameters_.data(), parameters_for(potentials_, sweep.eps, sweep.relaxation)}, queue);
}

/// The logits depend on eps, which may have changed since the last update left some; updates leave the padding alone.
void EntropicOperator::make_logits(Queue const& queue) const {
  for (Side side : {Side::rows, Side::columns}) {
    cuda::make_logits({side_index(side), problem_.side(side), potentials_[side_index(side)].data(), parameters_.data(),
                       state(side).logits.arrays(), nullptr},
                      queue);
  }
}

void EntropicOperator::enqueue_half_step(Side side, Queue const& queue) const {
  launch_pass(state(side).half_step.plan, state(side).half_step.arguments, queue);
}

void EntropicOperator::enqueue_update(Side side, bool symmetric, Queue const& queue) const {
  SweepState const& target = state(side);
  update_potential(
      {
          .sums = {side_index(side), problem_.side(side), target.partials.data(), nullptr, target.half_step.plan.work,
                   parameters_.data()},
          .potential = potentials_[side_index(side)].data(),
          .arrays = target.logits.arrays(),
          .errors = target.errors.data(),
          .symmetric = symmetric,
      },
      queue);
}

void EntropicOperator::enqueue_sweep(bool symmetric, Queue const& queue) const {
  enqueue_half_step(Side::rows, queue);
  if (symmetric) {
    enqueue_half_step(Side::columns, queue);
    enqueue_update(Side::rows, symmetric, queue);
  } else {
    enqueue_update(Side::rows, symmetric, queue);
    enqueue_half_step(Side::columns, queue);
  }
  enqueue_update(Side::columns, symmetric, queue);
}

void EntropicOperator::sum_errors(double* out, Queue const& queue) const {
  SweepState const &rows = state(Side::rows), &columns = state(Side::columns);
  cuda::sum_errors({{rows.errors.data(), columns.errors.data()},
                    {static_cast<int>(rows.errors.size()), static_cast<int>(columns.errors.size())},
                    out},
                   queue);
}

void EntropicOperator::launch_sweeps(Sweep const& sweep, int count) {
  Runtime const& runtime = *problem_.runtime;
  set_parameters(sweep, runtime.stream());
  for (int left = count; left > 0;) {
    int const now = std::min(left, kSweepsPerGraph);
    auto const key = std::pair(sweep.symmetric, now);
    auto found = graphs_.find(key);
    if (found == graphs_.end()) {
      auto const record = [&](cudaStream_t stream) {
        make_logits(stream);
        for (int k = 0; k < now; ++k) enqueue_sweep(sweep.symmetric, stream);
      };
      found = graphs_.try_emplace(key, runtime, record).first;
    }
    found->second.launch(runtime.stream());
    left -= now;
  }
}

/// A symmetric sweep averages the potentials, typical values included: the first runs at the old ones.
bool EntropicOperator::starts_apart(Sweep const& sweep) const {
  return sweep.symmetric && potentials_[0].typical != -potentials_[1].typical;
}

/// The typical values that the sweeps after that lead to: an alternating one makes f from g, so f's becomes minus g's.
void EntropicOperator::settle(Sweep const& sweep) {
  double& f = potentials_[0].typical;
  double& g = potentials_[1].typical;
  f = sweep.symmetric ? (f - g) / 2 : -g;
  g = -f;
}

void EntropicOperator::sweep(Sweep const& sweep, int count) {
  DeviceGuard const guard(problem_.runtime->index());
  prepare_sweeps();
  if (count > 0 && starts_apart(sweep)) {
    launch_sweeps(sweep, 1);
    --count;
  }
  settle(sweep);
  launch_sweeps(sweep, count);
  swept_eps_ = sweep.eps;
}

SweepErrors EntropicOperator::errors() {
  if (!parameters_.data()) return {0, 0};
  Runtime const& runtime = *problem_.runtime;
  DeviceGuard const guard(runtime.index());
  if (!error_sums_.data()) {
    error_sums_ = DeviceArray<double>(problem_.runtime, 2);
    host_errors_ = PinnedArray<double>(2);
  }
  sum_errors(error_sums_.data(), runtime.stream());
  MONGE_CUDA_TRY(cudaMemcpyAsync(host_errors_.data(), error_sums_.data(), 2 * sizeof(double), cudaMemcpyDeviceToHost,
                                 runtime.stream()));
  runtime.wait();
  return {host_errors_[0], host_errors_[1]};
}

/// Sweeps that are done drop out at the end of the launches, for the longest turns come first.
void EntropicOperator::launch_together(SharedRuntime const& runtime, std::vector<Turn> turns) {
  std::stable_sort(turns.begin(), turns.end(), [](Turn const& p, Turn const& q) { return p.count > q.count; });
  constexpr std::size_t kSteps = 4;  // Of a sweep, after its parameters and logits.
  Batch batch(runtime);
  for (Turn const& turn : turns) {
    batch.next_problem();
    turn.entropic->prepare_sweeps();
    turn.entropic->set_parameters(turn.sweep, batch);
    turn.entropic->make_logits(batch);
    turn.entropic->enqueue_sweep(turn.sweep.symmetric, batch);
  }
  batch.upload();
  std::size_t const first = batch.steps() - kSteps;
  int active = static_cast<int>(turns.size());
  batch.launch(0, first, active);
  for (int done = 0; active > 0; ++done) {
    while (active > 0 && turns[static_cast<std::size_t>(active) - 1].count <= done) --active;
    batch.launch(first, batch.steps(), active);
  }
}

void EntropicOperator::sweep_together(SharedRuntime const& runtime, std::span<SweepStep> steps) {
  DeviceGuard const guard(runtime->index());
  std::vector<Turn> apart, turns;
  for (SweepStep const& step : steps) {
    auto& entropic = static_cast<EntropicOperator&>(*step.entropic);
    bool const starts_apart = entropic.starts_apart(step.sweep);
    if (starts_apart) apart.push_back({&entropic, step.sweep, 1});
    turns.push_back({&entropic, step.sweep, step.count - (starts_apart ? 1 : 0)});
  }
  if (!apart.empty()) launch_together(runtime, apart);
  for (Turn const& turn : turns) {
    turn.entropic->settle(turn.sweep);
    turn.entropic->swept_eps_ = turn.sweep.eps;
  }
  launch_together(runtime, turns);

  Batch batch(runtime);
  DeviceArray<double> const sums(runtime, 2 * static_cast<std::int64_t>(steps.size()));
  for (std::size_t k = 0; k < steps.size(); ++k) {
    batch.next_problem();
    turns[k].entropic->sum_errors(sums.data() + 2 * k, batch);
  }
  batch.launch();
  std::vector<double> const found = download(*runtime, sums.data(), sums.size());
  for (std::size_t k = 0; k < steps.size(); ++k) steps[k].errors = {found[2 * k], found[2 * k + 1]};
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
