#include <cmath>

#include <monge/entropic.hpp>
#include <monge/error.hpp>
#include <monge/plan.hpp>

#include "core/numbers.hpp"
#include "geometry/cost_matrix.hpp"
#include "geometry/validation.hpp"
#include "plan/plan_state.hpp"

namespace monge {

Plan::Plan(std::unique_ptr<State> state) : state_(std::move(state)) {}
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

Report const& Plan::report() const {
  return state_->report;
}
Status Plan::status() const {
  return state_->report.status;
}
std::int64_t Plan::rows() const {
  return state_->plan->size(Side::rows);
}
std::int64_t Plan::columns() const {
  return state_->plan->size(Side::columns);
}

void Plan::potentials(MutableVectorView f, MutableVectorView g) const {
  in_step(*state_, "Plan::potentials", {}, [&] {
    validate_vector("f", f, rows(), state_->context.device());
    validate_vector("g", g, columns(), state_->context.device());
    state_->plan->potentials(f, g);
  });
}

std::vector<double> Plan::f() const {
  return in_step(*state_, "Plan::f", {}, [&] {
    std::vector<double> f(to_size(rows()));
    state_->plan->potentials(f, {});
    return f;
  });
}

std::vector<double> Plan::g() const {
  return in_step(*state_, "Plan::g", {}, [&] {
    std::vector<double> g(to_size(columns()));
    state_->plan->potentials({}, g);
    return g;
  });
}

void Plan::marginals(MutableVectorView row, MutableVectorView column) const {
  in_step(*state_, "Plan::marginals", {}, [&] {
    validate_vector("row", row, rows(), state_->context.device());
    validate_vector("column", column, columns(), state_->context.device());
    VectorOperations const& vectors = state_->plan->vectors();
    vectors.write(state_->plan->marginal(Side::rows), row);
    vectors.write(state_->plan->marginal(Side::columns), column);
  });
}

namespace {

/// out = P v for rows, P^T v for columns, with the shares in place of P if `scaling` says so. `field` is v's name.
void apply_onto(Plan::State& state, Side side, Scaling scaling, char const* field, MatrixView v,
                MutableMatrixView out) {
  Device const device = state.context.device();
  validate_matrix(field, v, state.plan->size(opposite(side)), v.columns(), device);
  validate_matrix("out", out, state.plan->size(side), v.columns(), device);
  if (v.columns() > 0) state.plan->multiply(side, scaling, v, out);
}

/// out = (P o l r^T) v for rows, its transpose's product for columns.
void apply_hadamard_onto(Plan::State& state, Side side, MatrixView l, MatrixView r, char const* field, MatrixView v,
                         MutableMatrixView out) {
  Device const device = state.context.device();
  PlanOperator& plan = *state.plan;
  validate_matrix("l", l, plan.size(Side::rows), l.columns(), device);
  validate_matrix("r", r, plan.size(Side::columns), l.columns(), device);
  if (l.columns() == 0)
    throw Error(ErrorCode::invalid_argument, "l: has 0 columns; must have at least 1, and r as many");
  validate_matrix(field, v, plan.size(opposite(side)), v.columns(), device);
  validate_matrix("out", out, plan.size(side), v.columns(), device);
  if (v.columns() == 0) return;
  bool const by_rows = side == Side::rows;
  plan.multiply_hadamard(side, by_rows ? l : r, by_rows ? r : l, v, out);
}

/// out = P^T diag(w) P v for columns, P diag(w) P^T v for rows.
void apply_gram_onto(Plan::State& state, Side side, VectorView w, char const* field, VectorView v,
                     MutableVectorView out) {
  Device const device = state.context.device();
  PlanOperator& plan = *state.plan;
  validate_vector("w", w, plan.size(opposite(side)), device);
  validate_vector(field, v, plan.size(side), device);
  validate_vector("out", out, plan.size(side), device);
  VectorOperations const& vectors = plan.vectors();
  Vector& weights = state.vector(opposite(side), 0);
  Vector& values = state.vector(side, 0);
  Vector& product = state.vector(side, 1);
  vectors.read(w, weights);
  vectors.read(v, values);
  plan.multiply_gram(side, weights, values, product);
  vectors.write(product, out);
}

void top_k_of(Plan::State& state, Side side, MutableIndexView indices, MutableMatrixView values) {
  PlanOperator& plan = *state.plan;
  Device const device = state.context.device();
  std::int64_t const k = indices.columns, most = plan.size(opposite(side));
  require(k >= 1 && k <= most, "k: is {}, the columns of indices; must be in [1, {}]", k, most);
  validate_indices("indices", indices, plan.size(side), k, device);
  validate_matrix("values", values, plan.size(side), k, device);
  plan.entries().top_k(side, indices, values);
}

void validate_threshold(double threshold) {
  require(std::isfinite(threshold) && threshold >= 0, "threshold: is {}; must be finite and >= 0", threshold);
}

}  // namespace

void Plan::apply(MatrixView v, MutableMatrixView out) const {
  in_step(*state_, "Plan::apply", {{"v", v}}, [&] { apply_onto(*state_, Side::rows, Scaling::plan, "v", v, out); });
}

void Plan::apply_transpose(MatrixView u, MutableMatrixView out) const {
  in_step(*state_, "Plan::apply_transpose", {{"u", u}},
          [&] { apply_onto(*state_, Side::columns, Scaling::plan, "u", u, out); });
}

void Plan::apply_hadamard(MatrixView l, MatrixView r, MatrixView v, MutableMatrixView out) const {
  in_step(*state_, "Plan::apply_hadamard", {{"l", l}, {"r", r}, {"v", v}},
          [&] { apply_hadamard_onto(*state_, Side::rows, l, r, "v", v, out); });
}

void Plan::apply_hadamard_transpose(MatrixView l, MatrixView r, MatrixView u, MutableMatrixView out) const {
  in_step(*state_, "Plan::apply_hadamard_transpose", {{"l", l}, {"r", r}, {"u", u}},
          [&] { apply_hadamard_onto(*state_, Side::columns, l, r, "u", u, out); });
}

void Plan::apply_gram(VectorView w, VectorView v, MutableVectorView out) const {
  in_step(*state_, "Plan::apply_gram", {{"w", w}, {"v", v}},
          [&] { apply_gram_onto(*state_, Side::columns, w, "v", v, out); });
}

void Plan::apply_gram_transpose(VectorView w, VectorView u, MutableVectorView out) const {
  in_step(*state_, "Plan::apply_gram_transpose", {{"w", w}, {"u", u}},
          [&] { apply_gram_onto(*state_, Side::rows, w, "u", u, out); });
}

void Plan::top_k(MutableIndexView indices, MutableMatrixView values) const {
  in_step(*state_, "Plan::top_k", {}, [&] { top_k_of(*state_, Side::rows, indices, values); });
}

void Plan::top_k_transpose(MutableIndexView indices, MutableMatrixView values) const {
  in_step(*state_, "Plan::top_k_transpose", {}, [&] { top_k_of(*state_, Side::columns, indices, values); });
}

std::int64_t Plan::count_above(double threshold, MutableIndexView row_begin) const {
  return in_step(*state_, "Plan::count_above", {{"threshold", threshold}}, [&] {
    validate_threshold(threshold);
    validate_indices("row_begin", row_begin, rows() + 1, 1, state_->context.device());
    return state_->plan->entries().count_above(threshold, row_begin);
  });
}

void Plan::entries_above(double threshold, MutableIndexView row_begin, MutableIndexView columns,
                         MutableVectorView values) const {
  in_step(*state_, "Plan::entries_above", {{"threshold", threshold}}, [&] {
    Device const device = state_->context.device();
    validate_threshold(threshold);
    validate_indices("row_begin", row_begin, rows() + 1, 1, device);
    validate_indices("columns", columns, columns.rows, 1, device);
    validate_vector("values", values, columns.rows, device);
    std::int64_t const wrong = state_->plan->entries().entries_above(threshold, row_begin, columns, values);
    require(
        wrong == rows(),
        "row_begin: row {} does not hold exactly its entries above {}; must be what count_above() gave, with columns "
        "and values as long as it returned",
        wrong, threshold);
  });
}

void Plan::sample(std::uint64_t seed, MutableIndexView pairs) const {
  in_step(*state_, "Plan::sample", {{"seed", seed}}, [&] {
    validate_indices("pairs", pairs, pairs.rows, 2, state_->context.device());
    if (pairs.rows > 0) state_->plan->entries().sample(seed, pairs);
  });
}

double Plan::transport_cost() const {
  return in_step(*state_, "Plan::transport_cost", {}, [&] {
    return state_->report.certified ? state_->report.transport_cost : state_->plan->transport_cost();
  });
}

namespace {

std::int64_t dimension_of_points(Plan::State const& state) {
  if (state.dimension == 0) throw_no_points();
  return state.dimension;
}

}  // namespace

void Plan::barycentric_projection(MutableMatrixView out) const {
  in_step(*state_, "Plan::barycentric_projection", {}, [&] {
    validate_matrix("out", out, rows(), dimension_of_points(*state_), state_->context.device());
    state_->plan->points().multiply_points(Side::rows, Scaling::shares, out);
  });
}

void Plan::barycentric_projection(MatrixView v, MutableMatrixView out) const {
  in_step(*state_, "Plan::barycentric_projection", {{"v", v}},
          [&] { apply_onto(*state_, Side::rows, Scaling::shares, "v", v, out); });
}

void Plan::map(MatrixView points, MutableMatrixView out) const {
  in_step(*state_, "Plan::map", {{"points", points}}, [&] {
    validate_matrix("points", points, points.rows(), dimension_of_points(*state_), state_->context.device());
    validate_matrix("out", out, points.rows(), state_->dimension, state_->context.device());
    if (points.rows() == 0) return;
    state_->plan->points().at(Side::rows, {points})->points().multiply_points(Side::rows, Scaling::shares, out);
  });
}

void Plan::potential(MatrixView points, MutableVectorView out) const {
  in_step(*state_, "Plan::potential", {{"points", points}}, [&] {
    validate_matrix("points", points, points.rows(), dimension_of_points(*state_), state_->context.device());
    validate_vector("out", out, points.rows(), state_->context.device());
    if (points.rows() == 0) return;
    state_->plan->points().at(Side::rows, {points})->transform(Side::rows, out);
  });
}

}  // namespace monge
