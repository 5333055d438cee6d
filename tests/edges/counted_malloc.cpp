#include "edges/counted_malloc.hpp"

#include <cstddef>
#include <new>

namespace monge::oracle {

std::atomic<std::int64_t> malloc_calls{0}, malloc_bytes{0};

namespace {

std::atomic<std::int64_t> seen{0}, failing{-1};

bool fails() {
  return seen.fetch_add(1, std::memory_order_relaxed) == failing.load(std::memory_order_relaxed);
}

/// Aligned arrays are larger with the offset that Highway adds. Blocks that OpenMP asks for are smaller for two
/// threads; it would end the process without them.
constexpr std::size_t kLeastArray = 4096;

}  // namespace

std::int64_t fail_allocation(std::int64_t call) {
  failing = -1;
  std::int64_t const calls = seen.exchange(0);
  failing = call;
  return calls;
}

}  // namespace monge::oracle

extern "C" void* __libc_malloc(std::size_t size);
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t size);

extern "C" void* malloc(std::size_t size) {
  monge::oracle::malloc_calls.fetch_add(1, std::memory_order_relaxed);
  monge::oracle::malloc_bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  if (size >= monge::oracle::kLeastArray && monge::oracle::fails()) return nullptr;
  return __libc_malloc(size);
}

void* operator new(std::size_t size) {
  monge::oracle::malloc_calls.fetch_add(1, std::memory_order_relaxed);
  monge::oracle::malloc_bytes.fetch_add(static_cast<std::int64_t>(size), std::memory_order_relaxed);
  void* const memory = monge::oracle::fails() ? nullptr : __libc_malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  void* const memory = monge::oracle::fails() ? nullptr : __libc_memalign(static_cast<std::size_t>(alignment), size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
