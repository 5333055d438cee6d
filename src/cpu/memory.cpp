#include "cpu/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include <monge/error.hpp>

namespace monge::cpu {
namespace {

/// Asks for pages of 2 MiB if the array is large enough. Kept scores stream from memory, and a page walk every 4 KiB
/// costs a fifth of their time (docs/tuning.md). The request is only advice, so a refusal is no error.
void advise_large_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t kPage = 1 << 21;
  auto const address = reinterpret_cast<std::uintptr_t>(data);
  std::uintptr_t const begin = (address + kPage - 1) / kPage * kPage, end = (address + bytes) / kPage * kPage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace

template <class T>
AlignedArray<T> aligned_array(std::int64_t size) {
  if (size > std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(2 * sizeof(T)))
    throw Error(ErrorCode::out_of_memory, "memory: " + std::to_string(size) + " values do not fit in an address space");
  auto array = hwy::AllocateAligned<T>(static_cast<std::size_t>(std::max<std::int64_t>(size, 1)));
  if (!array)
    throw Error(ErrorCode::out_of_memory,
                "memory: " + std::to_string(size * static_cast<std::int64_t>(sizeof(T))) + " bytes are not available");
  advise_large_pages(array.get(), static_cast<std::size_t>(size) * sizeof(T));
  return array;
}

template AlignedArray<float> aligned_array(std::int64_t);
template AlignedArray<double> aligned_array(std::int64_t);

}  // namespace monge::cpu
