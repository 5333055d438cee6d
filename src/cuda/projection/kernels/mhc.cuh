// The three maps of an mHC layer and their gradient. A thread takes one token at a time: it reads 96 bytes and writes
// 96 (backward: reads 192 and writes 96). Sums over tokens are taken over the tokens of a thread, then over its warp,
// then over its block; the last block to finish adds up the blocks. The order is always the same.
#pragma once
#include "cuda/projection/kernels/tile.cuh"
#include "cuda/projection/kernels/tile_backward.cuh"

namespace monge::cuda {

using MhcLayout = TileLayout<4, 4, 1, 1>;

/// Four neighbouring floats, in one access if `vector`: the address is then a multiple of 16 bytes.
__device__ __forceinline__ void read_four(float* to, float const* from, bool vector) {
  if (vector) {
    float4 const four = *reinterpret_cast<float4 const*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = from[i];
  }
}
__device__ __forceinline__ void write_four(float* to, float const* from, bool vector) {
  if (vector) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = from[i];
  }
}

__device__ __forceinline__ float sigmoid(float x) {
  return fast_reciprocal(1 + fast_exp2(-x * kLog2E));
}

/// Reads the logits of a token, scale * mix + base, and writes its projection.
struct MhcRows {
  MhcArguments const& arguments;
  float const* mix;
  float* res;
  bool inside;
  __device__ __forceinline__ void get_row(int r, float (&to)[4]) const {
    read_four(to, mix + 8 + 4 * r, arguments.vector);
#pragma unroll
    for (int c = 0; c < 4; ++c) to[c] = fmaf(arguments.scale[2], to[c], arguments.base[8 + 4 * r + c]);
  }
  __device__ __forceinline__ void put_row(int r, float const (&from)[4]) const {
    if (inside) write_four(res + 4 * r, from, arguments.vector);
  }
};

template <ProjectionMode kMode>
__global__ void __launch_bounds__(64) mhc_forward_kernel(__grid_constant__ MhcArguments const arguments,
                                                         __grid_constant__ MarginalsOf<kMode> const marginals) {
  std::int64_t const token = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  std::int64_t const tokens = arguments.projection.batch;
  // Lanes beyond the end repeat the last token, because the steps vote over whole warps.
  std::int64_t const read = token < tokens ? token : tokens - 1;
  float const* const mix = arguments.mixes + read * arguments.mixes_stride;
  bool const vector = arguments.vector;
  wait_for_previous_kernel();
  float gates[8];
  read_four(gates, mix, vector);
  read_four(gates + 4, mix + 4, vector);
  MhcRows const rows{arguments, mix, arguments.res + 16 * token, token < tokens};
  project_tile<MhcLayout, kMode, false>(rows, rows, arguments.projection, pointer_to(marginals));
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    float const s = sigmoid(fmaf(arguments.scale[k / 4], gates[k], arguments.base[k]));
    gates[k] = k < 4 ? s + arguments.pre_epsilon : arguments.post_factor * s;
  }
  if (token >= tokens) return;
  write_four(arguments.pre + 4 * token, gates, vector);
  write_four(arguments.post + 4 * token, gates + 4, vector);
}

/// The gradient in the gates of one token. Adds to `sums`: entries 0 to 2 are of scale, the others of base.
__device__ __forceinline__ void add_gate_gradients(float (&sums)[kMhcSums], MhcArguments const& arguments,
                                                   float const* mix, std::int64_t token, bool vector, bool inside) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    float gates[4], gradient[4];
    read_four(gates, mix + 4 * part, vector);
    read_four(gradient, (part == 0 ? arguments.d_pre : arguments.d_post) + 4 * token, vector);
    float const scale = arguments.scale[part];
    float out[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float const s = sigmoid(fmaf(scale, gates[k], arguments.base[4 * part + k]));
      float const d = inside ? gradient[k] * (part == 0 ? 1.0f : arguments.post_factor) * s * (1 - s) : 0.0f;
      sums[3 + 4 * part + k] += d;
      sums[part] = fmaf(d, gates[k], sums[part]);
      out[k] = scale * d;
    }
    if (inside) write_four(arguments.d_mixes + token * arguments.d_mixes_stride + 4 * part, out, vector);
  }
}

