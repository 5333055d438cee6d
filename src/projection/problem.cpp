#include "projection/problem.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/numbers.hpp"
#include "geometry/validation.hpp"
#include "seam/backend.hpp"
#include "seam/values.hpp"

namespace monge {
namespace {

std::vector<float> read_marginal(char const* field, Backend const& backend, VectorView view, int size) {
  std::vector<double> const values = read_values(field, backend, view, size, kNotNegative, "must be");
  return {values.begin(), values.end()};
}

double total(std::vector<float> const& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void fill_marginals(ProjectionProblem& problem, Backend const& backend, ProjectionOptions const& options) {
  bool const given_a = !options.row_marginal.empty(), given_b = !options.column_marginal.empty();
  int const n = problem.rows, m = problem.columns;
  if (given_a) {
    problem.a = read_marginal("row_marginal", backend, options.row_marginal, n);
  } else {
    problem.a.assign(to_size(n), static_cast<float>(options.row_sum));
    if (problem.dustbin()) problem.a.back() = static_cast<float>(options.row_sum * (m - 1));
  }
  if (given_b) {
    problem.b = read_marginal("column_marginal", backend, options.column_marginal, m);
  } else if (problem.dustbin() && !given_a) {
    problem.b.assign(to_size(m), static_cast<float>(options.row_sum));
    problem.b.back() = static_cast<float>(options.row_sum * (n - 1));
  } else {
    problem.b.assign(to_size(m), static_cast<float>(total(problem.a) / m));
  }
  double const total_a = total(problem.a), total_b = total(problem.b);
  require(total_a > 0, "row_marginal: the total is {}; must be positive", total_a);
  require(std::abs(total_a - total_b) <= 1e-5 * total_a,
          "column_marginal: the total is {}; must equal that of the rows, {}, to 1e-5 relative", total_b, total_a);
  auto const is_one = [](float value) { return value == 1.0f; };
  problem.unit_marginals = std::all_of(problem.a.begin(), problem.a.end(), is_one) &&
                           std::all_of(problem.b.begin(), problem.b.end(), is_one);
}

void validate(ProjectionOptions const& options) {
  visit_projection_options(options, kCheckField);
  require(
      options.epsilon == 0 || options.epsilon_mode != EpsilonMode::none || options.start == ProjectionStart::softmax,
      "epsilon: is {} with epsilon_mode none; must be 0, or have a place: denominator, scaling, matrix or clamp",
      options.epsilon);
  require(options.start != ProjectionStart::positive || options.temperature == 1,
          "temperature: is {}; must be 1 with start positive", options.temperature);
  require(options.start != ProjectionStart::positive || !options.dustbin || options.dustbin_score >= 0,
          "dustbin_score: is {}; must be >= 0 with start positive", options.dustbin_score);
  require(!options.log_domain || options.epsilon_mode == EpsilonMode::none || options.epsilon == 0,
          "epsilon_mode: is {}; must be none in the log domain, which needs no guard", name(options.epsilon_mode));
  require(!options.log_domain || options.start != ProjectionStart::softmax || options.epsilon == 0,
          "epsilon: is {} with start softmax; must be 0 in the log domain", options.epsilon);
}

}  // namespace

ProjectionProblem projection_problem(Backend const& backend, int logit_rows, int logit_columns, std::int64_t batch,
                                     ProjectionOptions const& options) {
  validate(options);
  require(batch >= 0, "logits: has {} matrices; must be >= 0", batch);
  require(logit_rows >= 1 && logit_columns >= 1, "logits: is {} x {}; must be at least 1 x 1", logit_rows,
          logit_columns);
  ProjectionProblem problem;
  problem.logit_rows = logit_rows;
  problem.logit_columns = logit_columns;
  problem.rows = logit_rows + options.dustbin;
  problem.columns = logit_columns + options.dustbin;
  require(problem.rows <= kLargestProjection && problem.columns <= kLargestProjection,
          "logits: is {} x {}{}; must be at most {} x {}", logit_rows, logit_columns,
          options.dustbin ? " and a dustbin" : "", kLargestProjection, kLargestProjection);
  problem.batch = batch;
  problem.start = options.start;
  problem.epsilon_mode = options.epsilon_mode;
  bool const sums =
      options.epsilon_mode != EpsilonMode::none && options.epsilon_mode != EpsilonMode::matrix && options.epsilon > 0;
  if (sums) {
    problem.epsilon = static_cast<float>(options.epsilon);
  } else {
    problem.epsilon_mode = EpsilonMode::none;
  }
  if (options.epsilon_mode == EpsilonMode::matrix || options.start == ProjectionStart::softmax)
    problem.matrix_epsilon = static_cast<float>(options.epsilon);
  problem.inverse_temperature = static_cast<float>(1 / options.temperature);
  problem.tolerance = static_cast<float>(options.tolerance);
  problem.dustbin_score = static_cast<float>(options.dustbin_score);
  problem.implicit_tolerance = static_cast<float>(options.implicit_tolerance);
  problem.columns_first = options.order == ProjectionOrder::columns_first;
  bool const softmax_is_step = options.start == ProjectionStart::softmax && !problem.columns_first;
  problem.lead = problem.columns_first || softmax_is_step;
  problem.trail = problem.columns_first;
  problem.pairs = options.iterations - (problem.lead ? 1 : 0);
  problem.log_domain = options.log_domain;
  problem.implicit = options.gradient == ProjectionGradient::implicit;
  fill_marginals(problem, backend, options);
  return problem;
}

}  // namespace monge
