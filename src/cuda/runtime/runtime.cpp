#include "cuda/runtime/runtime.hpp"

#include <algorithm>
#include <functional>

#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "cuda/runtime/device_ranks.hpp"

namespace monge::cuda {

DeviceGuard::DeviceGuard(int index) {
  MONGE_CUDA_TRY(cudaGetDevice(&previous_));
  if (previous_ != index) {
    MONGE_CUDA_TRY(cudaSetDevice(index));
    changed_ = true;
  }
}

DeviceGuard::~DeviceGuard() {
  if (changed_) cudaSetDevice(previous_);
}

Stream::~Stream() {
  if (owned_) cudaStreamDestroy(stream_);
}

Runtime::Runtime(CudaOptions const& options, std::shared_ptr<Ranks> ranks)
    : index_(options.index), allocator_(options.allocator) {
  DeviceGuard const guard(index_);
  cudaDeviceProp properties;
  MONGE_CUDA_TRY(cudaGetDeviceProperties(&properties, index_));
  name_ = properties.name;
  multiprocessors_ = properties.multiProcessorCount;
  MONGE_CUDA_TRY(cudaDeviceGetAttribute(&float64_ratio_, cudaDevAttrSingleToDoublePrecisionPerfRatio, index_));
  capability_ = 10 * properties.major + properties.minor;
  memory_bytes_ = static_cast<std::int64_t>(properties.totalGlobalMem);
  // The default stream may still be writing inputs in device memory: even cudaMemcpy may return before its last bytes
  // have arrived.
  stream_ = std::make_unique<Stream>(options.stream ? Stream(static_cast<cudaStream_t>(options.stream))
                                                    : Stream(unsigned{cudaStreamDefault}));
  staging_ = PinnedArray<unsigned char>(4 * kMostStaged);
  capture_stream_ = std::make_unique<Stream>(cudaStreamNonBlocking);
  if (ranks) ranks_ = std::make_shared<DeviceRanks const>(std::move(ranks));
  if (allocator_.allocate) return;

  // A separate pool keeps freed memory, so a size that was allocated before needs no driver call. The device's default
  // pool, which the application may tune, stays unchanged.
  cudaMemPoolProps pool = {};
  pool.allocType = cudaMemAllocationTypePinned;
  pool.location.type = cudaMemLocationTypeDevice;
  pool.location.id = index_;
  MONGE_CUDA_TRY(cudaMemPoolCreate(&pool_, &pool));
  std::uint64_t keep = UINT64_MAX;
  cudaError_t const code = cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep);
  if (code != cudaSuccess) {
    cudaMemPoolDestroy(pool_);
    check(code, "cudaMemPoolSetAttribute");
  }
}

Runtime::~Runtime() {
  int previous = index_;
  cudaGetDevice(&previous);
  cudaSetDevice(index_);
  cudaStreamSynchronize(stream());
  ranks_.reset();
  stagings_.clear();
  if (pool_) cudaMemPoolDestroy(pool_);
  staging_ = {};
  stream_.reset();
  capture_stream_.reset();
  cudaSetDevice(previous);
}

std::string Runtime::instruction_set() const {
  return "sm_" + std::to_string(capability_);
}

void Runtime::wait() const {
  ++counters_.waits;
  MONGE_CUDA_TRY(cudaStreamSynchronize(stream()));
  staged_ = 0;
  if (ranks_) ranks_->check();
}

void* Runtime::staging(std::int64_t bytes) const {
  std::int64_t const aligned = (bytes + 15) / 16 * 16;
  if (staged_ + aligned > staging_.size()) wait();
  void* const result = staging_.data() + staged_;
  staged_ += aligned;
  return result;
}

void* Runtime::allocate(std::size_t bytes, cudaStream_t stream) const {
  bool const is_small = allocator_.allocate && bytes <= kMostOfSmall;
  bool const cuts = (arena_scopes_ > 0 || is_small) && stream == this->stream();
  return cuts ? cut_from_arena(bytes) : allocate_alone(bytes, stream);
}

