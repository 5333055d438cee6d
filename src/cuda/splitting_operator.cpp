#include "cuda/splitting_operator.hpp"

#include <algorithm>
#include <numeric>

#include "cuda/costs.hpp"
#include "cuda/launch/vectors.hpp"

namespace monge::cuda {
namespace {

constexpr int kIterationsPerGraph = 20;

/// Recording a graph takes as long as launching so many.
constexpr int kIterationsBeforeGraph = 40;

/// Rows of a column begin at a multiple of 128 bytes.
constexpr int kPitch = 32;

SplittingOperator& operator_of(SplittingStep const& step) {
  return static_cast<SplittingOperator&>(*step.splitting);
}

SplittingProx prox_of(RegularizerTerms const& terms) {
  if (terms.hypentropy > 0) return SplittingProx::hypentropy;
  return terms.group_lasso > 0 ? SplittingProx::group : SplittingProx::shrink;
}

}  // namespace

SplittingOperator::SplittingOperator(SharedRuntime runtime, RegularizedInput const& input, Queue const& queue,
                                     int waves)
    : monge::SplittingOperator(std::ssize(input.p), std::ssize(input.q)),
      runtime_(runtime),
      costs_(std::move(runtime), input, queue),
      scalar_(input.precision == Precision::float64 ? DataType::float64 : DataType::float32) {
  plan_ = plan_splitting(scalar_, prox_of(input.terms), static_cast<int>(round_up(costs_.order().size, kSplittingRows)),
                         costs_.columns(), costs_.group_begin(), runtime_->multiprocessors(), waves);
}

void SplittingOperator::finish(Queue const& queue) {
  costs_.finish();
  allocate();
  pack_costs({costs_.matrix(), costs_.order(), scalar_, pitch_, packed_costs_.data()}, queue);
}

void SplittingOperator::allocate() {
  RowOrder const order = costs_.order();
  int const m = costs_.columns(), n = order.size;
  pitch_ = round_up(n, kPitch);
  std::int64_t const bytes = m * pitch_ * size_of(scalar_);
  entries_ = DeviceArray<unsigned char>(runtime_, bytes);
  packed_costs_ = DeviceArray<unsigned char>(runtime_, bytes);
  readout_.emplace(costs_);

  SplittingSide& rows = arguments_.side[0];
  SplittingSide& columns = arguments_.side[1];
  rows = {.size = n, .real = costs_.rows(), .point = order.row, .part_count = plan_.parts, .part_stride = pitch_};
  columns = {.size = m, .real = m, .part_count = plan_.column_parts(), .part_stride = round_up(m, kPitch)};
  unsigned char* rounded[2];
  unsigned char* parts[2];
  int* slabs = nullptr;
  std::int64_t const width = size_of(scalar_);
  auto const part_bytes = [&](SplittingSide const& side) { return side.part_count * side.part_stride * width; };
  vectors_ = allocate_parts(runtime_, Part{rows.sum, n}, Part{rows.potential, n}, Part{rows.residual, n},
                            Part{columns.sum, m}, Part{columns.potential, m}, Part{columns.residual, m},
                            Part{rounded[0], pitch_ * width}, Part{rounded[1], m * width}, Part{arguments_.state, 1},
                            Part{parameters_, 1}, Part{residual_, 1}, Part{slabs, std::ssize(plan_.slabs)},
                            Part{arguments_.totals, plan_.blocks()}, Part{arguments_.nonzeros, plan_.blocks()},
                            Part{parts[0], part_bytes(rows)}, Part{parts[1], part_bytes(columns)});
  // Padding has no potential and no residual.
  MONGE_CUDA_TRY(cudaMemsetAsync(vectors_.data(), 0, static_cast<std::size_t>(vectors_.bytes()), runtime_->stream()));
  upload(*runtime_, plan_.slabs.data(), slabs, std::ssize(plan_.slabs) * static_cast<std::int64_t>(sizeof(int)));
  for (int s : {0, 1}) {
    arguments_.side[s].rounded = rounded[s];
    arguments_.side[s].parts = parts[s];
  }
  rows.share = readout_->p();
  columns.share = readout_->q();
  arguments_.entries = entries_.data();
  arguments_.costs = packed_costs_.data();
  arguments_.pitch = pitch_;
  arguments_.slabs = slabs;
  arguments_.slab_count = plan_.slab_count();
  arguments_.parts = plan_.parts;
  arguments_.parameters = parameters_;
  arguments_.group = costs_.terms().group;
  arguments_.group_begin = costs_.terms().group_begin;
  arguments_.group_weight = costs_.terms().group_weight;
}

void SplittingOperator::set_parameters(double step) {
  EntryTerms const& terms = costs_.terms();
  SplittingParameters const parameters{step, 1 / (1 + step * terms.quadratic), step * terms.group_lasso,
                                       step * terms.hypentropy, terms.width};
  upload(*runtime_, &parameters, parameters_, sizeof parameters);
  step_ = step;
}

void SplittingOperator::restart(double factor, bool empty) {
  restart_splitting({arguments_, scalar_, factor, empty}, runtime_->stream());
}

void SplittingOperator::start(double step, std::span<double const> u, std::span<double const> v) {
  DeviceGuard const guard(runtime_->index());
  double const n = static_cast<double>(rows()), m = static_cast<double>(columns());
  std::vector<double> phi(static_cast<std::size_t>(rows()), step * m / (n + m));
  std::vector<double> psi(static_cast<std::size_t>(columns()), step * n / (n + m));
  auto const scaled = [step](double potential) { return step * potential; };
  std::transform(u.begin(), u.end(), phi.begin(), scaled);
  std::transform(v.begin(), v.end(), psi.begin(), scaled);
  phi = costs_.in_order(phi);
  auto const upload_side = [&](std::vector<double> const& from, SplittingSide const& to) {
    upload(*runtime_, from.data(), to.potential, std::ssize(from) * static_cast<std::int64_t>(sizeof(double)));
  };
  upload_side(phi, arguments_.side[0]);
  upload_side(psi, arguments_.side[1]);
  MONGE_CUDA_TRY(cudaMemsetAsync(entries_.data(), 0, static_cast<std::size_t>(entries_.bytes()), runtime_->stream()));
  set_parameters(step);
  restart(1, true);
}

void SplittingOperator::set_step(double step) {
  DeviceGuard const guard(runtime_->index());
  double const factor = step / step_;
  set_parameters(step);
  restart(factor, false);
}

void SplittingOperator::enqueue(SplittingIteration iteration, Queue const& queue) const {
  splitting_iteration(plan_, iteration, arguments_, queue);
}

void SplittingOperator::enqueue_residual(SplittingResidual* result, Queue const& queue) const {
  splitting_residual({arguments_, plan_.blocks(), result}, queue);
}

void SplittingOperator::iterate(int count) {
  DeviceGuard const guard(runtime_->index());
  auto const enqueue_pairs = [&](int iterations, cudaStream_t stream) {
    for (int k = 0; k < iterations; k += 2) {
      enqueue(SplittingIteration::opening, stream);
      enqueue(SplittingIteration::closing, stream);
    }
  };
  int left = count / 2 * 2;
  for (; left >= kIterationsPerGraph && iterations_ >= kIterationsBeforeGraph; left -= kIterationsPerGraph) {
    if (!graph_) graph_.emplace(*runtime_, [&](cudaStream_t stream) { enqueue_pairs(kIterationsPerGraph, stream); });
    graph_->launch(runtime_->stream());
  }
  enqueue_pairs(left, runtime_->stream());
  if (count % 2 == 1) enqueue(SplittingIteration::single, runtime_->stream());
  iterations_ += count;
}

SplittingResidual SplittingOperator::residual() {
  DeviceGuard const guard(runtime_->index());
  enqueue_residual(residual_, runtime_->stream());
  return download(*runtime_, residual_, 1)[0];
}

/// The launches of each problem are recorded in this order: an opening and a closing iteration, a single one, and the
/// residual. Problems with more pairs to go come first.
void SplittingOperator::iterate_together(SharedRuntime const& runtime, std::span<SplittingStep> steps) {
  DeviceGuard const guard(runtime->index());
  if (steps.size() == 1) {
    steps[0].splitting->iterate(steps[0].count);
    steps[0].residual = steps[0].splitting->residual();
    return;
  }
  constexpr std::size_t kLaunches = 2;  // Of an iteration.
  constexpr std::size_t kSingle = 2 * kLaunches, kResidual = 3 * kLaunches, kEnd = kResidual + 1;
  ArenaScope const scope(*runtime);
  Batch batch(runtime);
  DeviceArray<SplittingResidual> const residuals(runtime, std::ssize(steps));
  for (std::size_t k = 0; k < steps.size(); ++k) {
    SplittingOperator const& splitting = operator_of(steps[k]);
    batch.next_problem();
    for (SplittingIteration const iteration :
         {SplittingIteration::opening, SplittingIteration::closing, SplittingIteration::single})
      splitting.enqueue(iteration, batch);
    splitting.enqueue_residual(residuals.data() + k, batch);
  }
  std::vector<std::size_t> order(steps.size()), odd;
  std::iota(order.begin(), order.end(), std::size_t{0});
  auto const pairs = [&](std::size_t k) { return steps[k].count / 2; };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t k, std::size_t l) { return pairs(k) > pairs(l); });
  batch.arrange(order);
  std::size_t active = order.size();
  for (int done = 0;; ++done) {
    while (active > 0 && pairs(order[active - 1]) <= done) --active;
    if (active == 0) break;
    batch.launch(0, kSingle, active);
  }
  std::copy_if(order.begin(), order.end(), std::back_inserter(odd),
               [&](std::size_t k) { return steps[k].count % 2 == 1; });
  if (!odd.empty()) {
    if (odd != order) batch.arrange(odd);
    batch.launch(kSingle, kResidual, odd.size());
    if (odd != order) batch.arrange(order);
  }
  batch.launch(kResidual, kEnd, order.size());
  std::vector<SplittingResidual> const found = download(*runtime, residuals.data(), residuals.size());
  for (std::size_t k = 0; k < steps.size(); ++k) {
    steps[k].residual = found[k];
    operator_of(steps[k]).iterations_ += steps[k].count;
  }
}

