#include "cpu/runtime/memory.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include <monge/error.hpp>

#include "core/numbers.hpp"

namespace monge::cpu {

MemoryCount& memory() {
  static MemoryCount& count = *new MemoryCount;  // Arrays may outlive objects of static storage.
  return count;
}

namespace {

/// Advises the system about the whole pages within an array. It is only advice, so a refusal is no error.
[[maybe_unused]] void advise(void* data, std::size_t bytes, std::uintptr_t page, int advice) {
  auto const address = reinterpret_cast<std::uintptr_t>(data);
  std::uintptr_t const begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
  if (begin < end) madvise(static_cast<char*>(data) + (begin - address), end - begin, advice);
}

/// Asks for pages of 2 MiB if the array is large enough. Kept scores stream from memory, and a page walk every 4 KiB
/// costs a fifth of their time (docs/tuning.md).
void advise_large_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_HUGEPAGE
  advise(data, bytes, 1 << 21, MADV_HUGEPAGE);
#endif
}

/// Lets the system take the pages of a free block where memory is short; until then they cost nothing to use again.
void offer_pages([[maybe_unused]] void* data, [[maybe_unused]] std::size_t bytes) {
#ifdef MADV_FREE
  advise(data, bytes, 1 << 12, MADV_FREE);
#endif
}

/// Large blocks that are free, of at most kMost bytes together, the latest last; the system may take the pages of those
/// from kOffered bytes on. The C library gives the memory of such blocks back to the system, and each page of new
/// memory costs a fault: for the kept scores of 1000 x 1000 pairs these take longer than several sweeps.
class FreeBlocks {
 public:
  static FreeBlocks& instance() {
    static FreeBlocks& blocks = *new FreeBlocks;  // Arrays may outlive objects of static storage.
    return blocks;
  }

  void* take(std::size_t bytes) {
    Block* const block = found(bytes);
    if (block == nullptr) return nullptr;
    memory().add(static_cast<std::int64_t>(block->bytes));
    return block + 1;
  }

  std::mutex& mutex() { return mutex_; }

  void release() {
    std::lock_guard const lock(mutex_);
    for (Block* const block : free_) std::free(block);
    free_.clear();
    idle_ = 0;
  }

  void give(void* taken) {
    Block* const block = static_cast<Block*>(taken) - 1;
    memory().subtract(static_cast<std::int64_t>(block->bytes));
    if (block->bytes < kLeast || block->bytes > kMost) return std::free(block);
    if (block->bytes >= kOffered) offer_pages(block + 1, block->bytes);
    std::lock_guard const lock(mutex_);
    free_.push_back(block);
    idle_ += block->bytes;
    while (idle_ > kMost) {
      idle_ -= free_.front()->bytes;
      std::free(free_.front());
      free_.erase(free_.begin());
    }
  }

 private:
  static constexpr std::size_t kLeast = 1 << 17, kOffered = 1 << 24, kMost = 1 << 29;
  FreeBlocks() { free_.reserve(kMost / kLeast + 1); }  // give() is called by destructors and must not throw.

  static constexpr std::size_t kSlack = 1 << 14;  // Highway asks for an offset of some KiB, another one each time.
  struct alignas(std::max_align_t) Block {        // Before the memory.
    std::size_t bytes;
  };

  /// A free block that fits, or a new one; null without memory.
  Block* found(std::size_t bytes) {
    if (bytes >= kLeast) {
      std::lock_guard const lock(mutex_);
      auto const fits = [&](Block const* block) { return block->bytes >= bytes && block->bytes <= bytes + bytes / 4; };
      auto const found = std::find_if(free_.rbegin(), free_.rend(), fits);
      if (found != free_.rend()) {
        Block* const block = *found;
        free_.erase(std::next(found).base());
        idle_ -= block->bytes;
        return block;
      }
    }
    if (bytes >= kLeast) bytes += kSlack;
    void* fresh = std::malloc(sizeof(Block) + bytes);
    if (fresh == nullptr) {
      release();
      fresh = std::malloc(sizeof(Block) + bytes);
    }
    return fresh == nullptr ? nullptr : new (fresh) Block{bytes};
  }

  std::mutex mutex_;
  std::vector<Block*> free_;
  std::size_t idle_ = 0;
};

// A child made by fork() has the thread that called it alone. A mutex that another thread held would stay locked there.
void lock_for_fork() {
  FreeBlocks::instance().mutex().lock();
  memory().mutex().lock();
}
void unlock_after_fork() {
  memory().mutex().unlock();
  FreeBlocks::instance().mutex().unlock();
}
[[maybe_unused]] int const kForkHandlers = pthread_atfork(lock_for_fork, unlock_after_fork, unlock_after_fork);

void* take(void* blocks, std::size_t bytes) {
  return static_cast<FreeBlocks*>(blocks)->take(bytes);
}
void give(void* blocks, void* memory) {
  static_cast<FreeBlocks*>(blocks)->give(memory);
}

}  // namespace

void release_free_blocks() {
  FreeBlocks::instance().release();
}

template <class T>
AlignedArray<T> aligned_array(std::int64_t size) {
  if (size > std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(2 * sizeof(T)))
    throw Error(ErrorCode::out_of_memory, "memory: " + std::to_string(size) + " values do not fit in an address space");
  auto array = hwy::AllocateAligned<T>(to_size(std::max<std::int64_t>(size, 1)), take, give, &FreeBlocks::instance());
  if (!array)
    throw Error(ErrorCode::out_of_memory,
                "memory: " + std::to_string(size * static_cast<std::int64_t>(sizeof(T))) + " bytes are not available");
  advise_large_pages(array.get(), to_size(size) * sizeof(T));
  return array;
}

template AlignedArray<float> aligned_array(std::int64_t);
template AlignedArray<double> aligned_array(std::int64_t);
template AlignedArray<std::int64_t> aligned_array(std::int64_t);

}  // namespace monge::cpu