void* Runtime::allocate_alone(std::size_t bytes, cudaStream_t stream) const {
  ++counters_.allocations;
  void* memory = nullptr;
  if (!allocator_.allocate) {
    MONGE_CUDA_TRY(cudaMallocFromPoolAsync(&memory, bytes, pool_, stream));
  } else {
    DeviceGuard const guard(index_);
    memory = allocator_.allocate(bytes, stream);
    if (memory == nullptr)
      throw Error(ErrorCode::out_of_memory,
                  "allocator: returned null; must return " + std::to_string(bytes) + " bytes of device memory");
  }
  memory_.add(static_cast<std::int64_t>(bytes));
  return memory;
}

void Runtime::release(void* memory, std::size_t bytes, cudaStream_t stream) const noexcept {
  auto const* const address = static_cast<unsigned char const*>(memory);
  auto const piece = std::find_if(arena_.begin(), arena_.end(), [&](ArenaPiece const& candidate) {
    return std::greater_equal<>()(address, candidate.data) && std::less<>()(address, candidate.data + candidate.bytes);
  });
  if (piece != arena_.end()) {
    if (--piece->in_use > 0 || (piece->open && arena_scopes_ > 0)) return;
    memory = piece->data;
    bytes = piece->bytes;
    stream = this->stream();
    arena_.erase(piece);
  }
  release_alone(memory, bytes, stream);  // The caller's function may release other memory of this runtime.
}

void* Runtime::cut_from_arena(std::size_t bytes) const {
  constexpr std::size_t kAlignment = 256, kFirst = std::size_t{1} << 20, kLargest = std::size_t{1} << 26;
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  bool const open = !arena_.empty() && arena_.back().open;
  if (!open || arena_.back().used + bytes > arena_.back().bytes) {
    // Without a scope pieces do not grow: a result that outlives the next call would keep a large one.
    bool const grows = open && arena_scopes_ > 0;
    std::size_t const size = std::max(bytes, grows ? std::min(2 * arena_.back().bytes, kLargest) : kFirst);
    arena_.reserve(arena_.size() + 1);
    auto* const data = static_cast<unsigned char*>(allocate_alone(size, stream()));
    arena_.push_back({data, size});
  }
  ArenaPiece& piece = arena_.back();
  void* const result = piece.data + piece.used;
  piece.used += bytes;
  ++piece.in_use;
  return result;
}

void Runtime::close_arena() const noexcept {
  for (ArenaPiece& piece : arena_) piece.open = false;
  auto const next = [&] { return std::ranges::find(arena_, 0, &ArenaPiece::in_use); };
  for (auto piece = next(); piece != arena_.end(); piece = next()) {
    ArenaPiece const unused = *piece;
    arena_.erase(piece);  // Before the caller's function, which may change the list.
    release_alone(unused.data, unused.bytes, stream());
  }
}

std::unique_ptr<Staging> Runtime::batch_staging(std::size_t bytes) const {
  auto const found = std::find_if(stagings_.begin(), stagings_.end(), [&](std::unique_ptr<Staging> const& staging) {
    return staging->bytes() >= bytes && staging->idle();
  });
  if (found == stagings_.end()) return std::make_unique<Staging>(bytes);
  std::unique_ptr<Staging> result = std::move(*found);
  stagings_.erase(found);
  return result;
}

void Runtime::give_back(std::unique_ptr<Staging> staging) const noexcept {
  try {
    stagings_.push_back(std::move(staging));
  } catch (std::bad_alloc const&) {
    return;  // The destructor frees the memory.
  }
  std::size_t kept = 0;
  std::erase_if(stagings_, [&](std::unique_ptr<Staging> const& own) {
    kept += own->bytes();
    return kept > kMostKeptStaging && own->idle();
  });
}

void Runtime::release_alone(void* memory, std::size_t bytes, cudaStream_t stream) const noexcept {
  memory_.subtract(static_cast<std::int64_t>(bytes));
  if (allocator_.release) {
    allocator_.release(memory, bytes, stream);
  } else {
    cudaFreeAsync(memory, stream);
  }
}

}  // namespace monge::cuda
