// One launch with two barriers of the grid. Elements of vectors belong to one thread throughout:
//   1. the means of start and image;
//   2. the residual, the newest differences, and the inner products of the least-squares problem;
//   3. its solution, by each block for itself, and the combination.
// Each thread adds its elements in turn, a block its threads, and every block all blocks, in fixed orders.
#include "cuda/entropic/mixture.hpp"

#include <algorithm>

#include "core/numbers.hpp"
#include "cuda/device/grid.cuh"
#include "cuda/device/numerics.cuh"
#include "cuda/launch/sizes.hpp"
#include "cuda/runtime/check.hpp"
#include "cuda/vectors/vectors.hpp"

namespace monge::cuda {
namespace {

inline constexpr int kMixThreads = 512;
/// Sums of the first part; and of the second, the inner product with the last residual included.
inline constexpr int kMeans = 2, kProducts = kMixedDifferences + 1;

struct ImageArrays {
  double *f, *g, *residual;
};

struct MixArguments {
  int rows, columns;
  int count, newest;  // Numbers of differences, and the place of the newest, which counts.
  double eps, mass, first_mean;
  double const *weight, *root, *image_f, *image_g;
  double *start, *f, *g;
  ImageArrays last;
  ImageArrays difference[kMixedDifferences];
  MixingSums const* sums;
  MixingSums* next_sums;
  double* partials;   // kMeans + kProducts for each block.
  unsigned* arrived;  // The counter of barrier_of_blocks(), and its value before the launch.
  unsigned arrived_before;
};

/// Writes the sum over the threads of a block.
__device__ __forceinline__ void write_sum(double value, double* out) {
  double const sum = block_sum<kMixThreads>(value);
  if (threadIdx.x == 0) *out = sum;
  __syncthreads();  // block_sum() uses the same memory again.
}

/// The sums over all blocks, for all threads. Each warp adds one.
template <int kCount>
__device__ __forceinline__ void join_sums(double const* partials, double (&shared)[kCount]) {
  int const warp = static_cast<int>(threadIdx.x) / 32, blocks = static_cast<int>(gridDim.x);
  if (warp < kCount) {
    double sum = 0;
    for (int b = static_cast<int>(threadIdx.x) % 32; b < blocks; b += 32) sum += __ldcg(partials + warp * blocks + b);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) shared[warp] = sum;
  }
  __syncthreads();
}

template <class Work>
__device__ __forceinline__ void for_each_own(int size, Work const& work) {
  for (int i = static_cast<int>(blockIdx.x) * kMixThreads + static_cast<int>(threadIdx.x); i < size;
       i += static_cast<int>(gridDim.x) * kMixThreads)
    work(i);
}

__global__ void __launch_bounds__(kMixThreads) mix_kernel(MixArguments const arguments) {
  __shared__ double means[kMeans], products[kProducts], multiples[kMixedDifferences], shift;
  __shared__ MixingSums now;
  auto const& [rows, columns, count, newest, eps, mass, first_mean, weight, root, image_f, image_g, start, f, g, last,
               difference, sums, next_sums, partials, arrived, arrived_before] = arguments;
  int const blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);

  double of_start = 0, of_image = 0;
  for_each_own(columns, [&](int j) {
    of_start += weight[j] * start[j];
    of_image += weight[j] * image_g[j];
  });
  write_sum(of_start, partials + block);
  write_sum(of_image, partials + blocks + block);
  barrier_of_blocks(arrived, arrived_before + gridDim.x);
  join_sums(partials, means);
  double const mean = means[1] / mass, constant = (means[0] - means[1]) / mass;

  double sum[kProducts] = {};
  for_each_own(columns, [&](int j) {
    double const image = image_g[j], b = root[j];
    double const residual = b - (b > 0 ? b * exp((start[j] - (image + constant)) / eps) : 0.0);
    if (count > 0) {
      double const change = residual - last.residual[j];
      difference[newest].residual[j] = change;
      difference[newest].g[j] = image - last.g[j];
#pragma unroll
      for (int k = 0; k < kMixedDifferences; ++k) {
        if (k < count) sum[k] += change * difference[k].residual[j];
      }
      sum[kMixedDifferences] += change * residual;
    }
    last.residual[j] = residual;
    last.g[j] = image;
  });
  for_each_own(rows, [&](int i) {
    double const image = image_f[i];
    if (count > 0) difference[newest].f[i] = image - last.f[i];
    last.f[i] = image;
  });
  double* const of_products = partials + kMeans * blocks;
#pragma unroll
  for (int k = 0; k < kProducts; ++k) write_sum(sum[k], of_products + k * blocks + block);
  barrier_of_blocks(arrived, arrived_before + 2 * gridDim.x);
  join_sums(of_products, products);