template <ProjectionMode kMode, bool kShared>
__global__ void __launch_bounds__(256, 1) mhc_backward_kernel(__grid_constant__ MhcArguments const arguments,
                                                              __grid_constant__ MarginalsOf<kMode> const marginals) {
  __shared__ float partial[8][32];
  __shared__ bool last;
  bool const vector = arguments.vector;
  std::int64_t const tokens = arguments.projection.batch;
  int const warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  int const warps = static_cast<int>(blockDim.x) / 32;
  TileHistory<MhcLayout, kShared> history;
  history.place(arguments.projection.history, warp * arguments.projection.team_chunks,
                static_cast<std::int64_t>(blockIdx.x) * warps + warp, arguments.projection.history_chunks);
  wait_for_previous_kernel();
  float sums[kMhcSums];
#pragma unroll
  for (int k = 0; k < kMhcSums; ++k) sums[k] = 0;
  std::int64_t const stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x - lane; base < tokens;
       base += stride) {
    bool const inside = base + lane < tokens;
    std::int64_t const token = inside ? base + lane : tokens - 1;
    float const* const mix = arguments.mixes + token * arguments.mixes_stride;
    float x[4][4], gradient[4][4];
    MhcRows const rows{arguments, mix, nullptr, false};
#pragma unroll
    for (int r = 0; r < 4; ++r) rows.get_row(r, x[r]);
#pragma unroll
    for (int r = 0; r < 4; ++r) read_four(gradient[r], arguments.d_res + 16 * token + 4 * r, vector);
    differentiate<MhcLayout, kMode, false>(x, gradient, arguments.projection, pointer_to(marginals), history);
    float const scale = arguments.scale[2];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float logits[4], out[4];
      read_four(logits, mix + 8 + 4 * r, vector);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float const d = inside ? x[r][c] : 0.0f;
        sums[11 + 4 * r + c] += d;
        sums[2] = fmaf(d, logits[c], sums[2]);
        out[c] = scale * d;
      }
      if (inside) write_four(arguments.d_mixes + token * arguments.d_mixes_stride + 8 + 4 * r, out, vector);
    }
    add_gate_gradients(sums, arguments, mix, token, vector, inside);
  }
  // After the butterfly every lane has all sums. Lane k keeps the k-th.
  float mine = 0;
#pragma unroll
  for (int k = 0; k < kMhcSums; ++k) {
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) sums[k] += __shfl_xor_sync(0xffffffffu, sums[k], mask);
    if (lane == k) mine = sums[k];
  }
  partial[warp][lane] = mine;
  __syncthreads();
  if (warp == 0) {
    for (int other = 1; other < warps; ++other) mine += partial[other][lane];
    arguments.partial[static_cast<std::int64_t>(blockIdx.x) * 32 + lane] = mine;
  }
  // The block that finishes last adds up all of them.
  if (threadIdx.x < 32) {
    __threadfence();
    __syncwarp();
    if (threadIdx.x == 0) last = atomicAdd(arguments.blocks_done, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  float total = 0;
  constexpr int kAtOnce = 16;
  for (int block = warp; block < static_cast<int>(gridDim.x); block += kAtOnce * warps) {
    float part[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      int const at = block + k * warps;
      part[k] = at < static_cast<int>(gridDim.x) ? __ldcg(arguments.partial + static_cast<std::int64_t>(at) * 32 + lane)
                                                 : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) total += part[k];
  }
  partial[warp][lane] = total;
  __syncthreads();
  if (warp == 0 && lane < kMhcSums) {
    for (int other = 1; other < warps; ++other) total += partial[other][lane];
    (lane < 3 ? arguments.d_scale[lane] : arguments.d_base[lane - 3]) = total;
  }
  if (threadIdx.x == 0) *arguments.blocks_done = 0;
}

}  // namespace monge::cuda
