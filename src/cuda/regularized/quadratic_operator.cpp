#include "cuda/regularized/quadratic_operator.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "cuda/launch/sizes.hpp"
#include "cuda/vectors/kernels.hpp"

namespace monge::cuda {
namespace {

void copy_to_device(Runtime const& runtime, std::vector<double> const& from, double* to) {
  upload(runtime, from.data(), to, std::ssize(from) * static_cast<std::int64_t>(sizeof(double)));
}

}  // namespace

QuadraticOperator::QuadraticOperator(std::shared_ptr<RegularizedCosts const> costs)
    : ReadableOperator(std::move(costs)), runtime_(costs_.runtime()), readout_(costs_) {
  RegularizedMatrix const& matrix = costs_.matrix();
  bool const transposed = matrix.cost.transposed;
  int const lines = transposed ? matrix.columns : matrix.rows, places = transposed ? matrix.rows : matrix.columns;
  problem_ = {.matrix = matrix,
              .size = {lines, places},
              .words = {divided_up(places, 32), divided_up(lines, 32)},
              .share = {transposed ? readout_.q() : readout_.p(), transposed ? readout_.p() : readout_.q()},
              .weight = 1};
  points_[0] = &costs_.of(transposed ? Side::columns : Side::rows);
  points_[1] = &costs_.of(transposed ? Side::rows : Side::columns);
  now_memory_ = allocate(now_);
  trial_memory_ = allocate(trial_);
  allocate_system();
}

DeviceArray<unsigned char> QuadraticOperator::allocate(QuadraticState& state) const {
  std::int64_t const lines = problem_.size[0], places = problem_.size[1];
  return allocate_parts(
      runtime_, Part{state.potential[0], lines}, Part{state.potential[1], places}, Part{state.sum[0], lines},
      Part{state.sum[1], places}, Part{state.count[0], lines}, Part{state.count[1], places}, Part{state.squares, lines},
      Part{state.mask[0], lines * problem_.words[0]}, Part{state.mask[1], places * problem_.words[1]});
}

void QuadraticOperator::allocate_system() {
  std::int64_t const lines = problem_.size[0], places = problem_.size[1];
  std::int64_t const chunks = places * quadratic_chunks(problem_.size[0]);
  std::int64_t const blocks = quadratic_direction_blocks(runtime_->multiprocessors());
  std::int64_t const listed = quadratic_list_size(problem_.size[0], problem_.size[1]);
  QuadraticDirectionArguments& d = direction_;
  system_memory_ = allocate_parts(
      runtime_, Part{d.solution[0], lines}, Part{d.solution[1], places}, Part{d.inverse[0], lines},
      Part{d.inverse[1], places}, Part{d.right[0], lines}, Part{d.right[1], places}, Part{d.of_places, places},
      Part{d.of_lines, lines}, Part{d.diagonal, places}, Part{d.residual, places}, Part{d.direction, places},
      Part{d.image, places}, Part{d.product, places}, Part{d.partial[0], blocks}, Part{d.partial[1], blocks},
      Part{d.partial[2], blocks}, Part{d.list[0], listed}, Part{d.list[1], listed}, Part{d.begin[0], lines + 1},
      Part{d.begin[1], places + 1}, Part{chunk_sum_, chunks}, Part{chunk_count_, chunks}, Part{found_, 1});
  d.result = &found_->search;
  // The search is copied to the host with the values of the first pass, before any direction.
  MONGE_CUDA_TRY(cudaMemsetAsync(found_, 0, sizeof(Found), runtime_->stream()));
}

QuadraticValues QuadraticOperator::start(double weight, std::span<double const> u, std::span<double const> v) {
  DeviceGuard const guard(runtime_->index());
  problem_.weight = weight;
  if (problem_.matrix.cost.transposed) std::swap(u, v);
  double with_mass[2];
  for (int side : {0, 1})
    with_mass[side] =
        static_cast<double>(std::ranges::count_if(points_[side]->share, [](double share) { return share > 0; }));
  for (int side : {0, 1}) {
    std::span<double const> const given = side == 0 ? u : v;
    auto const& [shares, mean] = *points_[side];
    std::vector<double> potential(shares.size(), -std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < potential.size(); ++i) {
      double const share = shares[i];
      if (share == 0) continue;
      potential[i] = given.empty()
                         ? mean[i] + weight * share / with_mass[1 - side] - weight / (2 * with_mass[0] * with_mass[1])
                         : given[i];
    }
    copy_to_device(*runtime_, potential, now_.potential[side]);
  }
  pass(now_);
  QuadraticValues const values = found().values;
  now_active_ = values.active;
  return values;
}

QuadraticValues QuadraticOperator::set_weight(double weight) {
  DeviceGuard const guard(runtime_->index());
  problem_.weight = weight;
  quadratic_values(problem_, now_, &found_->values, runtime_->stream());
  return found().values;
}

void QuadraticOperator::pass(QuadraticState const& state) {
  quadratic_pass({problem_, state, chunk_sum_, chunk_count_}, runtime_->stream());
  quadratic_values(problem_, state, &found_->values, runtime_->stream());
}

QuadraticOperator::Found QuadraticOperator::found() const {
  return download(*runtime_, found_, 1)[0];
}

QuadraticOperator::Found QuadraticOperator::found_trial() {
  Found const result = found();
  trial_active_ = result.values.active;
  return result;
}

QuadraticStep QuadraticOperator::step(QuadraticDamping damping) {
  DeviceGuard const guard(runtime_->index());
  direction_.problem = problem_;
  direction_.state = now_;
  direction_.mu = damping.mu;
  direction_.tolerance = damping.tolerance;
  direction_.most = damping.most;
  quadratic_direction(direction_, now_active_, quadratic_direction_blocks(runtime_->multiprocessors()),
                      runtime_->stream());
  try_fraction(1);
  Found const result = found_trial();
  return {result.search.slope, result.search.linear_rise, result.search.iterations, result.values};
}

QuadraticValues QuadraticOperator::shorten(double fraction) {
  DeviceGuard const guard(runtime_->index());
  try_fraction(fraction);
  return found_trial().values;
}

void QuadraticOperator::try_fraction(double fraction) {
  for (int side : {0, 1}) {
    combine({problem_.size[side],
             2,
             {{1, now_.potential[side], nullptr}, {fraction, direction_.solution[side], nullptr}},
             trial_.potential[side]},
            runtime_->stream());
  }
  pass(trial_);
}

void QuadraticOperator::accept() {
  std::swap(now_, trial_);
  std::swap(now_active_, trial_active_);
}

RegularizedEntries QuadraticOperator::plan() const {
  bool const transposed = problem_.matrix.cost.transposed;
  return {.matrix = problem_.matrix,
          .order = costs_.order(),
          .inverse_weight = 1 / problem_.weight,
          .u = now_.potential[transposed ? 1 : 0],
          .v = now_.potential[transposed ? 0 : 1]};
}

/// Points of zero mass take no part. Then they get the largest potentials for which none of their pairs is active,
/// lines first.
RegularizedValues QuadraticOperator::evaluate() {
  DeviceGuard const guard(runtime_->index());
  bool const transposed = problem_.matrix.cost.transposed;
  double* const of[] = {transposed ? readout_.v() : readout_.u(), transposed ? readout_.u() : readout_.v()};
  for (int side : {0, 1})
    combine({problem_.size[side], 1, {{1, now_.potential[side], nullptr}}, of[side]}, runtime_->stream());
  RegularizedValues const values = readout_.evaluate(
      costs_, plan(), costs_.terms().has_finite_conjugate() ? DualBound::of_conjugate : DualBound::without_slack);
  for (int side : {0, 1}) idle_potentials(problem_, side, of[side], of[1 - side], of[side], runtime_->stream());
  return values;
}

void QuadraticOperator::potentials(MutableVectorView u, MutableVectorView v) const {
  DeviceGuard const guard(runtime_->index());
  readout_.potentials(costs_, 0, u, v);
}

}  // namespace monge::cuda
