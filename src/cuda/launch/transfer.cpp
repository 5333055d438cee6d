#include "cuda/launch/transfer.hpp"

#include <algorithm>
#include <cstring>

#include "core/numbers.hpp"
#include "core/strided.hpp"
#include "cuda/launch/batch.hpp"

namespace monge::cuda {
namespace {

/// Waits for copies from the caller's memory that may read it after they have returned: from page-locked and managed
/// memory, and where the device reads all host memory. Other memory has been read.
void finish_reading(Runtime const& runtime, void const* host) {
  cudaPointerAttributes attributes;
  MONGE_CUDA_TRY(cudaPointerGetAttributes(&attributes, host));
  if (attributes.type != cudaMemoryTypeUnregistered ||
      device_attribute(cudaDevAttrPageableMemoryAccessUsesHostPageTables) != 0)
    runtime.wait();
}

}  // namespace

StridedView upload(SharedRuntime const& runtime, MatrixView matrix, DeviceArray<unsigned char>& staging) {
  if (matrix.device().type == DeviceType::cuda)
    return {const_cast<void*>(matrix.data()), matrix.row_stride(), matrix.type()};
  std::int64_t const bytes = size_of(matrix.type());
  auto const width = to_size(matrix.columns() * bytes);
  staging = DeviceArray<unsigned char>(runtime, matrix.rows() * matrix.columns() * bytes);
  if (matrix.row_stride() == matrix.columns()) {
    upload(*runtime, matrix.data(), staging.data(), staging.bytes());
  } else {
    MONGE_CUDA_TRY(cudaMemcpy2DAsync(staging.data(), width, matrix.data(), to_size(matrix.row_stride() * bytes), width,
                                     to_size(matrix.rows()), cudaMemcpyHostToDevice, runtime->stream()));
    finish_reading(*runtime, matrix.data());
  }
  return {staging.data(), matrix.columns(), matrix.type()};
}

StridedView upload(SharedRuntime const& runtime, VectorView vector, DeviceArray<unsigned char>& staging) {
  return upload(runtime, as_column(vector), staging);
}

void upload(Runtime const& runtime, void const* from, void* to, std::int64_t bytes, Queue const& queue) {
  if (queue.batch()) return queue.batch()->upload(from, to, to_size(bytes));
  // A copy from page-locked memory overlaps the host's work; a copy from other memory may wait for the stream.
  bool const is_staged = bytes <= Runtime::kMostStaged;
  if (bytes > 0 && is_staged) from = std::memcpy(runtime.staging(bytes), from, to_size(bytes));
  MONGE_CUDA_TRY(cudaMemcpyAsync(to, from, to_size(bytes), cudaMemcpyHostToDevice, runtime.stream()));
  if (!is_staged) finish_reading(runtime, from);
}

void download(Runtime const& runtime, void const* from, void* to, std::int64_t bytes) {
  void* const staged = bytes <= Runtime::kMostStaged ? runtime.staging(bytes) : nullptr;
  MONGE_CUDA_TRY(cudaMemcpyAsync(staged ? staged : to, from, to_size(bytes), cudaMemcpyDeviceToHost, runtime.stream()));
  runtime.wait();
  if (staged) std::memcpy(to, staged, to_size(bytes));
}

std::vector<double> host_copy(Runtime const& runtime, MatrixView matrix) {
  if (matrix.device().type == DeviceType::cpu) return values_of(matrix);
  std::vector<double> values(to_size(matrix.rows() * matrix.columns()));
  with_data(matrix, [&]<class T>(T const* data) {
    std::vector<T> raw(values.size());
    std::size_t const width = to_size(matrix.columns()) * sizeof(T);
    MONGE_CUDA_TRY(cudaMemcpy2DAsync(raw.data(), width, data, to_size(matrix.row_stride()) * sizeof(T), width,
                                     to_size(matrix.rows()), cudaMemcpyDeviceToHost, runtime.stream()));
    runtime.wait();
    std::copy(raw.begin(), raw.end(), values.begin());
  });
  return values;
}

Output::Output(SharedRuntime const& runtime, MutableMatrixView out) : runtime_(runtime), out_(out) {
  bool const in_place = out.device().type == DeviceType::cuda;
  if (!in_place) staging_ = DeviceArray<unsigned char>(runtime, out.rows() * out.columns() * size_of(out.type()));
  view_ = in_place ? StridedView{out.data(), out.row_stride(), out.type()}
                   : StridedView{staging_.data(), out.columns(), out.type()};
}

Output::Output(SharedRuntime const& runtime, MutableVectorView out) : Output(runtime, as_column(out)) {}

Output::Output(SharedRuntime const& runtime, MutableIndexView out)
    : Output(runtime,
             MutableMatrixView(out.data, DataType::float64, out.rows, out.columns, out.row_stride, out.device)) {}

void Output::finish() {
  if (staging_.size() == 0) return;
  std::int64_t const bytes = size_of(out_.type());
  auto const width = to_size(out_.columns() * bytes);
  if (out_.row_stride() == out_.columns()) {  // Rows of any length, unlike those of a copy with gaps.
    MONGE_CUDA_TRY(cudaMemcpyAsync(out_.data(), staging_.data(), to_size(staging_.bytes()), cudaMemcpyDeviceToHost,
                                   runtime_->stream()));
  } else {
    MONGE_CUDA_TRY(cudaMemcpy2DAsync(out_.data(), to_size(out_.row_stride() * bytes), staging_.data(), width, width,
                                     to_size(out_.rows()), cudaMemcpyDeviceToHost, runtime_->stream()));
  }
  runtime_->wait();
}

double element(Runtime const& runtime, void const* data, DataType scalar, std::int64_t at) {
  if (scalar == DataType::float32)
    return static_cast<double>(download(runtime, static_cast<float const*>(data) + at, 1)[0]);
  return download(runtime, static_cast<double const*>(data) + at, 1)[0];
}

}  // namespace monge::cuda
