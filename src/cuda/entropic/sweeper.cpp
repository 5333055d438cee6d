#include "cuda/entropic/sweeper.hpp"

#include <algorithm>
#include <limits>

#include "cuda/geometry/pack.hpp"

namespace monge::cuda {
namespace {

/// Recorded steps: kErrors collects the errors; the steps from kSweep on are a sweep. Its length depends on the
/// problem.
constexpr std::size_t kErrors = 0, kSweep = 1, kAll = std::numeric_limits<std::size_t>::max();

EntropicOperator& operator_of(SweepStep const& step) {
  return static_cast<EntropicOperator&>(*step.entropic);
}

/// The key of a recorded sweep. Numbers of destroyed operators are not used again.
std::uint64_t key_of(SweepStep const& step) {
  return 2 * operator_of(step).number() + (step.sweep.symmetric ? 1 : 0);
}

}  // namespace

void Sweeper::record(std::span<SweepStep const> steps) {
  ArenaScope const scope(*runtime_);
  recorded_.clear();
  order_.clear();
  sweeps_.emplace(runtime_);
  std::int64_t errors = 0;
  for (SweepStep const& step : steps) {
    recorded_.try_emplace(key_of(step), Recorded{recorded_.size(), errors});
    errors += operator_of(step).error_count();
  }
  errors_ = DeviceArray<double>(runtime_, errors);
  for (SweepStep const& step : steps) {
    EntropicOperator& entropic = operator_of(step);
    sweeps_->next_problem();
    entropic.prepare_sweeps();
    copy_words(entropic.error_parts(), errors_.data() + recorded_[key_of(step)].first_error,
               entropic.error_count() * static_cast<std::int64_t>(sizeof(double)), *sweeps_);
    entropic.enqueue_sweep(step.sweep, *sweeps_);
  }
}

/// The longest turns come first, so the operators that still sweep are always the first ones.
void Sweeper::launch(std::vector<Turn> turns) {
  std::stable_sort(turns.begin(), turns.end(), [](Turn const& p, Turn const& q) { return p.count > q.count; });
  std::vector<std::size_t> order;
  Together logits(runtime_, turns.size());
  for (Turn const& turn : turns) {
    order.push_back(turn.problem);
    logits.next_problem();
    turn.entropic->make_logits(turn.sweep, logits.queue());
  }
  logits.launch();
  if (order != order_) sweeps_->arrange(order);
  order_ = std::move(order);
  std::size_t active = turns.size();
  for (int done = 0; active > 0; ++done) {
    while (active > 0 && turns[active - 1].count <= done) --active;
    sweeps_->launch(kSweep, kAll, active);
  }
}

void Sweeper::sweep(std::span<SweepStep> steps) {
  DeviceGuard const guard(runtime_->index());
  if (steps.size() == 1) {
    steps[0].entropic->sweep(steps[0].sweep, steps[0].count);
    steps[0].errors = steps[0].entropic->errors();
    return;
  }
  bool const known =
      std::all_of(steps.begin(), steps.end(), [&](SweepStep const& step) { return recorded_.contains(key_of(step)); });
  if (!known) record(steps);
  std::vector<Turn> apart, turns;
  for (SweepStep const& step : steps) {
    EntropicOperator& entropic = operator_of(step);
    std::size_t const problem = recorded_[key_of(step)].problem;
    bool const starts_apart = step.count > 0 && entropic.starts_apart(step.sweep);
    if (starts_apart) apart.push_back({problem, &entropic, step.sweep, 1});
    turns.push_back({problem, &entropic, step.sweep, step.count - (starts_apart ? 1 : 0)});
  }
  if (!apart.empty()) launch(std::move(apart));
  for (Turn const& turn : turns) turn.entropic->settle(turn.sweep);
  launch(std::move(turns));
  sweeps_->launch(kErrors, kSweep, steps.size());
  std::vector<double> const parts = download(*runtime_, errors_.data(), errors_.size());
  for (SweepStep& step : steps)
    step.errors = operator_of(step).errors_from(parts.data() + recorded_[key_of(step)].first_error);
}

}  // namespace monge::cuda
