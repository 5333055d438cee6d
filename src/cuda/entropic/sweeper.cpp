#include "cuda/entropic/sweeper.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/numbers.hpp"
#include "cuda/launch/copy_words.hpp"

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

void Sweeper::record(std::span<SweepStep*> steps) {
  ArenaScope const scope(*runtime_);
  recorded_.clear();
  order_.clear();
  sweeps_.emplace(runtime_);
  std::unordered_map<std::uint64_t, Recorded> recorded;
  std::int64_t errors = 0;
  for (SweepStep const* step : steps) {
    recorded.try_emplace(key_of(*step), Recorded{recorded.size(), errors});
    errors += operator_of(*step).error_count();
  }
  errors_ = DeviceArray<double>(runtime_, errors);
  for (SweepStep const* step : steps) {
    EntropicOperator& entropic = operator_of(*step);
    sweeps_->next_problem();
    copy_words(entropic.error_parts(), errors_.data() + recorded[key_of(*step)].first_error,
               entropic.error_count() * static_cast<std::int64_t>(sizeof(double)), *sweeps_);
    entropic.enqueue_sweep(step->sweep, *sweeps_);
  }
  recorded_ = std::move(recorded);  // Only a complete recording is known.
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
  if (order != order_) {
    order_.clear();  // Until the new order stands.
    sweeps_->arrange(order);
    order_ = std::move(order);
  }
  std::size_t active = turns.size();
  for (int done = 0; active > 0; ++done) {
    while (active > 0 && turns[active - 1].count <= done) --active;
    sweeps_->launch(kSweep, kAll, active);
  }
}

void Sweeper::sweep_recorded(std::span<SweepStep*> steps) {
  bool const known =
      std::all_of(steps.begin(), steps.end(), [&](SweepStep* step) { return recorded_.contains(key_of(*step)); });
  if (!known) record(steps);
  std::vector<Turn> apart, turns;
  for (SweepStep const* step : steps) {
    EntropicOperator& entropic = operator_of(*step);
    std::size_t const problem = recorded_[key_of(*step)].problem;
    bool const starts_apart = step->count > 0 && entropic.starts_apart(step->sweep);
    if (starts_apart) apart.push_back({problem, &entropic, step->sweep, 1});
    turns.push_back({problem, &entropic, step->sweep, step->count - (starts_apart ? 1 : 0)});
  }
  if (!apart.empty()) launch(std::move(apart));
  for (Turn const& turn : turns) turn.entropic->settle(turn.sweep);
  launch(std::move(turns));
  sweeps_->launch(kErrors, kSweep, steps.size());
  std::vector<double> const parts = download(*runtime_, errors_.data(), errors_.size());
  for (SweepStep* step : steps)
    step->errors = operator_of(*step).errors_from(parts.data() + recorded_[key_of(*step)].first_error);
}

/// Operators whose plans go together, in their order, are one launch.
void Sweeper::launch_resident(std::vector<Turn> const& turns) {
  Uploads uploads(runtime_);
  struct Group {
    ResidentSweepPlan plan;
    std::vector<Uploads::Place> arguments = {};
    std::vector<EntropicOperator*> operators = {};
    std::vector<int> blocks = {};
    int sum = 0;
    BlockOfMany const* table = nullptr;
  };
  std::vector<Group> groups;
  for (Turn const& turn : turns) {
    if (turn.count == 0) continue;
    ResidentSweepPlan const& plan = *turn.entropic->resident_sweeps();
    if (groups.empty() || !groups.back().plan.goes_with(plan)) groups.push_back({plan});
    Group& group = groups.back();
    ResidentSweepArguments const arguments = turn.entropic->resident_arguments(turn.sweep, turn.count, turn.errors);
    group.arguments.push_back(uploads.reserve(sizeof arguments));
    std::memcpy(group.arguments.back().host, &arguments, sizeof arguments);
    group.operators.push_back(turn.entropic);
    group.blocks.push_back(plan.blocks());
    group.sum += plan.blocks();
  }
  for (Group& group : groups) {
    Uploads::Place const place = uploads.reserve(to_size(group.sum) * sizeof(BlockOfMany));
    group.table = static_cast<BlockOfMany const*>(place.device);
    auto* next = static_cast<BlockOfMany*>(place.host);
    for (std::size_t k = 0; k < group.blocks.size(); ++k) {
      for (int block = 0; block < group.blocks[k]; ++block) *next++ = {group.arguments[k].device, block, 1};
    }
  }
  uploads.send();
  for (Group const& group : groups) {
    launch_resident_sweeps(group.plan, group.table, group.sum, runtime_->stream());
    runtime_->count_batch_launch();
    for (std::size_t k = 0; k < group.operators.size(); ++k)
      group.operators[k]->count_arrivals(*static_cast<ResidentSweepArguments const*>(group.arguments[k].host));
  }
}

