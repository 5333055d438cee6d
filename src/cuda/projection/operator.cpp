#include "cuda/projection/operator.hpp"

#include <algorithm>
#include <vector>

#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "cuda/projection/launch/sizes.hpp"
#include "projection/problem.hpp"

namespace monge::cuda {
namespace {

std::int64_t extent(BatchView const& view) {
  return (view.batch() - 1) * view.batch_stride() + (view.rows() - 1) * view.row_stride() + view.columns();
}

/// A range of the caller's memory for kernels: the range itself if on the device, else a copy.
class Reachable {
 public:
  Reachable(std::shared_ptr<Runtime const> const& runtime, Device device, void const* data, std::int64_t bytes)
      : runtime_(runtime), data_(const_cast<void*>(data)) {
    if (device.type == DeviceType::cuda || bytes == 0) return;
    copy_ = DeviceArray<char>(runtime, bytes);
    host_ = data_;
    data_ = copy_.data();
    MONGE_CUDA_TRY(cudaMemcpyAsync(data_, host_, to_size(bytes), cudaMemcpyDefault, runtime->stream()));
  }
  void* data() const { return data_; }
  bool is_copy() const { return host_ != nullptr; }
  /// Copies back to host memory, and waits. Gaps between rows keep their bytes.
  void back() const {
    if (host_ == nullptr) return;
    MONGE_CUDA_TRY(cudaMemcpyAsync(host_, data_, to_size(copy_.bytes()), cudaMemcpyDefault, runtime_->stream()));
    runtime_->wait();
  }

