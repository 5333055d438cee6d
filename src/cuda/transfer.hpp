// Between the caller's memory, wherever it lies, and arrays on the device.
#pragma once
#include <memory>
#include <vector>

#include <monge/array.hpp>

#include "cuda/launch/arguments.hpp"
#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {

using SharedRuntime = std::shared_ptr<Runtime const>;

/// The matrix as kernels see it: in place on the device, or uploaded into `staging`.
StridedView upload(SharedRuntime const& runtime, MatrixView matrix, DeviceArray<unsigned char>& staging);
StridedView upload(SharedRuntime const& runtime, VectorView vector, DeviceArray<unsigned char>& staging);

/// The vector as float64 on the host. Waits if it lies on the device.
std::vector<double> read(SharedRuntime const& runtime, VectorView view);
/// The matrix as float64 on the host, contiguous. Waits.
std::vector<double> host_copy(Runtime const& runtime, MatrixView matrix);

/// Where kernels write a result for the caller: in place on the device, else in memory of its own that finish() copies
/// to the host.
class Output {
 public:
  Output(SharedRuntime const& runtime, MutableMatrixView out);
  Output(SharedRuntime const& runtime, MutableVectorView out);
  /// Indices are as wide as float64, and here they are only copied.
  Output(SharedRuntime const& runtime, MutableIndexView out);
  StridedView const& view() const { return view_; }
  /// Waits if the result lies on the host, and only then.
  void finish();

 private:
  SharedRuntime runtime_;
  MutableMatrixView out_;
  DeviceArray<unsigned char> staging_;
  StridedView view_;
};

template <class T>
DeviceArray<T> uploaded(SharedRuntime const& runtime, std::vector<T> const& values) {
  DeviceArray<T> result(runtime, static_cast<std::int64_t>(values.size()));
  // From pageable memory: the call returns when the source may be reused.
  MONGE_CUDA_TRY(cudaMemcpyAsync(result.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice,
                                 runtime->stream()));
  return result;
}

/// Waits.
template <class T>
std::vector<T> download(Runtime const& runtime, T const* data, std::int64_t size) {
  std::vector<T> values(static_cast<std::size_t>(size));
  MONGE_CUDA_TRY(
      cudaMemcpyAsync(values.data(), data, values.size() * sizeof(T), cudaMemcpyDeviceToHost, runtime.stream()));
  runtime.wait();
  return values;
}

}  // namespace monge::cuda
