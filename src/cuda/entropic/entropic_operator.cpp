#include "cuda/entropic/entropic_operator.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/numbers.hpp"
#include "cuda/launch/batch.hpp"
#include "cuda/plan/plan_operator.hpp"
#include "cuda/sweep/joined_sums.hpp"
#include "geometry/tile_model.hpp"

namespace monge::cuda {
namespace {

/// Sweeps in one graph: enough to hide the cost of its launch, few enough to record it quickly.
constexpr int kSweepsPerGraph = 10;

/// A graph saves launches by the host, which mostly overlap the kernels anyway. Recording a graph takes as long as it
/// saves in 100 sweeps (bench/notes/cuda_small.md). The first 100 sweeps are therefore launched one by one.
constexpr int kSweepsBeforeGraph = 100;

}  // namespace

std::uint64_t EntropicOperator::unique_number() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

EntropicOperator::EntropicOperator(Problem problem, double cache_bytes, Queue const& queue)
    : monge::EntropicOperator(problem.size(Side::rows), problem.size(Side::columns), problem.is_self),
      problem_(std::move(problem)),
      vectors_(problem_.runtime, size(Side::rows), size(Side::columns)),
      cache_bytes_(cache_bytes) {
  for (Side const side : kSides) {
    DeviceVector& potential = potentials_[side_index(side)];
    potential = DeviceVector(problem_.runtime, size(side));
    combine({potential.size(), 0, {}, potential.data()}, queue);
  }
}

EntropicOperator::~EntropicOperator() {
  drop_graphs();
}

void EntropicOperator::drop_graphs() noexcept {
  // The graphs may still run.
  if (graphs_[0] || graphs_[1]) cudaStreamSynchronize(problem_.runtime->stream());
  for (std::optional<Graph>& graph : graphs_) graph.reset();
}

void EntropicOperator::set_potentials(VectorView f, VectorView g) {
  DeviceGuard const guard(problem_.runtime->index());
  swept_eps_ = 0;
  tiles_eps_ = 0;  // The result is that of a new operator.
  for (Side const side : kSides) {
    VectorView const view = side == Side::rows ? f : g;
    DeviceVector& target = potentials_[side_index(side)];
    Weights const& weights = *problem_.weights[side_index(side)];
    DeviceArray<double> source;
    target.typical = -problem_.costs->mean_shift(side);
    if (!view.empty()) {
      std::vector<double> const values = host_copy(*problem_.runtime, as_column(view));
      source = uploaded(problem_.runtime, values);
      target.typical += std::inner_product(values.begin(), values.end(), weights.host().begin(), 0.0) / weights.total();
    }
    load_vector({source.data(), 1, DataType::float64}, target.size(), 1, problem_.costs->shift(side), target.data(),
                problem_.runtime->stream());
  }
  if (!is_self()) return;
  vectors_.combine(std::array<Term, 2>{Term{0.5, &potentials_[0]}, Term{0.5, &potentials_[1]}}, potentials_[0]);
  vectors_.copy(potentials_[0], potentials_[1]);
}

void EntropicOperator::get_potentials(MutableVectorView f, MutableVectorView g) const {
  DeviceGuard const guard(problem_.runtime->index());
  for (Side const side : kSides) {
    MutableVectorView const view = side == Side::rows ? f : g;
    if (view.empty()) continue;
    // Sweeps do not move potentials at points of zero weight. The caller gets the soft c-transform there.
    bool const fill = swept_eps_ > 0 && problem_.weights[side_index(side)]->has_idle_points();
    std::optional<Transform> idle;
    if (fill) idle = transform(problem_, side, potentials_, swept_eps_);
    store_potential(problem_, side, potentials_[side_index(side)], idle ? &*idle : nullptr, view);
  }
}

Vector& EntropicOperator::potential(Side side) {
  swept_eps_ = 0;
  return potentials_[side_index(side)];
}

std::span<Side const> EntropicOperator::swept_sides() const {
  return std::span(kSides).first(is_self() ? 1 : 2);
}

EntropicOperator::HalfSteps EntropicOperator::half_steps() const {
  HalfSteps steps;
  for (Side const side : kSides) {
    steps[side_index(side)] = problem_.costs->sum_pass(side, Pass::softmin, tiles_ ? &tiles_->of(side) : nullptr,
                                                       problem_.precision == Precision::tf32);
  }
  return steps;
}

void EntropicOperator::order(std::shared_ptr<Ordering const> ordering) {
  problem_.ordering = std::move(ordering);
  tiles_.emplace(problem_, PlanTiles::Sums::expanded);
}

/// Not with a translation, which joins sums of all points before a sweep, and not in tf32, which is an order.
void EntropicOperator::prepare_resident_sweeps() {
  if (translates() || problem_.precision == Precision::tf32 || tiles_) return;
  SharedRuntime const& runtime = problem_.runtime;
  resident_ = plan_resident_sweep(problem_.costs->scores(Side::rows), runtime->multiprocessors());
  if (!resident_) return;
  auto const partial_bytes = [&](Side side) -> std::int64_t {
    if (is_self() && side == Side::columns) return 0;
    PackedSide const points = problem_.side(side);
    return std::int64_t{2} * resident_->tiles[side_index(opposite(side))] * points.padded_size * 2 *
           size_of(points.scalar);
  };
  double* errors = nullptr;
  sweep_memory_ = allocate_parts(runtime, Part{arrived_, 1}, Part{errors, error_count()},
                                 Part{states_[0].partials, partial_bytes(Side::rows)},
                                 Part{states_[1].partials, partial_bytes(Side::columns)});
  states_[0].errors = errors;
  MONGE_CUDA_TRY(cudaMemsetAsync(arrived_, 0, sizeof(unsigned), runtime->stream()));
}

ResidentSweepArguments EntropicOperator::resident_arguments(Sweep const& sweep, int count, double* errors) const {
  auto const of_side = [&](Side side) -> ResidentSweepArguments::OfSide {
    return {problem_.side(side), potential_data(side), state(side).partials,
            errors + (side == Side::rows ? 0 : error_count(Side::rows))};
  };
  return {.scores = problem_.costs->scores(Side::rows),
          .parameters = parameters_for(potentials_, sweep.eps, sweep.relaxation),
          .side = {of_side(Side::rows), of_side(Side::columns)},
          .tile = {resident_->tile[0], resident_->tile[1]},
          .tiles = {resident_->tiles[0], resident_->tiles[1]},
          .is_self = is_self(),
          .symmetric = sweep.symmetric,
          .count = count,
          .arrived = arrived_,
          .arrivals = arrivals_};
}

void EntropicOperator::prepare_sweeps() {
  if (prepared_) return;
  prepare_resident_sweeps();
  if (!resident_) prepare_sweeps_in_memory();
  prepared_ = true;
}

void EntropicOperator::prepare_sweeps_in_memory() {
  SharedRuntime const& runtime = problem_.runtime;
  for (Side side : swept_sides()) {
    SweepState& target = state(side);
    PackedSide const rows = problem_.side(side);
    target.logits = Logits(runtime, rows.padded_size, rows.scalar);
  }
  HalfSteps const steps = half_steps();
  auto const partial_bytes = [&](Side side) -> std::int64_t {
    if (is_self() && side == Side::columns) return 0;
    return steps[side_index(side)]->size() * 2 * size_of(problem_.costs->scalar());
  };
  double* errors = nullptr;
  auto const log_mean_parts = [&](Side side) -> std::int64_t {
    return problem_.penalties.balanced() ? 0 : cuda::error_parts(problem_.size(side));
  };
  sweep_memory_ = allocate_parts(runtime, Part{parameters_, 1}, Part{errors, error_count()},
                                 Part{states_[0].log_mean_parts, log_mean_parts(Side::rows)},
                                 Part{states_[1].log_mean_parts, log_mean_parts(Side::columns)},
                                 Part{states_[0].partials, partial_bytes(Side::rows)},
                                 Part{states_[1].partials, partial_bytes(Side::columns)});
  states_[0].errors = errors;
  states_[1].errors = errors + error_count(Side::rows);
  connect_sweeps(steps);
}

void EntropicOperator::connect_sweeps(HalfSteps const& steps) {
  for (Side side : swept_sides()) {
    SweepState& target = state(side);
    PackedSide const points = problem_.side(side);
    std::shared_ptr<SumPass> const& half_step = steps[side_index(side)];
    PassArguments& arguments = half_step->arguments;
    arguments.logits = state(columns_of(side)).logits.values.data();
    arguments.factors = state(columns_of(side)).logits.factors.data();
    arguments.parameters = parameters_;
    arguments.partials = target.partials;
    if (!target.half_step || arguments != target.half_step->arguments || points != target.points) drop_graphs();
    target.half_step = half_step;
    target.points = points;
  }
  connect_fused_sweep();
  connect_translation();
}

void EntropicOperator::connect_translation() {
  if (!translates()) return;
  auto const of_side = [&](Side side) -> TranslationArguments::OfSide {
    return {problem_.side(side), problem_.weights[side_index(side)]->total(), potentials_[side_index(side)].data(),
            state(side).log_mean_parts};
  };
  TranslationArguments const arguments{{of_side(Side::rows), of_side(Side::columns)},
                                       log_mass_ratio(problem_.weights[0]->total(), problem_.weights[1]->total()),
                                       parameters_,
                                       states_[1].errors + error_count(Side::columns)};
  if (translation_ != arguments) drop_graphs();
  translation_ = arguments;
}

void EntropicOperator::connect_fused_sweep() {
  std::optional<Costs::FusedSweep> sweep = problem_.costs->fused_sweep();
  if (!sweep) return fused_.reset();
  PackedSide const lines = problem_.side(sweep->lines), across = problem_.side(opposite(sweep->lines));
  DeviceRanks const* const ranks = problem_.costs->sharing_ranks();
  RankPart const part = problem_.costs->rows_of_rank(sweep->lines);
  std::int64_t const line_bytes = static_cast<std::int64_t>(part.all) * 2 * size_of(lines.scalar);
  std::int64_t const part_bytes = static_cast<std::int64_t>(across.padded_size) * size_of(lines.scalar);
  std::int64_t const own_at = ranks ? ranks->size() * part_bytes : 0;
  std::int64_t const across_bytes = own_at + sweep->plan.clusters * part_bytes;
  if (!fused_ || fused_->line_sums.size() != line_bytes || fused_->across_sums.size() != across_bytes) {
    drop_graphs();
    fused_.emplace();
    fused_->line_sums = DeviceArray<unsigned char>(problem_.runtime, line_bytes);
    fused_->across_sums = DeviceArray<unsigned char>(problem_.runtime, across_bytes);
  }
  FusedSweepArguments& arguments = sweep->arguments;
  arguments.parameters = parameters_;
  arguments.lines = lines;
  for (double const** const array :
       {&arguments.lines.weight, &arguments.lines.log_weight, &arguments.lines.norm, &arguments.lines.shift})
    *array += part.first;
  arguments.potential = potentials_[side_index(sweep->lines)].data() + part.first;
  arguments.logits = state(opposite(sweep->lines)).logits.arrays();
  arguments.inverse_mass = 1 / problem_.weights[0]->total();
  arguments.line_sums = fused_->line_sums.data() + std::int64_t{part.first} * 2 * size_of(lines.scalar);
  arguments.across_sums = fused_->across_sums.data() + own_at;
  if (arguments != fused_->sweep.arguments || sweep->plan != fused_->sweep.plan) drop_graphs();
  fused_->sweep = *sweep;
  fused_->part = part;
  fused_->all_across = fused_->across_sums.data();
  fused_->parts = ranks ? ranks->size() : sweep->plan.clusters;
}

void EntropicOperator::renew(Geometry const& geometry, Marginals const& marginals) {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  std::vector<double> const* const values[2] = {&marginals.a, &marginals.b};
  for (int s : {0, 1}) {
    std::shared_ptr<Weights>& weights = problem_.weights[s];
    if (weights->host() == *values[s]) continue;
    if (weights.use_count() == 1) {
      weights->set(*runtime, *values[s], runtime->stream());
    } else {
      weights = std::make_shared<Weights>(runtime, *values[s], runtime->stream());
    }
  }
  problem_.costs = problem_.costs->renewed(geometry, problem_.weights[0]->of_points(), problem_.weights[1]->of_points(),
                                           problem_.costs.use_count() == 1);
  for (Side const side : kSides) vectors_.combine({}, potential(side));
  if (prepared_ && !resident_) connect_sweeps(half_steps());
}

/// All logits: eps may differ from that of the last update. Updates do not write the padding.
void EntropicOperator::make_logits(Sweep const& sweep, Queue const& queue) const {
  LogitArguments logits{parameters_for(potentials_, sweep.eps, sweep.relaxation), parameters_, {}};
  for (Side side : swept_sides()) {
    logits.side[side_index(side)] = {problem_.side(side), potentials_[side_index(side)].data(),
                                     state(side).logits.arrays()};
  }
  cuda::make_logits(logits, queue);
}

void EntropicOperator::enqueue_half_step(Side side, Queue const& queue, cudaStream_t stream) const {
  state(side).half_step->launch(queue, stream);
}

UpdateArguments EntropicOperator::update_arguments(Side side, void const* partials, WorkPlan const& work,
                                                   bool symmetric) const {
  return {
      .sums = {side_index(side), problem_.side(side), partials, work, parameters_},
      .potential = potentials_[side_index(side)].data(),
      .copy = is_self() ? potentials_[side_index(opposite(side))].data() : nullptr,
      .arrays = state(side).logits.arrays(),
      .errors = state(side).errors,
      .symmetric = symmetric,
  };
}

void EntropicOperator::enqueue_update(Side side, bool symmetric, Queue const& queue) const {
  SweepState const& target = state(side);
  update_potential(update_arguments(side, target.partials, target.half_step->work(), symmetric), queue);
}

/// One read of the costs updates both sides. Sums across the lines that cannot be trusted are computed again from the
/// logits of the lines. These logits must come from the potentials that the pass used: the new ones, or in a symmetric
/// sweep the old ones.
void EntropicOperator::enqueue_fused_sweep(bool symmetric, Queue const& queue, cudaStream_t stream) const {
  Costs::FusedSweep const& sweep = fused_->sweep;
  FusedSweepArguments arguments = sweep.arguments;
  arguments.symmetric = symmetric;
  auto const update_lines = [&] {
    // Each line has one sum: a plan with one slot.
    update_potential(update_arguments(sweep.lines, fused_->line_sums.data(), WorkPlan{}, symmetric), queue);
  };
  RankPart const& part = fused_->part;
  if (part.count > 0) launch_fused_sweep(sweep.plan, arguments, queue);
  if (DeviceRanks const* const ranks = problem_.costs->sharing_ranks()) {
    int const stride = arguments.across_stride;
    auto* const all = static_cast<float*>(fused_->all_across);
    join_parts<float>({static_cast<float const*>(arguments.across_sums), stride,
                       part.count > 0 ? sweep.plan.clusters : 0, stride, all + std::int64_t{ranks->rank()} * stride},
                      stream);
    ranks->gather(all, stride * static_cast<std::int64_t>(sizeof(float)), stream);
    ranks->gather(fused_->line_sums.data(), part.each * static_cast<std::int64_t>(sizeof(PartialSum<float>)), stream);
  }
  if (!symmetric) update_lines();
  update_across(
      {
          .update = update_arguments(opposite(sweep.lines), fused_->all_across, WorkPlan{}, symmetric),
          .costs = sweep.costs,
          .factor = arguments.factor,
          .lines = state(sweep.lines).logits.arrays(),
          .clusters = fused_->parts,
          .mass = problem_.weights[0]->total(),
      },
      queue);
  if (symmetric) update_lines();
}

/// A fused sweep updates the lines first, so an alternating sweep is fused only if the lines are rows.
void EntropicOperator::enqueue_sweep(Sweep const& sweep, Queue const& queue, cudaStream_t stream) const {
  bool const symmetric = sweep.symmetric;
  if (is_self()) {
    enqueue_half_step(Side::rows, queue, stream);
    return enqueue_update(Side::rows, symmetric, queue);
  }
  if (translation_ && sweep.translates) translate(*translation_, queue);
  if (fused_ && (symmetric || fused_->sweep.lines == Side::rows)) return enqueue_fused_sweep(symmetric, queue, stream);
  enqueue_half_step(Side::rows, queue, stream);
  if (symmetric) {
    enqueue_half_step(Side::columns, queue, stream);
    enqueue_update(Side::rows, symmetric, queue);
  } else {
    enqueue_update(Side::rows, symmetric, queue);
    enqueue_half_step(Side::columns, queue, stream);
  }
  enqueue_update(Side::columns, symmetric, queue);
}

void EntropicOperator::launch_sweeps(Sweep const& sweep, int count) {
  if (count == 0) return;
  Runtime const& runtime = *problem_.runtime;
  if (resident_) {
    ResidentSweepArguments const arguments = resident_arguments(sweep, count, states_[0].errors);
    launch_resident_sweeps(*resident_, arguments, runtime.stream());
    return count_arrivals(arguments);
  }
  make_logits(sweep, runtime.stream());
  DeviceRanks const* const ranks = problem_.costs->sharing_ranks();
  if (ranks) ranks->meet();
  for (int left = count; left > 0;) {
    int const now = std::min(left, kSweepsPerGraph);
    auto const enqueue = [&](cudaStream_t stream) {
      for (int k = 0; k < now; ++k) enqueue_sweep(sweep, stream, stream);
    };
    std::optional<Graph>& graph = graphs_[sweep.symmetric];
    bool const is_recorded = (sweep.translates || !translates()) && (!ranks || ranks->enqueues()) && !tiles_;
    if (!is_recorded || now < kSweepsPerGraph || sweeps_ < kSweepsBeforeGraph) {
      enqueue(runtime.stream());
    } else {
      if (!graph) graph.emplace(runtime, enqueue);
      ranks ? ranks->launch(*graph, runtime.stream()) : graph->launch(runtime.stream());
    }
    sweeps_ += now;
    left -= now;
  }
}

/// A symmetric sweep also averages the typical values. The first one runs at the old ones.
bool EntropicOperator::starts_apart(Sweep const& sweep) const {
  return sweep.symmetric && potentials_[0].typical != -potentials_[1].typical;
}

/// An alternating sweep computes f from g, so the typical value of f becomes minus the typical value of g.
void EntropicOperator::settle(Sweep const& sweep) {
  double& f = potentials_[0].typical;
  double& g = potentials_[1].typical;
  f = sweep.symmetric ? (f - g) / 2 : -g;
  g = -f;
  swept_eps_ = sweep.eps;
  translated_ = translates() && sweep.translates;
}

/// Whether the tiles of earlier sweeps are still right (docs/math.md, section 20). Certificates have tiles of their
/// own.
bool EntropicOperator::tiles_serve(Sweep const& sweep) const {
  return tiles_eps_ == sweep.eps && sweeps_of_tiles_ < kServedSweeps && tiles_->serve(potentials_, sweep.eps);
}

void EntropicOperator::sweep(Sweep const& sweep, int count) {
  if (count == 0) return;
  DeviceGuard const guard(problem_.runtime->index());
  prepare_sweeps();
  bool const has_new_tiles = tiles_ && !tiles_serve(sweep), apart = starts_apart(sweep);
  if (has_new_tiles) {
    tiles_eps_ = sweeps_of_tiles_ = 0;  // No tiles serve if memory ends before they are complete.
    tiles_->find(potentials_, sweep);
  }
  // What the first sweep over new tiles finds. Memory may end here, but not after that sweep.
  DeviceArray<double> softmins[2];
  for (Side const side : swept_sides()) {
    if (has_new_tiles) softmins[side_index(side)] = DeviceArray<double>(problem_.runtime, size(side));
  }
  int const alone = has_new_tiles || apart ? 1 : 0;
  // The search took f as the next sweep leaves it and g as it is before this sweep.
  if (has_new_tiles) tiles_->keep(Side::columns, potentials_[1]);
  if (!apart) settle(sweep);
  launch_sweeps(sweep, alone);
  if (apart) settle(sweep);
  if (has_new_tiles) {
    tiles_->keep(Side::rows, potentials_[0]);
    for (Side const side : swept_sides()) {
      SumArguments const sums = update_arguments(side, state(side).partials, state(side).half_step->work(), false).sums;
      softmin_values(sums, {softmins[side_index(side)].data()}, problem_.runtime->stream());
    }
    tiles_->thin({softmins[0].data(), softmins[1].data()}, sweep.eps);
    tiles_eps_ = sweep.eps;
  }
  launch_sweeps(sweep, count - alone);
  sweeps_of_tiles_ += count;
}

std::int64_t EntropicOperator::error_count(Side side) const {
  // Resident sweeps of a self problem move the points of the tiles' columns.
  if (resident_) return 2 * resident_->tiles[is_self() ? 1 : side_index(side)];
  return 2 * cuda::error_parts(problem_.size(side));
}

/// With a penalty the two constants of the last translation follow the errors.
std::int64_t EntropicOperator::error_count() const {
  std::int64_t count = translates() ? 2 : 0;
  for (Side side : swept_sides()) count += error_count(side);
  return count;
}

SweepErrors EntropicOperator::errors_from(double const* parts) {
  auto const of_side = [&](Side side) {
    ErrorSums sums;
    for (double const* const end = parts + error_count(side); parts != end; parts += 2) sums.join({parts[0], parts[1]});
    return sums;
  };
  ErrorSums const rows = of_side(Side::rows), columns = is_self() ? rows : of_side(Side::columns);
  if (translated_ && swept_eps_ > 0) {
    for (int s : {0, 1}) potentials_[s].typical = parts[s];
  }
  return {rows.absolute, columns.absolute, std::sqrt(rows.square + columns.square)};
}

SweepErrors EntropicOperator::errors() {
  if (!error_parts()) return {};
  DeviceGuard const guard(problem_.runtime->index());
  return errors_from(download(*problem_.runtime, error_parts(), error_count()).data());
}

void EntropicOperator::take_over(Sweep const& sweep, double const (&typical)[2]) {
  for (int s : {0, 1}) potentials_[s].typical = typical[s];
  swept_eps_ = sweep.eps;
  translated_ = translates() && sweep.translates;
}

/// Problems whose passes the ranks share go one by one; the ranks share the others problem by problem.
void EntropicOperator::evaluate_together(SharedRuntime const& runtime, std::span<EvaluationStep> steps) {
  DeviceGuard const guard(runtime->index());
  std::vector<EvaluationStep*> others;
  double nanoseconds = 0;
  for (EvaluationStep& step : steps) {
    Costs const& costs = *static_cast<EntropicOperator const*>(step.entropic)->problem_.costs;
    EvaluationStep* one = &step;
    auto& entropic = *static_cast<EntropicOperator*>(step.entropic);
    if (entropic.tiles_) {
      auto const& at = static_cast<EntropicOperator const*>(step.potentials)->potentials_;
      entropic.tiles_eps_ = 0;
      step.value = entropic.tiles_->evaluate(at, step.eps, {});
    } else if (costs.sharing_ranks()) {
      evaluate_here(runtime, {&one, 1});
    } else {
      others.push_back(one);
      nanoseconds += costs.pass_nanoseconds();
    }
  }
  DeviceRanks const* const ranks = runtime->ranks();
  if (!ranks || others.size() < 2 || nanoseconds < kLeastSpreadNanoseconds) return evaluate_here(runtime, others);
  std::vector<std::int64_t> const edges = ranks->edges(others.size());
  auto const begin = others.begin() + edges[to_size(ranks->rank())];
  auto const end = others.begin() + edges[to_size(ranks->rank()) + 1];
  evaluate_here(runtime, {begin, end});
  std::vector<Evaluation> values;
  for (EvaluationStep const* step : others) values.push_back(step->value);
  ranks->exchange(shared_items(values.data(), 1, edges));
  for (std::size_t k = 0; k < others.size(); ++k) others[k]->value = values[k];
}

void EntropicOperator::evaluate_here(SharedRuntime const& runtime, std::span<EvaluationStep* const> steps) {
  if (steps.empty()) return;
  Together together(runtime, steps.size());
  std::vector<std::int64_t> begin{0};  // The first part of each step.
  for (EvaluationStep const* step : steps)
    begin.push_back(begin.back() + plan_sum_count(static_cast<EntropicOperator const*>(step->entropic)->problem_));
  DeviceArray<PlanSums> const parts(runtime, begin.back());
  for (std::size_t k = 0; k < steps.size(); ++k) {
    together.next_problem();
    sum_plan(static_cast<EntropicOperator const*>(steps[k]->entropic)->problem_,
             static_cast<EntropicOperator const*>(steps[k]->potentials)->potentials_, steps[k]->eps,
             {parts.data() + begin[k], {}}, together.queue());
  }
  together.launch();
  std::vector<PlanSums> const found = download(*runtime, parts.data(), parts.size());
  for (std::size_t k = 0; k < steps.size(); ++k) {
    auto const first = to_size(begin[k]), end = to_size(begin[k + 1]);
    steps[k]->value = evaluation_of(static_cast<EntropicOperator const*>(steps[k]->entropic)->problem_,
                                    std::span(found).subspan(first, end - first), steps[k]->eps);
  }
}

Evaluation EntropicOperator::evaluate(double eps, Vector* row_marginal, Vector* column_marginal) {
  DeviceGuard const guard(problem_.runtime->index());
  if (tiles_) {
    tiles_eps_ = 0;
    return tiles_->evaluate(potentials_, eps, {written(row_marginal), written(column_marginal)});
  }
  return cuda::evaluate(problem_, potentials_, eps, {written(row_marginal), written(column_marginal)});
}

std::unique_ptr<monge::PlanOperator> EntropicOperator::plan(double eps, double t, Queue const& queue) const {
  DeviceGuard const guard(problem_.runtime->index());
  return std::make_unique<PlanOperator>(problem_, potentials_, eps, t, cache_bytes_, queue);
}

}  // namespace monge::cuda