void Sweeper::sweep_resident(std::span<SweepStep*> steps) {
  std::vector<std::int64_t> first_error{0};
  for (SweepStep const* step : steps) first_error.push_back(first_error.back() + operator_of(*step).error_count());
  DeviceArray<double> const errors(runtime_, first_error.back());
  std::vector<Turn> apart, turns;
  for (std::size_t k = 0; k < steps.size(); ++k) {
    SweepStep const& step = *steps[k];
    EntropicOperator& entropic = operator_of(step);
    int const alone = step.count > 0 && entropic.starts_apart(step.sweep) ? 1 : 0;
    double* const to = errors.data() + first_error[k];
    if (alone > 0) apart.push_back({k, &entropic, step.sweep, alone, to});
    turns.push_back({k, &entropic, step.sweep, step.count - alone, to});
  }
  if (!apart.empty()) launch_resident(apart);
  for (Turn const& turn : turns) turn.entropic->settle(turn.sweep);
  launch_resident(turns);
  std::vector<double> const parts = download(*runtime_, errors.data(), errors.size());
  for (std::size_t k = 0; k < steps.size(); ++k)
    steps[k]->errors = operator_of(*steps[k]).errors_from(parts.data() + first_error[k]);
}

void Sweeper::sweep_alone(SweepStep& step) {
  step.entropic->sweep(step.sweep, step.count);
  step.errors = step.entropic->errors();
}

/// The operators of this rank alone.
void Sweeper::sweep_here(std::span<SweepStep*> steps) {
  if (steps.size() == 1) return sweep_alone(*steps[0]);
  std::vector<SweepStep*> recorded, resident;
  {
    ArenaScope const scope(*runtime_);
    for (SweepStep* step : steps) {
      EntropicOperator& entropic = operator_of(*step);
      entropic.prepare_sweeps();
      (entropic.resident_sweeps() ? resident : recorded).push_back(step);
    }
  }
  if (!resident.empty()) sweep_resident(resident);
  if (!recorded.empty()) sweep_recorded(recorded);
}

/// Each rank sweeps some of the operators; then all gather the potentials and errors.
void Sweeper::sweep_spread(DeviceRanks const& ranks, std::span<SweepStep*> steps) {
  struct Found {
    SweepErrors errors;
    double typical[2];
  };
  std::vector<std::int64_t> const edges = ranks.edges(steps.size());
  auto const of_rank = [&](int rank) {
    auto const first = edges[to_size(rank)], end = edges[to_size(rank) + 1];
    return steps.subspan(to_size(first), to_size(end - first));
  };
  std::span<SweepStep*> const own = of_rank(ranks.rank());
  if (!own.empty()) sweep_here(own);
  std::vector<Found> found;
  for (SweepStep const* step : steps) {
    auto const typical = [&](Side side) {
      return static_cast<DeviceVector const&>(std::as_const(operator_of(*step)).potential(side)).typical;
    };
    found.push_back({step->errors, {typical(Side::rows), typical(Side::columns)}});
  }
  ranks.exchange(shared_items(found.data(), 1, edges));

  std::vector<std::int64_t> sizes;  // Numbers in the potentials of each rank.
  for (int rank = 0; rank < ranks.size(); ++rank) {
    std::int64_t& size = sizes.emplace_back(0);
    for (SweepStep const* step : of_rank(rank))
      size += step->entropic->size(Side::rows) + step->entropic->size(Side::columns);
  }
  std::int64_t const each = *std::max_element(sizes.begin(), sizes.end());
  DeviceArray<double> const all(runtime_, each * ranks.size());
  // Copies the potentials of a rank's operators to their places, or from there.
  auto const copy = [&](int rank, bool to_places, Together& copies) {
    double* place = all.data() + rank * each;
    for (SweepStep const* step : of_rank(rank)) {
      copies.next_problem();
      for (Side const side : kSides) {
        double* const potential = operator_of(*step).potential_data(side);
        std::int64_t const size = step->entropic->size(side);
        copy_words(to_places ? potential : place, to_places ? place : potential,
                   size * static_cast<std::int64_t>(sizeof(double)), copies.queue());
        place += size;
      }
    }
  };
  {
    Together copies(runtime_, own.size());
    copy(ranks.rank(), true, copies);
    copies.launch();
  }
  ranks.gather(all.data(), each * static_cast<std::int64_t>(sizeof(double)), runtime_->stream());
  Together copies(runtime_, steps.size() - own.size());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank != ranks.rank()) copy(rank, false, copies);
  }
  copies.launch();
  for (std::size_t k = 0; k < steps.size(); ++k) {
    steps[k]->errors = found[k].errors;
    operator_of(*steps[k]).take_over(steps[k]->sweep, found[k].typical);
  }
}

/// Operators whose passes the ranks share or leave out pairs sweep one by one; the ranks share the others operator by
/// operator.
void Sweeper::sweep(std::span<SweepStep> steps) {
  DeviceGuard const guard(runtime_->index());
  std::vector<SweepStep*> others;
  double nanoseconds = 0;
  for (SweepStep& step : steps) {
    Costs const& costs = *operator_of(step).problem().costs;
    if (costs.sharing_ranks() || operator_of(step).problem().ordering) {
      sweep_alone(step);
    } else {
      others.push_back(&step);
      nanoseconds += 2 * step.count * costs.pass_nanoseconds();
    }
  }
  DeviceRanks const* const ranks = runtime_->ranks();
  if (ranks && others.size() > 1 && nanoseconds > kLeastSpreadNanoseconds) return sweep_spread(*ranks, others);
  if (!others.empty()) sweep_here(others);
}

}  // namespace monge::cuda
