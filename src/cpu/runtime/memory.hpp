// Memory of the CPU kernels: aligned for any vector, uninitialised.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include <hwy/aligned_allocator.h>

#include "core/memory_count.hpp"

namespace monge::cpu {

template <class T>
using AlignedArray = hwy::AlignedFreeUniquePtr<T[]>;

/// Bytes of all arrays of the process.
MemoryCount& memory();

/// Throws out_of_memory.
template <class T>
AlignedArray<T> aligned_array(std::int64_t size);

/// Gives the blocks that are kept for later arrays back to the system. Allocations do so where no memory is left.
void release_free_blocks();

/// Memory of std::vector that memory() counts.
template <class T>
struct CountedAllocator {
  using value_type = T;

  CountedAllocator() = default;
  template <class Other>
  CountedAllocator(CountedAllocator<Other> const&) {}  // NOLINT(google-explicit-constructor): of allocators
  T* allocate(std::size_t size) {
    T* const data = taken(size);
    memory().add(static_cast<std::int64_t>(size * sizeof(T)));
    return data;
  }
  void deallocate(T* data, std::size_t size) {
    memory().subtract(static_cast<std::int64_t>(size * sizeof(T)));
    std::allocator<T>().deallocate(data, size);
  }
  friend bool operator==(CountedAllocator, CountedAllocator) { return true; }

 private:
  static T* taken(std::size_t size) try { return std::allocator<T>().allocate(size); } catch (std::bad_alloc const&) {
    release_free_blocks();
    return std::allocator<T>().allocate(size);
  }
};

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
