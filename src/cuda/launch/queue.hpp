// The destination of launches: a stream, or a batch (batch.hpp), which joins equal steps of many problems in one
// launch. A kernel for both takes one struct of arguments and is compiled for both sources.
#pragma once
#include <cstddef>
#include <type_traits>

#include <driver_types.h>

namespace monge::cuda {

class Batch;

/// The source of the arguments in a launch for one problem: the kernel's parameters.
template <class Arguments>
struct One {
  Arguments arguments;
};

/// The work of a block in a launch for many problems: `count` blocks, from number `block` on, of the launch for the one
/// problem with these arguments (device memory).
struct BlockOfMany {
  void const* arguments;
  int block, count;
};
/// The source of the arguments in a launch for many problems: a table with one entry for each block of the grid.
template <class Arguments>
struct Many {
  BlockOfMany const* blocks;
};

/// A kernel for either source. `many` may be null: a batch then launches the kernel for each problem.
template <class Arguments>
struct Kernel {
  void (*one)(One<Arguments>);
  void (*many)(Many<Arguments>);
};

struct LaunchShape {
  int blocks;  // Blocks of each row of the grid.
  int threads;
  int shared_bytes = 0;
  int rows = 1;    // Rows of the grid.
  int merged = 1;  // The blocks whose work one block may do in a launch for many problems.
  /// The size of a cluster, whose blocks reach each other's shared memory, from Generation::sm_90 on. `blocks` is a
  /// multiple of it. A kernel without cluster instructions has 0; others need a cluster, even of one block.
  int cluster = 0;
};
/// Launches `blocks` blocks of a kernel that calls wait_for_previous_kernel() (device/ptx.cuh). From Generation::sm_90
/// on its start overlaps the end of the previous kernel.
void launch_shape(void const* kernel, LaunchShape const& shape, int blocks, cudaStream_t stream, void** parameters);
template <class... Parameters>
void launch_chained(void (*kernel)(Parameters...), int blocks, int threads, int shared_bytes, cudaStream_t stream,
                    std::type_identity_t<Parameters>... arguments) {
  void* parameters[] = {const_cast<void*>(static_cast<void const*>(&arguments))...};
  launch_shape(reinterpret_cast<void const*>(kernel), {blocks, threads, shared_bytes}, blocks, stream, parameters);
}

class Queue {
 public:
  Queue(cudaStream_t stream) : stream_(stream) {}  // NOLINT(google-explicit-constructor): what most callers have
  Queue(Batch& batch) : batch_(&batch) {}          // NOLINT(google-explicit-constructor)

  /// As launch_shape().
  template <class Arguments>
  void launch(Kernel<Arguments> const& kernel, LaunchShape const& shape, Arguments const& arguments) const {
    launch(reinterpret_cast<void const*>(kernel.one), reinterpret_cast<void const*>(kernel.many), shape, &arguments,
           sizeof(Arguments));
  }

  /// Null for a stream.
  Batch* batch() const { return batch_; }
  /// The stream of a queue without batch.
  cudaStream_t stream() const { return stream_; }

 private:
  void launch(void const* one, void const* many, LaunchShape const& shape, void const* arguments,
              std::size_t bytes) const;

  cudaStream_t stream_ = nullptr;
  Batch* batch_ = nullptr;
};

}  // namespace monge::cuda