 private:
  std::shared_ptr<Runtime const> runtime_;
  DeviceArray<char> copy_;
  void* data_;
  void* host_ = nullptr;
};

Reachable reachable(std::shared_ptr<Runtime const> const& runtime, BatchView const& view) {
  return {runtime, view.device(), view.data(), view.batch() > 0 ? extent(view) * size_of(view.type()) : 0};
}

BatchArguments arguments_of(BatchView const& view, Reachable const& memory) {
  bool const contiguous = view.row_stride() == view.columns() &&
                          view.batch_stride() == view.rows() * static_cast<std::int64_t>(view.columns());
  return {memory.data(), view.batch_stride(), view.row_stride(), view.type(), contiguous};
}

bool in_pieces(BatchArguments const& view) {
  auto const piece = static_cast<std::uintptr_t>(4 * size_of(view.type));
  return reinterpret_cast<std::uintptr_t>(view.data) % piece == 0 && view.row_stride % 4 == 0 &&
         view.batch_stride % 4 == 0;
}

/// Whether device/ratio.cuh can do the problem: K of exponentials, sums of 1 and no tolerance. An eps must be added to
/// the sums, or clamp them in the first pair of steps only, which the kernel checks.
bool reducible(ProjectionProblem const& problem) {
  bool const shifted = problem.start == ProjectionStart::exp_shifted;
  if (!problem.unit_marginals || problem.tolerance > 0) return false;
  if (problem.start == ProjectionStart::softmax)
    return problem.epsilon > 0 && problem.epsilon_mode != EpsilonMode::clamp;
  if (problem.start == ProjectionStart::positive || problem.matrix_epsilon > 0) return false;
  if (problem.epsilon_mode == EpsilonMode::clamp) return problem.clamps_in_first_pair_only();
  return !(shifted && problem.columns_first);
}

ProjectionArguments arguments_of(ProjectionProblem const& problem, bool backward) {
  ProjectionArguments arguments;
  arguments.batch = problem.batch;
  arguments.rows = problem.rows;
  arguments.columns = problem.columns;
  arguments.logit_rows = problem.logit_rows;
  arguments.logit_columns = problem.logit_columns;
  arguments.pairs = problem.pairs;
  arguments.epsilon = problem.epsilon;
  arguments.matrix_epsilon = problem.matrix_epsilon;
  arguments.inverse_temperature = problem.inverse_temperature;
  arguments.tolerance = problem.tolerance;
  arguments.dustbin_score = problem.dustbin_score;
  arguments.implicit_tolerance = problem.implicit_tolerance;
  arguments.start_softmax = problem.start == ProjectionStart::softmax;
  arguments.start_positive = problem.start == ProjectionStart::positive;
  arguments.start_shifted = problem.start == ProjectionStart::exp_shifted;
  arguments.clamp = problem.epsilon_mode == EpsilonMode::clamp;
  arguments.scaling = problem.epsilon_mode == EpsilonMode::scaling;
  arguments.columns_first = problem.columns_first;
  arguments.lead = problem.lead;
  arguments.trail = problem.trail;
  arguments.log_domain = problem.log_domain;
  arguments.implicit = problem.implicit;
  arguments.reducible = reducible(problem) && !(backward && problem.implicit);
  return arguments;
}

SumTargets marginals_of(ProjectionProblem const& problem) {
  SumTargets marginals;
  std::copy(problem.a.begin(), problem.a.end(), marginals.a);
  std::copy(problem.b.begin(), problem.b.end(), marginals.b);
  return marginals;
}

ProjectionMode mode_of(ProjectionProblem const& problem, bool backward) {
  if (problem.log_domain) return ProjectionMode::log_domain;
  bool const general = !problem.unit_marginals || problem.tolerance > 0 || problem.epsilon_mode == EpsilonMode::clamp ||
                       (backward && problem.implicit);
  if (general) return ProjectionMode::general;
  // With start exp, an epsilon of the matrix is relative to e^{-s}, which only guarded steps keep.
  bool const scaled = problem.matrix_epsilon > 0 && problem.start == ProjectionStart::exp;
  return problem.epsilon > 0 || scaled ? ProjectionMode::guarded : ProjectionMode::plain;
}

TileFunctions const* tile_of(ProjectionProblem const& problem) {
  int const larger = std::max(problem.rows, problem.columns);
  for (TileFunctions const* const tile : {&kTile4, &kTile8, &kTile16, &kTile32, &kTile64, &kTile128}) {
    if (larger <= tile->size) return tile;
  }
  return nullptr;
}

bool fills(ProjectionProblem const& problem, TileFunctions const& tile) {
  return problem.rows == tile.size && problem.columns == tile.size && !problem.dustbin();
}

/// Floats at the front of the workspace that hold the counter of finished blocks. Kernels leave it at 0.
constexpr std::int64_t kCounter = 16;

/// While a stream records a graph, CUDA refuses calls such as cudaMalloc in threads that may take part. During the
/// lifetime of this object its thread may make them: they do not belong to the graph.
class CaptureRelaxed {
 public:
  CaptureRelaxed() { MONGE_CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~CaptureRelaxed() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  CaptureRelaxed(CaptureRelaxed const&) = delete;
  CaptureRelaxed& operator=(CaptureRelaxed const&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // After the exchange: the mode to restore.
};

}  // namespace

Projection::~Projection() {
  // The stream that gets the workspaces back does not know the work that uses them.
  if (!workspaces_.empty()) cudaStreamSynchronize(runtime_->stream());
}

float* Projection::workspace(std::int64_t floats) const {
  std::int64_t const size = workspaces_.empty() ? 0 : workspaces_.back().size();
  if (size < kCounter + floats) {
    CaptureRelaxed const anywhere;
    cudaStream_t const stream = runtime_->capture_stream();
    workspaces_.emplace_back(runtime_, std::max(kCounter + floats, 2 * size), stream);
    MONGE_CUDA_TRY(cudaMemsetAsync(workspaces_.back().data(), 0, kCounter * sizeof(float), stream));
    MONGE_CUDA_TRY(cudaStreamSynchronize(stream));
  }
  return workspaces_.back().data();
}

void Projection::project_large(ProjectionProblem const& problem, ProjectionArguments const& arguments,
                               bool backward) const {
  float* const memory = workspace(large_shape(arguments, backward).floats()) + kCounter;
  cuda::project_large(arguments, problem.a, problem.b, memory, backward, runtime_->stream());
}

void Projection::forward(ProjectionProblem const& problem, BatchView const& logits, MutableBatchView const& out) const {
  DeviceGuard const guard(runtime_->index());
  TileFunctions const* const tile = tile_of(problem);
  Reachable const in = reachable(runtime_, logits), result = reachable(runtime_, out);
  ProjectionArguments arguments = arguments_of(problem, false);
  arguments.logits = arguments_of(logits, in);
  arguments.result = arguments_of(BatchView(out), result);
  if (tile != nullptr) {
    bool const aligned = fills(problem, *tile) && in_pieces(arguments.logits) && in_pieces(arguments.result);
    tile->forward(arguments, marginals_of(problem), mode_of(problem, false), aligned, runtime_->stream());
  } else {
    project_large(problem, arguments, false);
  }
  result.back();
  if (in.is_copy()) runtime_->wait();
}

void Projection::backward(ProjectionProblem const& problem, BatchView const& logits, BatchView const& d_out,
                          MutableBatchView const& d_logits, float* d_dustbin_score) const {
  DeviceGuard const guard(runtime_->index());
  TileFunctions const* const tile = tile_of(problem);
  if (tile == nullptr && problem.implicit)
    throw Error(ErrorCode::unsupported, "gradient: is implicit; matrices larger than 128 x 128 have unrolled on CUDA");
  Reachable const in = reachable(runtime_, logits), gradient = reachable(runtime_, d_out);
  Reachable const result = reachable(runtime_, d_logits);
  ProjectionArguments arguments = arguments_of(problem, true);
  arguments.logits = arguments_of(logits, in);
  arguments.gradient = arguments_of(d_out, gradient);
  arguments.result = arguments_of(BatchView(d_logits), result);
  cudaPointerAttributes attributes{};
  bool const on_device = d_dustbin_score == nullptr ||
                         (cudaPointerGetAttributes(&attributes, d_dustbin_score) == cudaSuccess &&
                          attributes.type != cudaMemoryTypeUnregistered && attributes.type != cudaMemoryTypeHost);
  Reachable const score(runtime_, on_device ? device() : Device{}, d_dustbin_score,
                        d_dustbin_score == nullptr ? 0 : 4 * problem.batch);
  arguments.d_dustbin_score = static_cast<float*>(score.data());
  int const multiprocessors = runtime_->multiprocessors();
  if (tile != nullptr) {
    ProjectionMode const mode = mode_of(problem, true);
    std::int64_t const floats = tile->history(arguments, mode, multiprocessors);
    if (floats > 0) arguments.history = workspace(floats) + kCounter;
    bool const aligned = floats == 0 && fills(problem, *tile) && in_pieces(arguments.logits) &&
                         in_pieces(arguments.result) && in_pieces(arguments.gradient);
    tile->backward(arguments, marginals_of(problem), mode, aligned, multiprocessors, runtime_->stream());
  } else {
    project_large(problem, arguments, true);
  }
  score.back();
  result.back();
  if (in.is_copy() || gradient.is_copy()) runtime_->wait();
}

namespace {

/// The arrays of an mHC call for kernels: device and managed memory in place, host memory as a copy.
class MhcMemory {
 public:
  explicit MhcMemory(std::shared_ptr<Runtime const> runtime) : runtime_(std::move(runtime)) {}
  float* reach(float const* pointer, std::int64_t floats, bool written = false) {
    cudaPointerAttributes attributes{};
    bool const on_device = cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess &&
                           (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged);
    if (on_device || floats == 0) return const_cast<float*>(pointer);
    memory_.push_back({std::make_unique<Reachable>(runtime_, Device{}, pointer, 4 * floats), written});
    return static_cast<float*>(memory_.back().memory->data());
  }
  void back() const {
    for (Entry const& entry : memory_)
      if (entry.written) entry.memory->back();
    if (!memory_.empty()) runtime_->wait();
  }

