// Copies between the caller's memory, on host or device, and arrays on the device.
#pragma once
#include <memory>
#include <vector>

#include <monge/array.hpp>

#include "core/numbers.hpp"
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"
#include "cuda/runtime/runtime.hpp"

namespace monge::cuda {

using SharedRuntime = std::shared_ptr<Runtime const>;

/// The matrix for kernels: in place if it lies on the device, else uploaded into `staging`.
StridedView upload(SharedRuntime const& runtime, MatrixView matrix, DeviceArray<unsigned char>& staging);
StridedView upload(SharedRuntime const& runtime, VectorView vector, DeviceArray<unsigned char>& staging);

/// The matrix as float64 on the host, contiguous. Waits if it lies on the device.
std::vector<double> host_copy(Runtime const& runtime, MatrixView matrix);

/// Memory for a kernel's result: the caller's if it lies on the device, else a staging array that finish() copies to
/// the host.
class Output {
 public:
  Output(SharedRuntime const& runtime, MutableMatrixView out);
  Output(SharedRuntime const& runtime, MutableVectorView out);
  /// Indices are as wide as float64. They are only copied, so float64 stands for them.
  Output(SharedRuntime const& runtime, MutableIndexView out);
  StridedView const& view() const { return view_; }
  /// Waits, but only if the result lies on the host.
  void finish();

 private:
  SharedRuntime runtime_;
  MutableMatrixView out_;
  DeviceArray<unsigned char> staging_;
  StridedView view_;
};

/// Copies to the device. The source may be reused at once: more than kMostStaged bytes of page-locked or managed memory
/// are waited for. In a batch `bytes` must be a multiple of 8.
void upload(Runtime const& runtime, void const* from, void* to, std::int64_t bytes, Queue const& queue);
inline void upload(Runtime const& runtime, void const* from, void* to, std::int64_t bytes) {
  upload(runtime, from, to, bytes, runtime.stream());
}
template <class T>
DeviceArray<T> uploaded(SharedRuntime const& runtime, std::vector<T> const& values) {
  DeviceArray<T> result(runtime, static_cast<std::int64_t>(values.size()));
  upload(*runtime, values.data(), result.data(), result.bytes());
  return result;
}

/// Waits.
void download(Runtime const& runtime, void const* from, void* to, std::int64_t bytes);

template <class T>
std::vector<T> download(Runtime const& runtime, T const* data, std::int64_t size) {
  std::vector<T> values(to_size(size));
  download(runtime, data, values.data(), size * static_cast<std::int64_t>(sizeof(T)));
  return values;
}

/// One number of an array on the device. Waits.
double element(Runtime const& runtime, void const* data, DataType scalar, std::int64_t at);

/// One of several arrays in one allocation; `data` receives its address.
template <class T>
struct Part {
  T*& data;
  std::int64_t size;
};
template <class... T>
DeviceArray<unsigned char> allocate_parts(SharedRuntime const& runtime, Part<T>... parts) {
  constexpr std::int64_t kAlignment = 256;
  auto const bytes = [](auto const& part) {
    return (part.size * static_cast<std::int64_t>(sizeof(*part.data)) + kAlignment - 1) / kAlignment * kAlignment;
  };
  DeviceArray<unsigned char> memory(runtime, (bytes(parts) + ...));
  unsigned char* next = memory.data();
  auto const place = [&]<class U>(Part<U> const& part) {
    part.data = part.size > 0 ? reinterpret_cast<U*>(next) : nullptr;
    next += bytes(part);
  };
  (place(parts), ...);
  return memory;
}

}  // namespace monge::cuda
