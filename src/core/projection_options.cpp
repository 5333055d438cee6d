#include "core/projection_options.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <monge/error.hpp>

#include "core/validation.hpp"
#include "operators/projection_operator.hpp"

namespace monge {
namespace {

template <class... Args>
void require(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) throw Error(ErrorCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...));
}

constexpr std::array kPresets = {ProjectionPreset::mhc_paper,       ProjectionPreset::deepseek,
                                 ProjectionPreset::megatron,        ProjectionPreset::blog,
                                 ProjectionPreset::gumbel_sinkhorn, ProjectionPreset::superglue};

/// The bytes from the first element to the last, for the check of overlap.
struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool overlaps(Range const& other) const { return begin < other.end && other.begin < end; }
};

Range range_of(void const* data, std::int64_t elements, std::int64_t element_size) {
  auto const begin = reinterpret_cast<std::uintptr_t>(data);
  return {begin, begin + static_cast<std::uintptr_t>(elements * element_size)};
}

Range range_of(BatchView const& view) {
  if (view.batch() == 0) return {};
  std::int64_t const last =
      (view.batch() - 1) * view.batch_stride() + (view.rows() - 1) * view.row_stride() + view.columns();
  return range_of(view.data(), last, size_of(view.type()));
}
Range range_of(MatrixView const& view) {
  if (view.rows() == 0) return {};
  return range_of(view.data(), (view.rows() - 1) * view.row_stride() + view.columns(), size_of(view.type()));
}
Range range_of(VectorView const& view) {
  return range_of(view.data(), view.size(), size_of(view.type()));
}

struct NamedRange {
  char const* field;
  Range range;
};

/// Nothing that is written may overlap what is read or written beside it.
void require_apart(std::initializer_list<NamedRange> written, std::initializer_list<NamedRange> read) {
  auto const check = [](NamedRange const& out, NamedRange const& other) {
    require(!out.range.overlaps(other.range), "{}: overlaps {}; must be other memory", out.field, other.field);
  };
  for (NamedRange const* out = written.begin(); out != written.end(); ++out) {
    for (NamedRange const& in : read) check(*out, in);
    for (NamedRange const* before = written.begin(); before != out; ++before) check(*out, *before);
  }
}

void require_device(char const* field, Device have, Device want) {
  require(have.type == DeviceType::cpu || have == want, "{}: lies on {}; must be in host memory or on {}", field,
          to_string(have), to_string(want));
}

void validate_batch(char const* field, BatchView const& view, std::int64_t batch, int rows, int columns,
                    Device device) {
  require(view.batch() == batch && view.rows() == rows && view.columns() == columns,
          "{}: is {} x {} x {}; must be {} x {} x {}", field, view.batch(), view.rows(), view.columns(), batch, rows,
          columns);
  require(view.type() == DataType::float16 || view.type() == DataType::bfloat16 || view.type() == DataType::float32,
          "{}: is {}; must be float16, bfloat16 or float32", field, name(view.type()));
  require(view.data() != nullptr || batch == 0, "{}: is a null pointer; must point to {} matrices", field, batch);
  require(view.row_stride() >= columns, "{}: has row stride {}; must be at least its {} columns", field,
          view.row_stride(), columns);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 8;
  require(view.row_stride() <= kMost / rows, "{}: has row stride {}; too large", field, view.row_stride());
  std::int64_t const extent = (rows - 1) * view.row_stride() + columns;
  require(batch <= 1 || view.batch_stride() >= extent, "{}: has batch stride {}; must be at least {}", field,
          view.batch_stride(), extent);
  require(batch <= 1 || view.batch_stride() <= kMost / batch,
          "{}: is {} matrices with batch stride {}; the number of bytes must fit in 63 bits", field, batch,
          view.batch_stride());
  if (batch > 0) require_device(field, view.device(), device);
}

