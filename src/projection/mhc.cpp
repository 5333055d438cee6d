// The maps of mHC layers.
#include <monge/projection.hpp>

#include "core/out_of_memory.hpp"
#include "geometry/validation.hpp"
#include "projection/problem.hpp"
#include "projection/views.hpp"
#include "seam/backend.hpp"

namespace monge {
namespace {

struct MhcCall {
  ProjectionProblem problem;
  MhcArrays arrays;
};

MhcCall mhc_call(Backend const& backend, Device device, MatrixView mixes, VectorView scale, VectorView base,
                 MhcOptions const& options) {
  auto const columns = static_cast<int>(mixes.columns());
  int streams = 1;
  while (streams * (streams + 2) < columns) ++streams;
  require(streams * (streams + 2) == columns,
          "mixes: has {} columns; must have n (n + 2) for n streams: 8, 24 or 80 for 2, 4 or 8", columns);
  require_float32("mixes", mixes.type());
  validate_matrix("mixes", mixes, mixes.rows(), columns, device);
  validate_floats("scale", scale, 3, device);
  validate_floats("base", base, columns, device);
  require(!options.projection.dustbin, "dustbin: is true; an mHC mapping has none");
  require(options.projection.start != ProjectionStart::positive, "start: is positive; an mHC mapping takes logits");
  check("pre_epsilon", kNotNegative, options.pre_epsilon);
  check("post_factor", kPositive, options.post_factor);
  return {projection_problem(backend, streams, streams, mixes.rows(), options.projection),
          {mixes.rows(), streams, mixes.as<float>(), mixes.row_stride(), scale.as<float>(), base.as<float>(),
           static_cast<float>(options.pre_epsilon), static_cast<float>(options.post_factor)}};
}

void validate_stream_map(char const* field, MatrixView view, MhcArrays const& arrays, Device device) {
  require_float32(field, view.type());
  validate_matrix(field, view, arrays.tokens, arrays.streams, device);
  require(view.row_stride() == arrays.streams || arrays.tokens == 0, "{}: has row stride {}; must be contiguous", field,
          view.row_stride());
}

void validate_res(char const* field, BatchView const& view, MhcArrays const& arrays, Device device) {
  std::int64_t const n = arrays.streams;
  validate_batch(field, view, arrays.tokens, n, n, device);
  require_float32(field, view.type());
  require(view.row_stride() == n && (view.batch_stride() == n * n || arrays.tokens <= 1),
          "{}: is strided; must be contiguous", field);
}

}  // namespace

void mhc_mapping(Context const& context, MatrixView mixes, VectorView scale, VectorView base, MutableMatrixView pre,
                 MutableMatrixView post, MutableBatchView res, MhcOptions const& options) try {
  Backend const& backend = backend_of(context);
  Device const device = backend.projection().device();
  MhcCall const call = mhc_call(backend, device, mixes, scale, base, options);
  std::int64_t const tokens = call.arrays.tokens;
  validate_stream_map("pre", pre, call.arrays, device);
  validate_stream_map("post", post, call.arrays, device);
  validate_res("res", res, call.arrays, device);
  require_apart({memory_of("pre", pre), memory_of("post", post), memory_of("res", res)},
                {memory_of("mixes", mixes), memory_of("scale", scale), memory_of("base", base)});
  if (tokens > 0)
    backend.projection().mhc_forward(call.problem, call.arrays,
                                     {pre.as<float>(), post.as<float>(), static_cast<float*>(res.data())});
} catch (std::bad_alloc const&) {
  throw_out_of_memory("mhc_mapping");
}

void mhc_mapping_backward(Context const& context, MatrixView mixes, VectorView scale, VectorView base, MatrixView d_pre,
                          MatrixView d_post, BatchView d_res, MutableMatrixView d_mixes, MutableVectorView d_scale,
                          MutableVectorView d_base, MhcOptions const& options) try {
  Backend const& backend = backend_of(context);
  Device const device = backend.projection().device();
  MhcCall const call = mhc_call(backend, device, mixes, scale, base, options);
  std::int64_t const tokens = call.arrays.tokens;
  validate_stream_map("d_pre", d_pre, call.arrays, device);
  validate_stream_map("d_post", d_post, call.arrays, device);
  validate_res("d_res", d_res, call.arrays, device);
  require_float32("d_mixes", d_mixes.type());
  validate_matrix("d_mixes", d_mixes, tokens, call.arrays.columns(), device);
  validate_floats("d_scale", d_scale, 3, device);
  validate_floats("d_base", d_base, call.arrays.columns(), device);
  require_apart({memory_of("d_mixes", d_mixes), memory_of("d_scale", d_scale), memory_of("d_base", d_base)},
                {memory_of("mixes", mixes), memory_of("scale", scale), memory_of("base", base),
                 memory_of("d_pre", d_pre), memory_of("d_post", d_post), memory_of("d_res", d_res)});
  backend.projection().mhc_backward(
      call.problem, call.arrays,
      {d_pre.as<float>(), d_post.as<float>(), static_cast<float const*>(d_res.data()), d_mixes.as<float>(),
       d_mixes.row_stride(), d_scale.as<float>(), d_base.as<float>()});
} catch (std::bad_alloc const&) {
  throw_out_of_memory("mhc_mapping_backward");
}

}  // namespace monge
