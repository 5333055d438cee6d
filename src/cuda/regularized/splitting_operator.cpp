#include "cuda/regularized/splitting_operator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/numbers.hpp"
#include "cuda/geometry/costs.hpp"
#include "cuda/vectors/kernels.hpp"
#include "regularized/regularized_costs.hpp"
#include "regularized/splitting_rule.hpp"

namespace monge::cuda {
namespace {

constexpr int kIterationsPerGraph = 20;

/// Recording a graph takes as long as launching this many iterations.
constexpr int kIterationsBeforeGraph = 40;

/// The entries of a problem of at least this size stay in shared memory if they fit. Such problems are solved one after
/// the other; a batch of smaller ones would lose more by this than each gains.
constexpr std::int64_t kLeastResidentBytes = std::int64_t{3} << 20;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kAllSteps = std::numeric_limits<std::size_t>::max();

/// Columns begin at multiples of 128 bytes.
constexpr int kPitch = 32;

SplittingOperator& operator_of(SplittingStep const& step) {
  return static_cast<SplittingOperator&>(*step.splitting);
}

SplittingProx prox_of(RegularizerTerms const& terms) {
  if (terms.slopes) return SplittingProx::slopes;
  if (terms.hypentropy > 0) return terms.group_lasso > 0 ? SplittingProx::group_hypentropy : SplittingProx::hypentropy;
  return terms.group_lasso > 0 ? SplittingProx::group : SplittingProx::shrink;
}

}  // namespace

SplittingOperator::SplittingOperator(std::shared_ptr<RegularizedCosts const> costs, Precision precision,
                                     Queue const& queue)
    : ReadableOperator(std::move(costs)),
      runtime_(costs_.runtime()),
      scalar_(precision == Precision::float64 ? DataType::float64 : DataType::float32),
      readout_(costs_) {
  SplittingProx const prox = prox_of(costs_.given());
  int const size = costs_.order().size, m = costs_.matrix().columns, units = runtime_->multiprocessors();
  if (rows() * m * size_of(scalar_) >= kLeastResidentBytes)
    resident_plan_ = plan_resident(scalar_, prox, size, m, units);
  plan_ =
      plan_splitting(scalar_, prox, static_cast<int>(round_up(size, kSplittingRows)), m, costs_.group_begin(), units);
  allocate();
  pack_costs({costs_.matrix(), costs_.order(), scalar_, pitch_, packed_costs_.data(), kInfinity}, queue);
}

void SplittingOperator::allocate() {
  RowOrder const order = costs_.order();
  int const m = costs_.matrix().columns, n = order.size;
  pitch_ = round_up(n, kPitch);
  std::int64_t const bytes = m * pitch_ * size_of(scalar_);
  entries_ = DeviceArray<unsigned char>(runtime_, bytes);
  packed_costs_ = DeviceArray<unsigned char>(runtime_, bytes);

  SplittingSide& rows = arguments_.side[0];
  SplittingSide& columns = arguments_.side[1];
  rows = {
      .size = n, .real = costs_.matrix().rows, .point = order.row, .part_count = plan_.parts, .part_stride = pitch_};
  columns = {.size = m, .real = m, .part_count = plan_.column_parts(), .part_stride = round_up(m, kPitch)};
  unsigned char* rounded[2];
  unsigned char* parts[2];
  int* slabs = nullptr;
  unsigned char* prox_table = nullptr;
  if (SlopeTable const* const slopes = costs_.slopes()) arguments_.prox_points = slopes->view().size;
  std::int64_t const width = size_of(scalar_);
  auto const part_bytes = [&](SplittingSide const& side) { return side.part_count * side.part_stride * width; };
  vectors_ = allocate_parts(
      runtime_, Part{rows.sum, n}, Part{rows.potential, n}, Part{rows.residual, n}, Part{columns.sum, m},
      Part{columns.potential, m}, Part{columns.residual, m}, Part{rounded[0], pitch_ * width},
      Part{rounded[1], m * width}, Part{arguments_.state, 1}, Part{parameters_, 1},
      Part{prox_table, 2 * arguments_.prox_points * width}, Part{residual_, 1}, Part{slabs, std::ssize(plan_.slabs)},
      Part{arguments_.totals, plan_.blocks()}, Part{parts[0], part_bytes(rows)}, Part{parts[1], part_bytes(columns)});
  // Padding has no potential and no residual.
  MONGE_CUDA_TRY(cudaMemsetAsync(vectors_.data(), 0, to_size(vectors_.bytes()), runtime_->stream()));
  upload(*runtime_, plan_.slabs.data(), slabs, std::ssize(plan_.slabs) * static_cast<std::int64_t>(sizeof(int)));
  for (int s : {0, 1}) {
    arguments_.side[s].rounded = rounded[s];
    arguments_.side[s].parts = parts[s];
  }
  rows.share = readout_.p();
  columns.share = readout_.q();
  arguments_.entries = entries_.data();
  arguments_.costs = packed_costs_.data();
  arguments_.pitch = pitch_;
  arguments_.slabs = slabs;
  arguments_.slab_count = plan_.slab_count();
  arguments_.parts = plan_.parts;
  arguments_.cluster = plan_.cluster;
  arguments_.parameters = parameters_;
  arguments_.prox_table = prox_table;
  arguments_.group = costs_.terms().group;
  arguments_.group_begin = costs_.terms().group_begin;
  arguments_.group_weight = costs_.terms().group_weight;
  if (resident_plan_) allocate_resident();
}

void SplittingOperator::allocate_resident() {
  ResidentPlan const& plan = *resident_plan_;
  int const n = arguments_.side[0].size, m = arguments_.side[1].size;
  resident_ = {.problem = arguments_,
               .tile_rows = plan.tile_rows,
               .tile_columns = plan.tile_columns,
               .tiles = {plan.tiles[0], plan.tiles[1]},
               .stride = {n, m}};
  constexpr int kTurns = 2;
  resident_memory_ = allocate_parts(runtime_, Part{resident_.parts[0], kTurns * plan.tiles[1] * resident_.stride[0]},
                                    Part{resident_.parts[1], kTurns * plan.tiles[0] * resident_.stride[1]},
                                    Part{resident_.totals, kTurns * plan.blocks()}, Part{resident_.arrived, 1});
}

void SplittingOperator::set_parameters(double step) {
  EntryTerms const& terms = costs_.terms();
  SplittingParameters const parameters{step, 1 / (1 + step * terms.quadratic), step * terms.group_lasso,
                                       step * terms.hypentropy, terms.width};
  upload(*runtime_, &parameters, parameters_, sizeof parameters);
  if (SlopeTable const* const slopes = costs_.slopes()) {
    std::vector<double> table = slopes->prox_points(step);
    table.insert(table.end(), slopes->mass.begin(), slopes->mass.end());
    if (scalar_ == DataType::float64) {
      upload(*runtime_, table.data(), arguments_.prox_table, std::ssize(table) * size_of(scalar_));
    } else {
      std::vector<float> const rounded(table.begin(), table.end());
      upload(*runtime_, rounded.data(), arguments_.prox_table, std::ssize(rounded) * size_of(scalar_));
    }
  }
  step_ = step;
}

void SplittingOperator::restart(double factor, bool empty) {
  restart_splitting({arguments_, scalar_, factor, empty}, runtime_->stream());
  evaluated_ = false;
}

void SplittingOperator::start(double step) {
  DeviceGuard const guard(runtime_->index());
  double const n = static_cast<double>(rows()), m = static_cast<double>(columns());
  upload_side(Side::rows, std::vector<double>(to_size(rows()), step * m / (n + m)), arguments_.side[0].potential);
  upload_side(Side::columns, std::vector<double>(to_size(columns()), step * n / (n + m)), arguments_.side[1].potential);
  MONGE_CUDA_TRY(cudaMemsetAsync(entries_.data(), 0, to_size(entries_.bytes()), runtime_->stream()));
  set_parameters(step);
  restart(1, true);
  iterations_ = 0;
}

void SplittingOperator::upload_side(Side side, std::vector<double> const& values, double* to) const {
  std::vector<double> const packed = side == Side::rows ? costs_.in_order(values) : values;
  upload(*runtime_, packed.data(), to, std::ssize(packed) * static_cast<std::int64_t>(sizeof(double)));
}

void SplittingOperator::begin_from(SplittingStart const& from) {
  DeviceGuard const guard(runtime_->index());
  if (!from.u.empty()) {
    for (Side const side : kSides) {
      std::span<double const> const given = side == Side::rows ? from.u : from.v;
      std::vector<double> potential(given.begin(), given.end());
      for (double& value : potential) value *= step_;
      upload_side(side, potential, arguments_.side[side_index(side)].potential);
    }
  }
  if (from.plan.rows() > 0) {
    DeviceArray<unsigned char> copy;
    RegularizedMatrix matrix{.rows = costs_.matrix().rows, .columns = costs_.matrix().columns};
    matrix.cost = upload_costs(runtime_, CostMatrix{from.plan}, copy);
    matrix.inverse_range = 1 / scale().mass;
    pack_costs({matrix, costs_.order(), scalar_, pitch_, entries_.data(), 0}, runtime_->stream());
    std::vector<double> sums[2] = {costs_.of(Side::rows).share, costs_.of(Side::columns).share};
    for (Side const side : kSides) marginal(side, sums[side_index(side)]);
    require_finite_start(sums[0], sums[1]);
    for (Side const side : kSides) {
      std::vector<double>& residual = sums[side_index(side)];
      for (std::size_t i = 0; i < residual.size(); ++i)
        residual[i] = residual[i] / scale().mass - costs_.of(side).share[i];
      upload_side(side, residual, arguments_.side[side_index(side)].residual);
    }
  }
  restart(1, false);
}

void SplittingOperator::set_step(double step) {
  DeviceGuard const guard(runtime_->index());
  double const factor = step / step_;
  set_parameters(step);
  restart(factor, false);
}

void SplittingOperator::enqueue(SplittingIteration iteration, std::int64_t number, Queue const& queue) const {
  SplittingArguments arguments = arguments_;
  arguments.backwards = static_cast<int>(number % 2);
  splitting_iteration(plan_, iteration, arguments, queue);
}

void SplittingOperator::enqueue_residual(SplittingResidual* result, Queue const& queue) const {
  splitting_residual({arguments_, scalar_, result}, queue);
}

void SplittingOperator::iterate(int count) {
  DeviceGuard const guard(runtime_->index());
  evaluated_ = false;
  if (resident_plan_) return resident_iterations(*resident_plan_, resident_, count, runtime_->stream());
  auto const enqueue_pairs = [&](int iterations, cudaStream_t stream) {
    for (int k = 0; k < iterations; k += 2) {
      enqueue(SplittingIteration::opening, iterations_ + k, stream);
      enqueue(SplittingIteration::closing, iterations_ + k + 1, stream);
    }
    return iterations;
  };
  int left = count;
  bool const fits_graph = iterations_ % 2 == 0 && iterations_ >= kIterationsBeforeGraph;
  for (; fits_graph && left >= kIterationsPerGraph; left -= kIterationsPerGraph) {
    if (!graph_) graph_.emplace(*runtime_, [&](cudaStream_t stream) { enqueue_pairs(kIterationsPerGraph, stream); });
    graph_->launch(runtime_->stream());
  }
  left -= enqueue_pairs(left / 2 * 2, runtime_->stream());
  iterations_ += count;
  if (left > 0) enqueue(SplittingIteration::single, iterations_ - 1, runtime_->stream());
}

SplittingResidual SplittingOperator::residual() {
  DeviceGuard const guard(runtime_->index());
  enqueue_residual(residual_, runtime_->stream());
  return download(*runtime_, residual_, 1)[0];
}

SplittingSpareArguments SplittingOperator::spare_arguments(SpareState const& spare, void const* end) {
  auto const* const begin = vectors_.data();
  return {.scalar = scalar_,
          .size = entries_.bytes() / size_of(scalar_),
          .entries = entries_.data(),
          .spare_entries = spare.entries.data(),
          .count = (static_cast<unsigned char const*>(end) - begin) / static_cast<std::int64_t>(sizeof(double)),
          .numbers = reinterpret_cast<double*>(vectors_.data()),
          .spare_numbers = reinterpret_cast<double*>(spare.vectors.data())};
}

void SplittingOperator::keep(Spare spare) {
  DeviceGuard const guard(runtime_->index());
  SpareState& to = kept(spare);
  std::int64_t const bytes = reinterpret_cast<unsigned char*>(residual_) - vectors_.data();
  if (to.entries.bytes() == 0) {
    to.entries = DeviceArray<unsigned char>(runtime_, entries_.bytes());
    to.vectors = DeviceArray<unsigned char>(runtime_, bytes);
  }
  auto const copy = [&](DeviceArray<unsigned char> const& from, DeviceArray<unsigned char>& into) {
    MONGE_CUDA_TRY(
        cudaMemcpyAsync(into.data(), from.data(), to_size(into.bytes()), cudaMemcpyDeviceToDevice, runtime_->stream()));
  };
  copy(entries_, to.entries);
  copy(vectors_, to.vectors);
  to.step = step_;
  to.iterations = iterations_;
}

void SplittingOperator::exchange(Spare spare) {
  DeviceGuard const guard(runtime_->index());
  SpareState& other = kept(spare);
  exchange_spare(spare_arguments(other, residual_), runtime_->stream());
  std::swap(step_, other.step);
  std::swap(iterations_, other.iterations);
  evaluated_ = false;
}

void SplittingOperator::approach(Spare spare, double share) {
  DeviceGuard const guard(runtime_->index());
  approach_spare(spare_arguments(kept(spare), arguments_.side[0].rounded), share, runtime_->stream());
}

SplittingDistance SplittingOperator::distance(Spare spare) {
  DeviceGuard const guard(runtime_->index());
  SpareState const& other = kept(spare);
  DeviceArray<double> const partials(runtime_, kSpareBlocks);
  spare_distance(spare_arguments(other, residual_), partials.data(), runtime_->stream());
  auto const moved = [&](SplittingSide const& side) {
    std::int64_t const place = reinterpret_cast<unsigned char*>(side.potential) - vectors_.data();
    auto const* const from = reinterpret_cast<double const*>(other.vectors.data() + place);
    std::vector<double> by = download(*runtime_, side.potential, side.size);
    std::vector<double> const kept_there = download(*runtime_, from, side.size);
    for (std::size_t i = 0; i < by.size(); ++i) by[i] = (by[i] - kept_there[i]) / step_;
    return by;
  };
  std::vector<double> const squares = download(*runtime_, partials.data(), kSpareBlocks);
  return {std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0)),
          norm_of_sums(moved(arguments_.side[0]), moved(arguments_.side[1]), static_cast<double>(rows()),
                       static_cast<double>(columns()))};
}

