// Memory of the CPU kernels: aligned for any vector, uninitialised.
#pragma once
#include <cstdint>

#include <hwy/aligned_allocator.h>

#include "core/memory_count.hpp"

namespace monge::cpu {

template <class T>
using AlignedArray = hwy::AlignedFreeUniquePtr<T[]>;

/// Of all arrays of the process.
MemoryCount& memory();

/// Throws out_of_memory.
template <class T>
AlignedArray<T> aligned_array(std::int64_t size);

/// Memory that is kept from call to call and only grows, so a repeated call allocates nothing.
template <class T>
class Buffer {
 public:
  /// Room for `size` values; growing discards the contents.
  T* at_least(std::int64_t size) {
    if (size > capacity_) {
      array_ = aligned_array<T>(size);
      capacity_ = size;
    }
    return array_.get();
  }
  T* get() const { return array_.get(); }

 private:
  AlignedArray<T> array_;
  std::int64_t capacity_ = 0;
};

}  // namespace monge::cpu
