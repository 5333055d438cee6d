// The maps of mHC layers.
#include <monge/projection.hpp>

#include "backend/backend.hpp"
#include "geometry/validation.hpp"
#include "projection/problem.hpp"
#include "projection/views.hpp"

namespace monge {
namespace {

struct MhcCall {
  ProjectionProblem problem;
  MhcArrays arrays;
};

MhcCall mhc_call(Backend const& backend, Device device, MatrixView mixes, VectorView scale, VectorView base,
                 MhcOptions const& options) {
  require(mixes.columns() == 24, "mixes: has {} columns; must have 24", mixes.columns());
  require_float32("mixes", mixes.type());
  validate_matrix("mixes", mixes, mixes.rows(), 24, device);
  validate_floats("scale", scale, 3, device);
  validate_floats("base", base, 24, device);
  require(!options.projection.dustbin, "dustbin: is true; an mHC mapping has none");
  require(options.projection.start != ProjectionStart::positive, "start: is positive; an mHC mapping takes logits");
  check("pre_epsilon", kNotNegative, options.pre_epsilon);
  check("post_factor", kPositive, options.post_factor);
  return {projection_problem(backend, 4, 4, mixes.rows(), options.projection),
          {mixes.rows(), mixes.as<float>(), mixes.row_stride(), scale.as<float>(), base.as<float>(),
           static_cast<float>(options.pre_epsilon), static_cast<float>(options.post_factor)}};
}

void validate_stream_map(char const* field, MatrixView view, std::int64_t tokens, Device device) {
  require_float32(field, view.type());
  validate_matrix(field, view, tokens, 4, device);
  require(view.row_stride() == 4 || tokens == 0, "{}: has row stride {}; must be contiguous", field, view.row_stride());
}

void validate_res(char const* field, BatchView const& view, std::int64_t tokens, Device device) {
  validate_batch(field, view, tokens, 4, 4, device);
  require_float32(field, view.type());
  require(view.row_stride() == 4 && (view.batch_stride() == 16 || tokens <= 1), "{}: is strided; must be contiguous",
          field);
}

}  // namespace

void mhc_mapping(Context const& context, MatrixView mixes, VectorView scale, VectorView base, MutableMatrixView pre,
                 MutableMatrixView post, MutableBatchView res, MhcOptions const& options) {
  Backend const& backend = backend_of(context);
  Device const device = backend.projection().device();
  MhcCall const call = mhc_call(backend, device, mixes, scale, base, options);
  std::int64_t const tokens = call.arrays.tokens;
  validate_stream_map("pre", pre, tokens, device);
  validate_stream_map("post", post, tokens, device);
  validate_res("res", res, tokens, device);
  require_apart({memory_of("pre", pre), memory_of("post", post), memory_of("res", res)},
                {memory_of("mixes", mixes), memory_of("scale", scale), memory_of("base", base)});
  if (tokens > 0)
    backend.projection().mhc_forward(call.problem, call.arrays,
                                     {pre.as<float>(), post.as<float>(), static_cast<float*>(res.data())});
}

void mhc_mapping_backward(Context const& context, MatrixView mixes, VectorView scale, VectorView base, MatrixView d_pre,
                          MatrixView d_post, BatchView d_res, MutableMatrixView d_mixes, MutableVectorView d_scale,
                          MutableVectorView d_base, MhcOptions const& options) {
  Backend const& backend = backend_of(context);
  Device const device = backend.projection().device();
  MhcCall const call = mhc_call(backend, device, mixes, scale, base, options);
  std::int64_t const tokens = call.arrays.tokens;
  validate_stream_map("d_pre", d_pre, tokens, device);
  validate_stream_map("d_post", d_post, tokens, device);
  validate_res("d_res", d_res, tokens, device);
  require_float32("d_mixes", d_mixes.type());
  validate_matrix("d_mixes", d_mixes, tokens, 24, device);
  validate_floats("d_scale", d_scale, 3, device);
  validate_floats("d_base", d_base, 24, device);
  require_apart({memory_of("d_mixes", d_mixes), memory_of("d_scale", d_scale), memory_of("d_base", d_base)},
                {memory_of("mixes", mixes), memory_of("scale", scale), memory_of("base", base),
                 memory_of("d_pre", d_pre), memory_of("d_post", d_post), memory_of("d_res", d_res)});
  backend.projection().mhc_backward(
      call.problem, call.arrays,
      {d_pre.as<float>(), d_post.as<float>(), static_cast<float const*>(d_res.data()), d_mixes.as<float>(),
       d_mixes.row_stride(), d_scale.as<float>(), d_base.as<float>()});
}

}  // namespace monge
