// project(), project_backward() and projection_marginals().
#include <monge/projection.hpp>

#include "core/out_of_memory.hpp"
#include "geometry/validation.hpp"
#include "projection/problem.hpp"
#include "projection/views.hpp"
#include "seam/backend.hpp"

namespace monge {
namespace {

ProjectionProblem validated_projection(Backend const& backend, BatchView const& logits, BatchView const& out,
                                       char const* out_name, ProjectionOptions const& options) {
  ProjectionProblem problem = projection_problem(backend, logits.rows(), logits.columns(), logits.batch(), options);
  Device const device = backend.projection().device();
  validate_batch("logits", logits, problem.batch, problem.logit_rows, problem.logit_columns, device);
  validate_batch(out_name, out, problem.batch, problem.rows, problem.columns, device);
  require(out.type() == DataType::float32 || out.type() == logits.type(),
          "{}: is {}; must be float32 or the type of the logits, {}", out_name, name(out.type()), name(logits.type()));
  return problem;
}

}  // namespace

void project(Context const& context, BatchView logits, MutableBatchView out, ProjectionOptions const& options) try {
  Backend const& backend = backend_of(context);
  ProjectionProblem const problem = validated_projection(backend, logits, out, "out", options);
  require_apart({memory_of("out", out)}, {memory_of("logits", logits)});
  if (problem.batch > 0) backend.projection().forward(problem, logits, out);
} catch (std::bad_alloc const&) {
  throw_out_of_memory("project");
}

void project_backward(Context const& context, BatchView logits, BatchView d_out, MutableBatchView d_logits,
                      ProjectionOptions const& options, MutableVectorView d_dustbin_score) try {
  Backend const& backend = backend_of(context);
  ProjectionProblem const problem = validated_projection(backend, logits, d_out, "d_out", options);
  Device const device = backend.projection().device();
  validate_batch("d_logits", d_logits, problem.batch, problem.logit_rows, problem.logit_columns, device);
  require(d_logits.type() == DataType::float32 || d_logits.type() == logits.type(),
          "d_logits: is {}; must be float32 or the type of the logits, {}", name(d_logits.type()), name(logits.type()));
  if (!d_dustbin_score.empty()) {
    require(problem.dustbin(), "d_dustbin_score: is given; must be empty without a dustbin");
    validate_floats("d_dustbin_score", d_dustbin_score, problem.batch, device);
  }
  require_apart({memory_of("d_logits", d_logits), memory_of("d_dustbin_score", d_dustbin_score)},
                {memory_of("logits", logits), memory_of("d_out", d_out)});
  if (problem.batch > 0) backend.projection().backward(problem, logits, d_out, d_logits, d_dustbin_score.as<float>());
} catch (std::bad_alloc const&) {
  throw_out_of_memory("project_backward");
}

ProjectionMarginals projection_marginals(Context const& context, int rows, int columns,
                                         ProjectionOptions const& options) try {
  ProjectionProblem const problem = projection_problem(backend_of(context), rows, columns, 0, options);
  return {problem.a, problem.b};
} catch (std::bad_alloc const&) {
  throw_out_of_memory("projection_marginals");
}

}  // namespace monge
