// Matrices between memory and the lanes that hold them. A warp moves its matrices in 16-byte chunks, in their order in
// memory, through 32 R C floats of shared memory; what has no such chunks goes element by element.
#pragma once
#include "cuda/device/projection_elements.cuh"
#include "cuda/device/projection_tile.cuh"

namespace monge::cuda {

template <class L>
inline constexpr int kTileBytes = 32 * L::R* L::C * 4;  // Of a warp's staging memory.

/// This lane's chunks in memory order: chunk i of the lane is chunk 32 i + lane of the warp. visit(i, element, inside)
template <class L, class Visit>
__device__ __forceinline__ void for_each_chunk(BatchArguments const& view, std::int64_t first, std::int64_t batch,
                                               Visit&& visit) {
  constexpr int kPerMatrix = L::N * L::M / 4, kPerRow = L::M / 4;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  int const lane_matrix = lane / kPerMatrix;
  int const left = static_cast<int>(min(batch - first, static_cast<std::int64_t>(L::kPerWarp))) - lane_matrix;
  if (view.contiguous) {
    std::int64_t const offset = first * (L::N * L::M) + 4 * lane;
#pragma unroll
    for (int i = 0; i < L::kChunks; ++i) visit(i, offset + 128 * i, 32 * i / kPerMatrix < left);
    return;
  }
  int const lane_row = lane % kPerMatrix / kPerRow, lane_column = lane % kPerRow;
  std::int64_t const offset = (first + lane_matrix) * view.batch_stride + lane_row * view.row_stride + 4 * lane_column;
#pragma unroll
  for (int i = 0; i < L::kChunks; ++i) {
    int const matrix = 32 * i / kPerMatrix, row = 32 * i % kPerMatrix / kPerRow;
    visit(i, offset + matrix * view.batch_stride + row * view.row_stride, matrix < left);
  }
}

template <class L>
__device__ __forceinline__ void fetch(BatchArguments const& view, std::int64_t first, std::int64_t batch,
                                      float4 (&chunk)[L::kChunks]) {
  with_format(view, [&](auto const* data) {
    for_each_chunk<L>(view, first, batch, [&](int i, std::int64_t at, bool inside) {
      chunk[i] = inside ? load_four(data + at) : make_float4(0, 0, 0, 0);
    });
  });
}

/// Offsets in a warp's staging memory: exclusive or of a constant of the lane and one of the register.
template <class L>
struct TileStaging {
  float4* memory;
  int linear, tile;  // This lane's chunk in memory order; the first float that it holds.

  __device__ __forceinline__ TileStaging(float4* shared, TilePlace<L> const& place) : memory(shared) {
    linear = L::swizzled(static_cast<int>(threadIdx.x) % 32);
    tile = offset((place.matrix * L::N + (place.row ^ place.row_twist)) * L::M + (place.column ^ place.column_twist));
  }
  static __device__ __forceinline__ constexpr int offset(int element) {
    return L::swizzled(element / 4) * 4 + element % 4;
  }
  __device__ __forceinline__ float4& chunk(int i) const { return memory[linear ^ L::swizzled(32 * i)]; }
  /// The kPiece floats from register (r, c) on.
  __device__ __forceinline__ float* piece(int r, int c) const {
    return reinterpret_cast<float*>(memory) + (tile ^ offset(r * L::M + c));
  }

  __device__ __forceinline__ void put(float4 const (&from)[L::kChunks]) const {
#pragma unroll
    for (int i = 0; i < L::kChunks; ++i) chunk(i) = from[i];
  }
  __device__ __forceinline__ void get(float (&to)[L::R][L::C]) const {
#pragma unroll
    for (int r = 0; r < L::R; ++r) {
#pragma unroll
      for (int c = 0; c < L::C; c += L::kPiece) {
        if constexpr (L::kPiece == 4) {
          float4 const four = *reinterpret_cast<float4 const*>(piece(r, c));
          to[r][c] = four.x, to[r][c + 1] = four.y, to[r][c + 2] = four.z, to[r][c + 3] = four.w;
        } else {
          float2 const two = *reinterpret_cast<float2 const*>(piece(r, c));
          to[r][c] = two.x, to[r][c + 1] = two.y;
        }
      }
    }
  }
  /// The warp's matrices in memory order to the lanes that hold them.
  __device__ __forceinline__ void exchange(float4 const (&from)[L::kChunks], float (&to)[L::R][L::C]) const {
    __syncwarp();
    put(from);
    __syncwarp();
    get(to);
    __syncwarp();
  }
  /// value(r, c) of every lane to the warp's matrices.
  template <class Value>
  __device__ __forceinline__ void write(BatchArguments const& view, std::int64_t first, std::int64_t batch,
                                        Value&& value) const {
    __syncwarp();
#pragma unroll
    for (int r = 0; r < L::R; ++r) {
#pragma unroll
      for (int c = 0; c < L::C; c += L::kPiece) {
        if constexpr (L::kPiece == 4) {
          *reinterpret_cast<float4*>(piece(r, c)) =
              make_float4(value(r, c), value(r, c + 1), value(r, c + 2), value(r, c + 3));
        } else {
          *reinterpret_cast<float2*>(piece(r, c)) = make_float2(value(r, c), value(r, c + 1));
        }
      }
    }
    __syncwarp();
    with_format(view, [&](auto* data) {
      for_each_chunk<L>(view, first, batch, [&](int i, std::int64_t at, bool inside) {
        if (inside) store_four(data + at, chunk(i));
      });
    });
  }
};

/// Element by element; outside of rows x columns: `other`.
template <class L>
__device__ __forceinline__ void read_elements(float (&k)[L::R][L::C], BatchArguments const& view, std::int64_t matrix,
                                              bool inside, int rows, int columns, float other,
                                              TilePlace<L> const& place) {
#pragma unroll
  for (int r = 0; r < L::R; ++r) {
#pragma unroll
    for (int c = 0; c < L::C; ++c) {
      int const i = place.row_of(r), j = place.column_of(c);
      k[r][c] = inside && i < rows && j < columns
                    ? load_element(view, matrix * view.batch_stride + i * view.row_stride + j)
                    : other;
    }
  }
}
template <class L, class Value>
__device__ __forceinline__ void write_elements(BatchArguments const& view, std::int64_t matrix, bool inside, int rows,
                                               int columns, TilePlace<L> const& place, Value&& value) {
#pragma unroll
  for (int r = 0; r < L::R; ++r) {
#pragma unroll
    for (int c = 0; c < L::C; ++c) {
      int const i = place.row_of(r), j = place.column_of(c);
      float const x = value(r, c);
      if (inside && i < rows && j < columns)
        store_element(view, matrix * view.batch_stride + i * view.row_stride + j, x);
    }
  }
}

/// The kernels of sums that are all 1 get none: 2 KiB of arguments cost time at every launch.
struct NoMarginals {
  __host__ __device__ explicit NoMarginals(ProjectionMarginals const&) {}
};
template <ProjectionMode kMode>
using MarginalsOf = std::conditional_t<kMode == ProjectionMode::plain || kMode == ProjectionMode::guarded, NoMarginals,
                                       ProjectionMarginals>;
__device__ __forceinline__ ProjectionMarginals const* pointer_to(ProjectionMarginals const& marginals) {
  return &marginals;
}
__device__ __forceinline__ ProjectionMarginals const* pointer_to(NoMarginals const&) {
  return nullptr;
}

}  // namespace monge::cuda