/// Problems in shared memory have launches of their own. Of the others, those with more pairs of iterations come first.
void SplittingOperator::iterate_together(SharedRuntime const& runtime, std::span<SplittingStep> steps) {
  DeviceGuard const guard(runtime->index());
  if (steps.size() == 1) {
    steps[0].splitting->iterate(steps[0].count);
    steps[0].residual = steps[0].splitting->residual();
    return;
  }
  std::vector<SplittingStep*> together;
  for (SplittingStep& step : steps) {
    if (operator_of(step).resident_plan_) {
      step.splitting->iterate(step.count);
    } else {
      together.push_back(&step);
    }
  }
  auto const pairs_of = [](SplittingStep const* step) { return step->count / 2; };
  std::stable_sort(together.begin(), together.end(),
                   [&](auto const* k, auto const* l) { return pairs_of(k) > pairs_of(l); });
  ArenaScope const scope(*runtime);
  Batch pairs(runtime), singles(runtime), residuals(runtime);
  for (SplittingStep* step : together) {
    SplittingOperator& splitting = operator_of(*step);
    std::int64_t const first = splitting.iterations_;
    splitting.iterations_ += step->count;
    splitting.evaluated_ = false;
    pairs.next_problem();
    splitting.enqueue(SplittingIteration::opening, first, pairs);
    splitting.enqueue(SplittingIteration::closing, first + 1, pairs);
    if (step->count % 2 == 0) continue;
    singles.next_problem();
    splitting.enqueue(SplittingIteration::single, splitting.iterations_ - 1, singles);
  }
  std::vector<std::size_t> order(together.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  pairs.arrange(order);
  std::size_t active = order.size();
  for (int done = 0; active > 0; ++done) {
    while (active > 0 && pairs_of(together[active - 1]) <= done) --active;
    pairs.launch(0, kAllSteps, active);
  }
  singles.launch();
  DeviceArray<SplittingResidual> const found(runtime, std::ssize(steps));
  for (std::size_t k = 0; k < steps.size(); ++k) {
    residuals.next_problem();
    operator_of(steps[k]).enqueue_residual(found.data() + k, residuals);
  }
  residuals.launch();
  std::vector<SplittingResidual> const values = download(*runtime, found.data(), found.size());
  for (std::size_t k = 0; k < steps.size(); ++k) steps[k].residual = values[k];
}

RegularizedEntries SplittingOperator::plan() const {
  return {.matrix = costs_.matrix(),
          .order = costs_.order(),
          .packed = entries_.data(),
          .scalar = scalar_,
          .pitch = pitch_};
}

void SplittingOperator::make_potentials() const {
  for (int s : {0, 1}) {
    SplittingSide const& side = arguments_.side[s];
    combine({side.size, 1, {{1 / step_, side.potential, nullptr}}, s == 0 ? readout_.u() : readout_.v()},
            runtime_->stream());
  }
}

RegularizedValues SplittingOperator::evaluate() {
  DeviceGuard const guard(runtime_->index());
  make_potentials();
  evaluated_ = true;
  return with_useful_bound(costs_.terms().has_finite_conjugate(),
                           [&](DualBound bound) { return readout_.evaluate(costs_, plan(), bound); });
}

void SplittingOperator::potentials(MutableVectorView u, MutableVectorView v) const {
  DeviceGuard const guard(runtime_->index());
  if (!evaluated_) make_potentials();
  readout_.potentials(costs_, scale().depth, u, v);
}

}  // namespace monge::cuda