  if (threadIdx.x == 0) {
    now = *sums;
    if (count > 0) {
      now.add(newest, count, products, products[kMixedDifferences], mean);
    } else {
      now.last_mean = mean;
    }
    now.solve(count, multiples);
    shift = now.shift(count, multiples, first_mean, eps);
    if (block == 0) *next_sums = now;
  }
  __syncthreads();
  for_each_own(columns, [&](int j) {
    double value = last.g[j] + shift;
    for (int k = 0; k < count; ++k) value -= multiples[k] * difference[k].g[j];
    g[j] = start[j] = value;
  });
  for_each_own(rows, [&](int i) {
    double value = last.f[i] - shift;
    for (int k = 0; k < count; ++k) value -= multiples[k] * difference[k].f[i];
    f[i] = value;
  });
}

/// Sums of the least-squares problem, before and after a combination in turn.
struct MixMemory {
  explicit MixMemory(SharedRuntime const& runtime, int blocks)
      : sums(runtime, 2), partials(runtime, std::int64_t{blocks} * (kMeans + kProducts)), arrived(runtime, 1) {
    MONGE_CUDA_TRY(cudaMemsetAsync(sums.data(), 0, to_size(sums.bytes()), runtime->stream()));
    MONGE_CUDA_TRY(cudaMemsetAsync(arrived.data(), 0, to_size(arrived.bytes()), runtime->stream()));
  }

  DeviceArray<MixingSums> sums;
  DeviceArray<double> partials;
  DeviceArray<unsigned> arrived;
  unsigned launches = 0;
};

ImageArrays arrays_of(SweepImage const& image) {
  if (!image.f) return {};
  return {on_device(*image.f).data(), on_device(*image.g).data(), on_device(*image.residual).data()};
}

}  // namespace

void mix(SharedRuntime const& runtime, Vector const& image_f, Vector const& image_g, Mixture& mixture, Vector& f,
         Vector& g) {
  DeviceGuard const guard(runtime->index());
  int const rows = on_device(f).size(), columns = on_device(g).size();
  int const blocks = std::min(runtime->multiprocessors(), divided_up(std::max(rows, columns), kMixThreads));
  if (!mixture.memory) mixture.memory = std::make_shared<MixMemory>(runtime, blocks);
  auto& memory = *static_cast<MixMemory*>(mixture.memory.get());
  // Combinations have nearly the means of images, so they keep the typical values.
  double const of_f = on_device(image_f).typical, of_g = on_device(image_g).typical;
  MixArguments arguments{
      .rows = rows,
      .columns = columns,
      .count = mixture.count(),
      .newest = mixture.count() > 0 ? static_cast<int>(mixture.newest()) : 0,
      .eps = mixture.eps,
      .mass = mixture.mass,
      .first_mean = mixture.first_mean,
      .weight = on_device(*mixture.weight).data(),
      .root = on_device(*mixture.root).data(),
      .image_f = on_device(image_f).data(),
      .image_g = on_device(image_g).data(),
      .start = on_device(*mixture.start).data(),
      .f = on_device(f).data(),
      .g = on_device(g).data(),
      .last = arrays_of(mixture.last),
      .difference = {},
      .sums = memory.sums.data() + memory.launches % 2,
      .next_sums = memory.sums.data() + (memory.launches + 1) % 2,
      .partials = memory.partials.data(),
      .arrived = memory.arrived.data(),
      .arrived_before = 2 * memory.launches * static_cast<unsigned>(blocks),
  };
  for (int k = 0; k < arguments.count; ++k) arguments.difference[k] = arrays_of(mixture.differences[to_size(k)]);
  void* parameters[] = {&arguments};
  MONGE_CUDA_TRY(cudaLaunchCooperativeKernel(reinterpret_cast<void const*>(mix_kernel),
                                             dim3(static_cast<unsigned>(blocks)), dim3(kMixThreads), parameters, 0,
                                             runtime->stream()));
  ++memory.launches;
  on_device(f).typical = of_f;
  on_device(g).typical = on_device(*mixture.start).typical = of_g;
}

}  // namespace monge::cuda