std::vector<float> marginal(char const* field, Backend const& backend, VectorView view, int size) {
  require(view.size() == size, "{}: has {} entries; must have {}", field, view.size(), size);
  validate_vector(field, view, size, backend.projection().device());
  std::vector<double> const values = backend.read(view);
  for (std::size_t i = 0; i < values.size(); ++i)
    require(std::isfinite(values[i]) && values[i] >= 0, "{}: entry {} is {}; must be finite and >= 0", field, i,
            values[i]);
  return {values.begin(), values.end()};
}

double total(std::vector<float> const& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void fill_marginals(ProjectionProblem& problem, Backend const& backend, ProjectionOptions const& options) {
  bool const given_a = !options.row_marginal.empty(), given_b = !options.column_marginal.empty();
  int const n = problem.rows, m = problem.columns;
  if (given_a) {
    problem.a = marginal("row_marginal", backend, options.row_marginal, n);
  } else {
    problem.a.assign(static_cast<std::size_t>(n), static_cast<float>(options.row_sum));
    if (problem.dustbin()) problem.a.back() = static_cast<float>(options.row_sum * (m - 1));
  }
  if (given_b) {
    problem.b = marginal("column_marginal", backend, options.column_marginal, m);
  } else if (problem.dustbin() && !given_a) {
    problem.b.assign(static_cast<std::size_t>(m), static_cast<float>(options.row_sum));
    problem.b.back() = static_cast<float>(options.row_sum * (n - 1));
  } else {
    problem.b.assign(static_cast<std::size_t>(m), static_cast<float>(total(problem.a) / m));
  }
  double const total_a = total(problem.a), total_b = total(problem.b);
  require(total_a > 0, "row_marginal: the total is {}; must be positive", total_a);
  require(std::abs(total_a - total_b) <= 1e-5 * total_a,
          "column_marginal: the total is {}; must equal that of the rows, {}, to 1e-5 relative", total_b, total_a);
  auto const is_one = [](float value) { return value == 1.0f; };
  problem.unit_marginals = std::all_of(problem.a.begin(), problem.a.end(), is_one) &&
                           std::all_of(problem.b.begin(), problem.b.end(), is_one);
}

/// Everything but shapes of the batch.
ProjectionProblem resolved(Backend const& backend, int logit_rows, int logit_columns, std::int64_t batch,
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

void require_float32(char const* field, DataType type) {
  require(type == DataType::float32, "{}: is {}; must be float32", field, name(type));
}

struct MhcCall {
  ProjectionProblem problem;
  MhcArrays arrays;
};

MhcCall mhc_call(Backend const& backend, Device device, MatrixView mixes, VectorView scale, VectorView base,
                 MhcOptions const& options) {
  require(mixes.columns() == 24, "mixes: has {} columns; must have 24", mixes.columns());
  require_float32("mixes", mixes.type());
  require_float32("scale", scale.type());
  require_float32("base", base.type());
  validate_matrix("mixes", mixes, mixes.rows(), 24, device);
  require(scale.size() == 3, "scale: has {} entries; must have 3", scale.size());
  require(base.size() == 24, "base: has {} entries; must have 24", base.size());
  require(scale.data() != nullptr && base.data() != nullptr, "{}: is a null pointer; must point to float32 values",
          scale.data() == nullptr ? "scale" : "base");
  require(scale.stride() == 1 && base.stride() == 1, "{}: is strided; must be contiguous",
          scale.stride() == 1 ? "base" : "scale");
  require_device("scale", scale.device(), device);
  require_device("base", base.device(), device);
  if (mixes.rows() > 0) require_device("mixes", mixes.device(), device);
  require(!options.projection.dustbin, "dustbin: is true; an mHC mapping has none");
  require(options.projection.start != ProjectionStart::positive, "start: is positive; an mHC mapping takes logits");
  require(std::isfinite(options.pre_epsilon) && options.pre_epsilon >= 0, "pre_epsilon: is {}; must be finite and >= 0",
          options.pre_epsilon);
  require(std::isfinite(options.post_factor) && options.post_factor > 0, "post_factor: is {}; must be finite and > 0",
          options.post_factor);
  return {resolved(backend, 4, 4, mixes.rows(), options.projection),
          {mixes.rows(), mixes.as<float>(), mixes.row_stride(), scale.as<float>(), base.as<float>(),
           static_cast<float>(options.pre_epsilon), static_cast<float>(options.post_factor)}};
}

void validate_stream_map(char const* field, MatrixView view, std::int64_t tokens, Device device) {
  require_float32(field, view.type());
  validate_matrix(field, view, tokens, 4, device);
  require(view.row_stride() == 4 || tokens == 0, "{}: has row stride {}; must be contiguous", field, view.row_stride());
  if (tokens > 0) require_device(field, view.device(), device);
}

void validate_res(char const* field, BatchView const& view, std::int64_t tokens, Device device) {
  validate_batch(field, view, tokens, 4, 4, device);
  require_float32(field, view.type());
  require(view.row_stride() == 4 && (view.batch_stride() == 16 || tokens <= 1), "{}: is strided; must be contiguous",
          field);
}

}  // namespace

std::string_view name(ProjectionOrder order) {
  return order == ProjectionOrder::rows_first ? "rows_first" : "columns_first";
}

std::string_view name(ProjectionStart start) {
  switch (start) {
    case ProjectionStart::exp:
      return "exp";
    case ProjectionStart::exp_shifted:
      return "exp_shifted";
    case ProjectionStart::softmax:
      return "softmax";
    case ProjectionStart::positive:
      return "positive";
  }
  return "unknown";
}

std::string_view name(EpsilonMode mode) {
  switch (mode) {
    case EpsilonMode::none:
      return "none";
    case EpsilonMode::denominator:
      return "denominator";
    case EpsilonMode::scaling:
      return "scaling";
    case EpsilonMode::matrix:
      return "matrix";
    case EpsilonMode::clamp:
      return "clamp";
  }
  return "unknown";
}

std::string_view name(ProjectionGradient gradient) {
  return gradient == ProjectionGradient::unrolled ? "unrolled" : "implicit";
}

std::string_view name(ProjectionPreset preset) {
  switch (preset) {
    case ProjectionPreset::mhc_paper:
      return "mhc_paper";
    case ProjectionPreset::deepseek:
      return "deepseek";
    case ProjectionPreset::megatron:
      return "megatron";
    case ProjectionPreset::blog:
      return "blog";
    case ProjectionPreset::gumbel_sinkhorn:
      return "gumbel_sinkhorn";
    case ProjectionPreset::superglue:
      return "superglue";
  }
  return "unknown";
}

ProjectionOptions projection_preset(ProjectionPreset preset) {
  ProjectionOptions options;
  switch (preset) {
    case ProjectionPreset::mhc_paper:
      options.order = ProjectionOrder::columns_first;
      break;
    case ProjectionPreset::deepseek:
      options.start = ProjectionStart::softmax;
      options.epsilon_mode = EpsilonMode::denominator;
      options.epsilon = 1e-6;
      break;
    case ProjectionPreset::megatron:
      options.start = ProjectionStart::exp_shifted;
      options.epsilon_mode = EpsilonMode::clamp;
      options.epsilon = 1e-6;
      break;
    case ProjectionPreset::blog:
      options.epsilon_mode = EpsilonMode::scaling;
      options.epsilon = 1e-6;
      break;
    case ProjectionPreset::gumbel_sinkhorn:
      options.log_domain = true;
      break;
    case ProjectionPreset::superglue:
      options.log_domain = true;
      options.dustbin = true;
      options.iterations = 100;
      break;
  }
  return options;
}

std::vector<std::string_view> projection_preset_names() {
  std::vector<std::string_view> names;
  for (ProjectionPreset const preset : kPresets) names.push_back(name(preset));
  return names;
}

ProjectionOptions projection_preset(std::string_view preset) {
  for (ProjectionPreset const known : kPresets) {
    if (name(known) == preset) return projection_preset(known);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("preset: is '{}'; must be one of {}", preset, fmt::join(projection_preset_names(), ", ")));
}

void validate(ProjectionOptions const& options) {
  require(std::isfinite(options.epsilon) && options.epsilon >= 0, "epsilon: is {}; must be finite and >= 0",
          options.epsilon);
  require(
      options.epsilon == 0 || options.epsilon_mode != EpsilonMode::none || options.start == ProjectionStart::softmax,
      "epsilon: is {} with epsilon_mode none; must be 0, or have a place: denominator, scaling, matrix or clamp",
      options.epsilon);
  require(options.iterations >= 1, "iterations: is {}; must be >= 1", options.iterations);
  require(std::isfinite(options.tolerance) && options.tolerance >= 0, "tolerance: is {}; must be finite and >= 0",
          options.tolerance);
  require(std::isfinite(options.temperature) && options.temperature > 0, "temperature: is {}; must be finite and > 0",
          options.temperature);
  require(options.start != ProjectionStart::positive || options.temperature == 1,
          "temperature: is {}; must be 1 with start positive", options.temperature);
  require(options.start != ProjectionStart::positive || !options.dustbin || options.dustbin_score >= 0,
          "dustbin_score: is {}; must be >= 0 with start positive", options.dustbin_score);
  require(std::isfinite(options.dustbin_score), "dustbin_score: is {}; must be finite", options.dustbin_score);
  require(std::isfinite(options.implicit_tolerance) && options.implicit_tolerance > 0,
          "implicit_tolerance: is {}; must be finite and > 0", options.implicit_tolerance);
  require(std::isfinite(options.row_sum) && options.row_sum > 0, "row_sum: is {}; must be finite and > 0",
          options.row_sum);
  require(!options.log_domain || options.epsilon_mode == EpsilonMode::none || options.epsilon == 0,
          "epsilon_mode: is {}; must be none in the log domain, which needs no guard", name(options.epsilon_mode));
  require(!options.log_domain || options.start != ProjectionStart::softmax || options.epsilon == 0,
          "epsilon: is {} with start softmax; must be 0 in the log domain", options.epsilon);
}

ProjectionProblem validated_projection(Backend const& backend, BatchView const& logits, BatchView const& out,
                                       char const* out_name, ProjectionOptions const& options) {
  ProjectionProblem const problem = resolved(backend, logits.rows(), logits.columns(), logits.batch(), options);
  Device const device = backend.projection().device();
  validate_batch("logits", logits, problem.batch, problem.logit_rows, problem.logit_columns, device);
  validate_batch(out_name, out, problem.batch, problem.rows, problem.columns, device);
  require(out.type() == DataType::float32 || out.type() == logits.type(),
          "{}: is {}; must be float32 or the type of the logits, {}", out_name, name(out.type()), name(logits.type()));
  return problem;
}

void project(Context const& context, BatchView logits, MutableBatchView out, ProjectionOptions const& options) {
  Backend const& backend = context.backend();
  ProjectionProblem const problem = validated_projection(backend, logits, out, "out", options);
  require_apart({{"out", range_of(out)}}, {{"logits", range_of(logits)}});
  if (problem.batch > 0) backend.projection().forward(problem, logits, out);
}

void project_backward(Context const& context, BatchView logits, BatchView d_out, MutableBatchView d_logits,
                      ProjectionOptions const& options, MutableVectorView d_dustbin_score) {
  Backend const& backend = context.backend();
  ProjectionProblem const problem = validated_projection(backend, logits, d_out, "d_out", options);
  Device const device = backend.projection().device();
  validate_batch("d_logits", d_logits, problem.batch, problem.logit_rows, problem.logit_columns, device);
  require(d_logits.type() == DataType::float32 || d_logits.type() == logits.type(),
          "d_logits: is {}; must be float32 or the type of the logits, {}", name(d_logits.type()), name(logits.type()));
  if (!d_dustbin_score.empty()) {
    require(problem.dustbin(), "d_dustbin_score: is given; must be empty without a dustbin");
    require_float32("d_dustbin_score", d_dustbin_score.type());
    validate_vector("d_dustbin_score", d_dustbin_score, problem.batch, device);
    require(d_dustbin_score.stride() == 1, "d_dustbin_score: has stride {}; must be contiguous",
            d_dustbin_score.stride());
    require_device("d_dustbin_score", d_dustbin_score.device(), device);
  }
  require_apart({{"d_logits", range_of(d_logits)}, {"d_dustbin_score", range_of(d_dustbin_score)}},
                {{"logits", range_of(logits)}, {"d_out", range_of(d_out)}});
  if (problem.batch > 0) backend.projection().backward(problem, logits, d_out, d_logits, d_dustbin_score.as<float>());
}

ProjectionMarginals projection_marginals(Context const& context, int rows, int columns,
                                         ProjectionOptions const& options) {
  ProjectionProblem const problem = resolved(context.backend(), rows, columns, 0, options);
  return {problem.a, problem.b};
}

void mhc_mapping(Context const& context, MatrixView mixes, VectorView scale, VectorView base, MutableMatrixView pre,
                 MutableMatrixView post, MutableBatchView res, MhcOptions const& options) {
  Backend const& backend = context.backend();
  Device const device = backend.projection().device();
  MhcCall const call = mhc_call(backend, device, mixes, scale, base, options);
  std::int64_t const tokens = call.arrays.tokens;
  validate_stream_map("pre", pre, tokens, device);
  validate_stream_map("post", post, tokens, device);
  validate_res("res", res, tokens, device);
  require_apart({{"pre", range_of(pre)}, {"post", range_of(post)}, {"res", range_of(res)}},
                {{"mixes", range_of(mixes)}, {"scale", range_of(scale)}, {"base", range_of(base)}});
  if (tokens > 0)
    backend.projection().mhc_forward(call.problem, call.arrays,
                                     {pre.as<float>(), post.as<float>(), static_cast<float*>(res.data())});
}

void mhc_mapping_backward(Context const& context, MatrixView mixes, VectorView scale, VectorView base, MatrixView d_pre,
                          MatrixView d_post, BatchView d_res, MutableMatrixView d_mixes, MutableVectorView d_scale,
                          MutableVectorView d_base, MhcOptions const& options) {
  Backend const& backend = context.backend();
  Device const device = backend.projection().device();
  MhcCall const call = mhc_call(backend, device, mixes, scale, base, options);
  std::int64_t const tokens = call.arrays.tokens;
  validate_stream_map("d_pre", d_pre, tokens, device);
  validate_stream_map("d_post", d_post, tokens, device);
  validate_res("d_res", d_res, tokens, device);
  require_float32("d_mixes", d_mixes.type());
  validate_matrix("d_mixes", d_mixes, tokens, 24, device);
  for (auto const& [field, view, size] :
       {std::tuple("d_scale", VectorView(d_scale), 3), std::tuple("d_base", VectorView(d_base), 24)}) {
    require_float32(field, view.type());
    validate_vector(field, view, size, device);
    require(view.stride() == 1, "{}: is strided; must be contiguous", field);
    require_device(field, view.device(), device);
  }
  if (tokens > 0) require_device("d_mixes", d_mixes.device(), device);
  require_apart({{"d_mixes", range_of(d_mixes)}, {"d_scale", range_of(d_scale)}, {"d_base", range_of(d_base)}},
                {{"mixes", range_of(mixes)},
                 {"scale", range_of(scale)},
                 {"base", range_of(base)},
                 {"d_pre", range_of(d_pre)},
                 {"d_post", range_of(d_post)},
                 {"d_res", range_of(d_res)}});
  backend.projection().mhc_backward(
      call.problem, call.arrays,
      {d_pre.as<float>(), d_post.as<float>(), static_cast<float const*>(d_res.data()), d_mixes.as<float>(),
       d_mixes.row_stride(), d_scale.as<float>(), d_base.as<float>()});
}

}  // namespace monge