 private:
  struct Entry {
    std::unique_ptr<Reachable> memory;
    bool written;
  };
  std::shared_ptr<Runtime const> runtime_;
  std::vector<Entry> memory_;
};

MhcArguments mhc_arguments(ProjectionProblem const& problem, MhcArrays const& arrays, MhcMemory& memory,
                           bool backward) {
  MhcArguments arguments{};
  arguments.projection = arguments_of(problem, backward);
  std::int64_t const mixes = arrays.tokens > 0 ? (arrays.tokens - 1) * arrays.mixes_stride + arrays.columns() : 0;
  arguments.streams = arrays.streams;
  arguments.mixes = memory.reach(arrays.mixes, mixes);
  arguments.mixes_stride = arrays.mixes_stride;
  arguments.scale = memory.reach(arrays.scale, 3);
  arguments.base = memory.reach(arrays.base, arrays.columns());
  arguments.pre_epsilon = arrays.pre_epsilon;
  arguments.post_factor = arrays.post_factor;
  return arguments;
}

bool all_in_pieces(std::initializer_list<float const*> pointers) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [](float const* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; });
}

}  // namespace

void Projection::mhc_forward(ProjectionProblem const& problem, MhcArrays const& arrays, MhcOutputs const& out) const {
  DeviceGuard const guard(runtime_->index());
  MhcMemory memory(runtime_);
  MhcArguments arguments = mhc_arguments(problem, arrays, memory, false);
  int const streams = arrays.streams;
  arguments.pre = memory.reach(out.pre, streams * arrays.tokens, true);
  arguments.post = memory.reach(out.post, streams * arrays.tokens, true);
  arguments.res = memory.reach(out.res, streams * streams * arrays.tokens, true);
  if (streams != 4) {
    mhc_split(arguments, arguments.res, streams * streams, runtime_->multiprocessors(), runtime_->stream());
    MutableBatchView const res(arguments.res, arrays.tokens, streams, streams, kContiguous, kContiguous, device());
    forward(problem, res, res);  // Every kernel has read a matrix before it writes the matrix.
    return memory.back();
  }
  arguments.vector =
      arrays.mixes_stride % 4 == 0 && all_in_pieces({arguments.mixes, arguments.pre, arguments.post, arguments.res});
  cuda::mhc_forward(arguments, marginals_of(problem), mode_of(problem, false), runtime_->stream());
  memory.back();
}

void Projection::mhc_backward(ProjectionProblem const& problem, MhcArrays const& arrays,
                              MhcGradients const& gradients) const {
  DeviceGuard const guard(runtime_->index());
  MhcMemory memory(runtime_);
  if (arrays.tokens == 0) {
    float* const d_scale = memory.reach(gradients.d_scale, 3, true);
    float* const d_base = memory.reach(gradients.d_base, arrays.columns(), true);
    MONGE_CUDA_TRY(cudaMemsetAsync(d_scale, 0, 3 * sizeof(float), runtime_->stream()));
    MONGE_CUDA_TRY(cudaMemsetAsync(d_base, 0, to_size(arrays.columns()) * sizeof(float), runtime_->stream()));
    memory.back();
    return;
  }
  MhcArguments arguments = mhc_arguments(problem, arrays, memory, true);
  int const streams = arrays.streams, columns = arrays.columns();
  arguments.d_pre = memory.reach(gradients.d_pre, streams * arrays.tokens);
  arguments.d_post = memory.reach(gradients.d_post, streams * arrays.tokens);
  arguments.d_res = memory.reach(gradients.d_res, streams * streams * arrays.tokens);
  arguments.d_mixes_stride = gradients.d_mixes_stride;
  arguments.d_mixes = memory.reach(gradients.d_mixes, (arrays.tokens - 1) * gradients.d_mixes_stride + columns, true);
  arguments.d_scale = memory.reach(gradients.d_scale, 3, true);
  arguments.d_base = memory.reach(gradients.d_base, columns, true);
  if (streams != 4) {
    float* const logits = arguments.d_mixes + 2 * streams;
    mhc_split(arguments, logits, gradients.d_mixes_stride, runtime_->multiprocessors(), runtime_->stream());
    MutableBatchView const place(logits, arrays.tokens, streams, streams, gradients.d_mixes_stride, streams, device());
    BatchView const d_res(arguments.d_res, arrays.tokens, streams, streams, kContiguous, kContiguous, device());
    backward(problem, place, d_res, place, nullptr);  // As in mhc_forward().
    arguments.partial = workspace(std::int64_t{2} * mhc_rows(arrays.tokens) * columns) + kCounter;
    mhc_join(arguments, runtime_->stream());
    return memory.back();
  }
  arguments.vector =
      arrays.mixes_stride % 4 == 0 && gradients.d_mixes_stride % 4 == 0 &&
      all_in_pieces({arguments.mixes, arguments.d_pre, arguments.d_post, arguments.d_res, arguments.d_mixes});
  int const multiprocessors = runtime_->multiprocessors();
  MhcShape const shape = mhc_shape(arguments.projection, multiprocessors);
  std::int64_t const partial = static_cast<std::int64_t>(shape.blocks) * 32;
  float* const space = workspace(partial + shape.history_floats);
  arguments.blocks_done = reinterpret_cast<unsigned*>(space);
  arguments.partial = space + kCounter;
  if (shape.history_floats > 0) arguments.projection.history = space + kCounter + partial;
  cuda::mhc_backward(arguments, marginals_of(problem), mode_of(problem, true), multiprocessors, runtime_->stream());
  memory.back();
}

}  // namespace monge::cuda
