// The malloc of the program: it counts, and fails on demand. Operator new, OpenMP and the aligned arrays call it.
#pragma once
#include <atomic>
#include <cstdint>

namespace monge::oracle {

extern std::atomic<std::int64_t> malloc_calls, malloc_bytes;

/// After this call the call number `call` of operator new, or of malloc for an array of the library, fails, once. The
/// first has number 0; a negative number stands for none. Returns the number of such calls since the last call.
std::int64_t fail_allocation(std::int64_t call);

}  // namespace monge::oracle
