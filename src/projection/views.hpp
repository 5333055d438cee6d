// Checks of the views that a projection is given.
#pragma once
#include <cstdint>
#include <initializer_list>

#include <monge/projection.hpp>

namespace monge {

/// The bytes of a view, from its first element to its last.
struct Memory {
  char const* field;
  std::uintptr_t begin = 0, end = 0;
};
Memory memory_of(char const* field, BatchView const& view);
Memory memory_of(char const* field, MatrixView const& view);
Memory memory_of(char const* field, VectorView const& view);

/// Throws Error if memory that is written overlaps other memory of the call.
void require_apart(std::initializer_list<Memory> written, std::initializer_list<Memory> read);

void require_float32(char const* field, DataType type);
/// As validate_vector(), and the vector must be float32 and contiguous.
void validate_floats(char const* field, VectorView view, std::int64_t size, Device context);
/// Checks shape, type, pointer and strides, and that `context` can reach the batch; an empty one may lie anywhere.
void validate_batch(char const* field, BatchView const& view, std::int64_t batch, int rows, int columns,
                    Device context);

}  // namespace monge
