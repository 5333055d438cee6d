#include "cpu/memory.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include <monge/error.hpp>

namespace monge::cpu {

template <class T>
AlignedArray<T> aligned_array(std::int64_t size) {
  if (size > std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(2 * sizeof(T)))
    throw Error(ErrorCode::out_of_memory, "memory: " + std::to_string(size) + " values do not fit in an address space");
  auto array = hwy::AllocateAligned<T>(static_cast<std::size_t>(std::max<std::int64_t>(size, 1)));
  if (!array)
    throw Error(ErrorCode::out_of_memory,
                "memory: " + std::to_string(size * static_cast<std::int64_t>(sizeof(T))) + " bytes are not available");
  return array;
}

template AlignedArray<float> aligned_array(std::int64_t);
template AlignedArray<double> aligned_array(std::int64_t);

}  // namespace monge::cpu
