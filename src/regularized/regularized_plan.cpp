#include <monge/regularized.hpp>

#include "core/numbers.hpp"
#include "core/out_of_memory.hpp"
#include "geometry/validation.hpp"
#include "regularized/regularized_state.hpp"

namespace monge {

RegularizedPlan::RegularizedPlan(std::unique_ptr<State> state) : state_(std::move(state)) {}
RegularizedPlan::RegularizedPlan(RegularizedPlan&&) noexcept = default;
RegularizedPlan& RegularizedPlan::operator=(RegularizedPlan&&) noexcept = default;
RegularizedPlan::~RegularizedPlan() = default;

RegularizedReport const& RegularizedPlan::report() const {
  return state_->report;
}
Status RegularizedPlan::status() const {
  return state_->report.status;
}
std::int64_t RegularizedPlan::rows() const {
  return state_->found->rows();
}
std::int64_t RegularizedPlan::columns() const {
  return state_->found->columns();
}

void RegularizedPlan::potentials(MutableVectorView u, MutableVectorView v) const try {
  validate_vector("u", u, rows(), state_->context.device());
  validate_vector("v", v, columns(), state_->context.device());
  state_->found->potentials(u, v);
} catch (std::bad_alloc const&) {
  throw_out_of_memory("RegularizedPlan::potentials");
}

std::vector<double> RegularizedPlan::u() const try {
  std::vector<double> u(to_size(rows())), v(to_size(columns()));
  state_->found->potentials(u, v);
  return u;
} catch (std::bad_alloc const&) {
  throw_out_of_memory("RegularizedPlan::u");
}

std::vector<double> RegularizedPlan::v() const try {
  std::vector<double> u(to_size(rows())), v(to_size(columns()));
  state_->found->potentials(u, v);
  return v;
} catch (std::bad_alloc const&) {
  throw_out_of_memory("RegularizedPlan::v");
}

void RegularizedPlan::dense(MutableMatrixView out) const try {
  validate_matrix("out", out, rows(), columns(), state_->context.device());
  state_->found->dense(out);
} catch (std::bad_alloc const&) {
  throw_out_of_memory("RegularizedPlan::dense");
}

std::int64_t RegularizedPlan::nonzeros(MutableIndexView row_begin) const try {
  validate_indices("row_begin", row_begin, rows() + 1, 1, state_->context.device());
  return state_->found->nonzeros(row_begin);
} catch (std::bad_alloc const&) {
  throw_out_of_memory("RegularizedPlan::nonzeros");
}

void RegularizedPlan::entries(MutableIndexView row_begin, MutableIndexView columns, MutableVectorView values) const
    try {
  Device const device = state_->context.device();
  validate_indices("row_begin", row_begin, rows() + 1, 1, device);
  validate_indices("columns", columns, columns.rows, 1, device);
  validate_vector("values", values, columns.rows, device);
  require(columns.rows == state_->report.nonzeros, "columns: has {} entries; must have {}, one for each entry",
          columns.rows, state_->report.nonzeros);
  state_->found->entries(row_begin, columns, values);
} catch (std::bad_alloc const&) {
  throw_out_of_memory("RegularizedPlan::entries");
}

void RegularizedPlan::marginals(MutableVectorView row, MutableVectorView column) const try {
  validate_vector("row", row, rows(), state_->context.device());
  validate_vector("column", column, columns(), state_->context.device());
  state_->found->marginal(Side::rows, row);
  state_->found->marginal(Side::columns, column);
} catch (std::bad_alloc const&) {
  throw_out_of_memory("RegularizedPlan::marginals");
}

namespace {

void multiply(RegularizedPlan::State const& state, char const* call, Side side, bool averaged, MatrixView values,
              MutableMatrixView out) try {
  RegularizedOperator const& found = *state.found;
  std::int64_t const own = side == Side::rows ? found.rows() : found.columns();
  std::int64_t const other = side == Side::rows ? found.columns() : found.rows();
  validate_matrix("values", values, other, values.columns(), state.context.device());
  validate_matrix("out", out, own, values.columns(), state.context.device());
  if (values.columns() > 0) found.product(side, averaged, values, out);
} catch (std::bad_alloc const&) {
  throw_out_of_memory(call);
}

}  // namespace

void RegularizedPlan::apply(MatrixView values, MutableMatrixView out) const {
  multiply(*state_, "RegularizedPlan::apply", Side::rows, false, values, out);
}
void RegularizedPlan::apply_transpose(MatrixView values, MutableMatrixView out) const {
  multiply(*state_, "RegularizedPlan::apply_transpose", Side::columns, false, values, out);
}
void RegularizedPlan::barycentric_projection(MatrixView values, MutableMatrixView out) const {
  multiply(*state_, "RegularizedPlan::barycentric_projection", Side::rows, true, values, out);
}
void RegularizedPlan::barycentric_projection_transpose(MatrixView values, MutableMatrixView out) const {
  multiply(*state_, "RegularizedPlan::barycentric_projection_transpose", Side::columns, true, values, out);
}

}  // namespace monge
