#include <monge/entropic.hpp>
#include <monge/plan.hpp>

#include "core/validation.hpp"
#include "solvers/plan_state.hpp"

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
  return state_->problem->size(Side::rows);
}
std::int64_t Plan::columns() const {
  return state_->problem->size(Side::columns);
}

void Plan::potentials(MutableVectorView f, MutableVectorView g) const {
  validate_vector("f", f, rows(), state_->context.device());
  validate_vector("g", g, columns(), state_->context.device());
  state_->problem->get_potentials(f, g);
}

std::vector<double> Plan::f() const {
  std::vector<double> f(static_cast<std::size_t>(rows())), g(static_cast<std::size_t>(columns()));
  potentials(f, g);
  return f;
}

std::vector<double> Plan::g() const {
  std::vector<double> f(static_cast<std::size_t>(rows())), g(static_cast<std::size_t>(columns()));
  potentials(f, g);
  return g;
}

void Plan::marginals(MutableVectorView row, MutableVectorView column) const {
  validate_vector("row", row, rows(), state_->context.device());
  validate_vector("column", column, columns(), state_->context.device());
  state_->problem->marginals(state_->eps, row, column);
}

void Plan::apply(MatrixView v, MutableMatrixView out) const {
  validate_matrix("v", v, columns(), v.columns(), state_->context.device());
  validate_matrix("out", out, rows(), v.columns(), state_->context.device());
  if (v.columns() > 0) state_->problem->average(Side::rows, state_->eps, v, out, false);
}

void Plan::apply_transpose(MatrixView u, MutableMatrixView out) const {
  validate_matrix("u", u, rows(), u.columns(), state_->context.device());
  validate_matrix("out", out, columns(), u.columns(), state_->context.device());
  if (u.columns() > 0) state_->problem->average(Side::columns, state_->eps, u, out, false);
}

double Plan::transport_cost() const {
  return state_->report.certified ? state_->report.transport_cost
                                  : state_->problem->evaluate(state_->eps).transport_cost;
}

void Plan::barycentric_projection(MutableMatrixView out) const {
  validate_matrix("out", out, rows(), state_->dimension, state_->context.device());
  state_->problem->average(Side::rows, state_->eps, {}, out, true);
}

void Plan::map(MatrixView points, MutableMatrixView out) const {
  validate_matrix("points", points, points.rows(), state_->dimension, state_->context.device());
  validate_matrix("out", out, points.rows(), state_->dimension, state_->context.device());
  if (points.rows() == 0) return;
  state_->problem->with_points(Side::rows, points)->average(Side::rows, state_->eps, {}, out, true);
}

void Plan::potential(MatrixView points, MutableVectorView out) const {
  validate_matrix("points", points, points.rows(), state_->dimension, state_->context.device());
  validate_vector("out", out, points.rows(), state_->context.device());
  if (points.rows() == 0) return;
  state_->problem->with_points(Side::rows, points)->softmin(Side::rows, state_->eps, out);
}

}  // namespace monge
