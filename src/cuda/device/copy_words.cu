#include "cuda/launch/copy_words.hpp"

#include "cuda/device/source.cuh"
#include "cuda/launch/sizes.hpp"

namespace monge::cuda {
namespace {

constexpr int kCopyThreads = 256;
constexpr int kWordsPerBlock = 4 * kCopyThreads;

template <class Source>
__global__ void __launch_bounds__(kCopyThreads) copy_words_kernel(Source const source) {
  Slice<CopyArguments> const slice = slice_of(source);
  CopyArguments const& arguments = slice.arguments;
  start_next_kernel();
  wait_for_previous_kernel();
  std::int64_t const first = static_cast<std::int64_t>(slice.block) * kWordsPerBlock;
  std::int64_t const end = min(first + kWordsPerBlock, arguments.count);
  for (std::int64_t i = first + threadIdx.x; i < end; i += kCopyThreads) arguments.to[i] = arguments.from[i];
}

}  // namespace

void copy_words(void const* from, void* to, std::int64_t bytes, Queue const& queue) {
  CopyArguments const arguments{static_cast<std::uint64_t const*>(from), static_cast<std::uint64_t*>(to),
                                bytes / static_cast<std::int64_t>(sizeof(std::uint64_t))};
  queue.launch(Kernel<CopyArguments>{copy_words_kernel, copy_words_kernel},
               {divided_up(arguments.count, kWordsPerBlock), kCopyThreads}, arguments);
}

}  // namespace monge::cuda