RegularizedEntries SplittingOperator::packed() const {
  return {.matrix = costs_.matrix(),
          .order = costs_.order(),
          .packed = entries_.data(),
          .scalar = scalar_,
          .pitch = pitch_};
}

RegularizedValues SplittingOperator::evaluate() {
  DeviceGuard const guard(runtime_->index());
  for (int s : {0, 1}) {
    SplittingSide const& side = arguments_.side[s];
    combine({side.size, 1, {{1 / step_, side.potential, nullptr}}, s == 0 ? readout_->u() : readout_->v()},
            runtime_->stream());
  }
  return readout_->evaluate(costs_, packed());
}

void SplittingOperator::potentials(MutableVectorView u, MutableVectorView v) const {
  DeviceGuard const guard(runtime_->index());
  readout_->potentials(costs_, u, v);
}

void SplittingOperator::dense(MutableMatrixView out) const {
  DeviceGuard const guard(runtime_->index());
  cuda::dense(costs_, packed(), out);
}

std::int64_t SplittingOperator::nonzeros(MutableIndexView row_begin) const {
  DeviceGuard const guard(runtime_->index());
  return cuda::nonzeros(costs_, packed(), row_begin);
}

void SplittingOperator::entries(MutableIndexView row_begin, MutableIndexView columns, MutableVectorView values) const {
  DeviceGuard const guard(runtime_->index());
  nonzero_entries(costs_, packed(), row_begin, columns, values);
}

void SplittingOperator::marginal(Side side, MutableVectorView out) const {
  DeviceGuard const guard(runtime_->index());
  cuda::marginal(costs_, packed(), side, out);
}

void SplittingOperator::product(Side side, bool averaged, MatrixView values, MutableMatrixView out) const {
  DeviceGuard const guard(runtime_->index());
  cuda::product(costs_, packed(), side, averaged, values, out);
}

}  // namespace monge::cuda
