// The maps of mHC layers with any number of streams but 4 (kernels/mhc.cuh), around the batched projection: a kernel
// before it makes the gates and the logits, in the place of the result, and for gradients a kernel after it the rest.
#include <algorithm>

#include "cuda/device/numerics.cuh"
#include "cuda/projection/device/tile.cuh"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {
namespace {

constexpr int kLanes = 32, kTokens = 8;  // A block has a column of `mixes` a lane and takes kTokens tokens at once.

__device__ __forceinline__ float sigmoid(float x) {
  return fast_reciprocal(1 + fast_exp2(-x * kLog2E));
}
/// The map of a column: 0 is pre, 1 is post, 2 is res.
__device__ __forceinline__ int map_of(int column, int streams) {
  return min(column / streams, 2);
}

/// The logits of res, and with pre, which is null for gradients, the gates.
__global__ void split(__grid_constant__ MhcArguments const a, float* logits, std::int64_t stride) {
  int const streams = a.streams, columns = streams * (streams + 2);
  std::int64_t const count = a.projection.batch * columns, step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  wait_for_previous_kernel();
  for (std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; e < count; e += step) {
    std::int64_t const token = e / columns;
    int const k = static_cast<int>(e % columns), map = map_of(k, streams);
    if (map < 2 && a.pre == nullptr) continue;
    float const z = fmaf(a.scale[map], a.mixes[token * a.mixes_stride + k], a.base[k]);
    if (map == 0) a.pre[token * streams + k] = sigmoid(z) + a.pre_epsilon;
    if (map == 1) a.post[token * streams + k - streams] = a.post_factor * sigmoid(z);
    if (map == 2) logits[token * stride + k - 2 * streams] = z;
  }
}

/// From the gradient in the logits of res, in the place of that in `mixes`, to all gradients. partial gets the sums
/// over the tokens of each row of blocks: of base, then of scale by column.
__global__ void join(__grid_constant__ MhcArguments const a) {
  int const streams = a.streams, columns = streams * (streams + 2);
  int const k = static_cast<int>(blockIdx.x) * kLanes + static_cast<int>(threadIdx.x), map = map_of(k, streams);
  __shared__ float sums[2][kTokens][kLanes];
  wait_for_previous_kernel();
  float of_base = 0, of_scale = 0;
  if (k < columns) {
    float const scale = a.scale[map];
    for (std::int64_t token = blockIdx.y * kTokens + threadIdx.y; token < a.projection.batch;
         token += gridDim.y * kTokens) {
      float const mix = a.mixes[token * a.mixes_stride + k];
      float& to = a.d_mixes[token * a.d_mixes_stride + k];
      float d;
      if (map < 2) {
        float const s = sigmoid(fmaf(scale, mix, a.base[k]));
        float const given = map == 0 ? a.d_pre[token * streams + k] : a.d_post[token * streams + k - streams];
        d = given * (map == 0 ? 1.0f : a.post_factor) * s * (1 - s);
      } else {
        d = to;
      }
      of_base += d;
      of_scale = fmaf(d, mix, of_scale);
      to = scale * d;
    }
  }
  sums[0][threadIdx.y][threadIdx.x] = of_base;
  sums[1][threadIdx.y][threadIdx.x] = of_scale;
  __syncthreads();
  if (threadIdx.y > 1 || k >= columns) return;
  float sum = 0;
  for (int y = 0; y < kTokens; ++y) sum += sums[threadIdx.y][y][threadIdx.x];
  a.partial[(std::int64_t{2} * blockIdx.y + threadIdx.y) * columns + k] = sum;
}

/// Adds the rows of blocks of join(). One block, a warp a column.
__global__ void add_rows(__grid_constant__ MhcArguments const a, int rows) {
  int const columns = a.streams * (a.streams + 2);
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const warps = static_cast<int>(blockDim.x) / 32;
  __shared__ float scales[3][32];
  wait_for_previous_kernel();
  float of_scale[3] = {0, 0, 0};
  for (int k = warp; k < columns; k += warps) {
    float sum[2] = {0, 0};
    for (int row = lane; row < rows; row += 32) {
      for (int part = 0; part < 2; ++part) sum[part] += a.partial[(std::int64_t{2} * row + part) * columns + k];
    }
    for (float& x : sum) x = warp_sum(x);
    if (lane == 0) a.d_base[k] = sum[0];
    for (int map = 0; map < 3; ++map) of_scale[map] += map_of(k, a.streams) == map ? sum[1] : 0;
  }
  if (lane < 3) scales[lane][warp] = of_scale[lane];
  __syncthreads();
  if (threadIdx.x >= 3) return;
  float sum = 0;
  for (int w = 0; w < warps; ++w) sum += scales[threadIdx.x][w];
  a.d_scale[threadIdx.x] = sum;
}

}  // namespace

int mhc_rows(std::int64_t tokens) {
  return static_cast<int>(std::min<std::int64_t>(256, (tokens + 4 * kTokens - 1) / (4 * kTokens)));
}

void mhc_split(MhcArguments const& arguments, float* logits, std::int64_t stride, int multiprocessors,
               cudaStream_t stream) {
  std::int64_t const elements = arguments.projection.batch * arguments.streams * (arguments.streams + 2);
  int const blocks = static_cast<int>(std::min<std::int64_t>(multiprocessors * 8, (elements + 255) / 256));
  launch_chained(split, blocks, 256, 0, stream, arguments, logits, stride);
}

void mhc_join(MhcArguments const& arguments, cudaStream_t stream) {
  int const columns = arguments.streams * (arguments.streams + 2), rows = mhc_rows(arguments.projection.batch);
  dim3 const grid(static_cast<unsigned>((columns + kLanes - 1) / kLanes), static_cast<unsigned>(rows));
  join<<<grid, dim3(kLanes, kTokens), 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
  launch_chained(add_rows, 1, 1024, 0, stream, arguments, rows);
}

}  // namespace monge::cuda
