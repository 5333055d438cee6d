// The way of matrices between memory and the lanes that hold them, through shared memory of R C floats a lane.
// TileStaging is for matrices of a tile's full size whose address and strides allow four elements an access: a team
// moves them in chunks of four, in the order of memory, and sorts them in shared memory. ElementRows is for all others.
#pragma once
#include "cuda/projection/device/elements.cuh"
#include "cuda/projection/device/tile.cuh"

namespace monge::cuda {

template <class L>
inline constexpr int kTileBytes = L::kThreads* L::R* L::C * 4;  // Bytes of a team's staging memory.

/// Calls visit(i, pointer, inside) for each chunk that this lane moves. Its chunk i is chunk kThreads i + lane of the
/// team, in the order of memory. Almost all tiles are whole and contiguous; one address and constant offsets serve
/// them.
template <class L, class T, class Visit>
__device__ __forceinline__ void for_each_chunk(T* data, BatchArguments const& view, std::int64_t first,
                                               std::int64_t batch, Visit&& visit) {
  constexpr int kPerMatrix = L::N * L::M / 4, kPerRow = L::M / 4;
  int const lane = static_cast<int>(threadIdx.x) % L::kThreads;
  bool const whole = batch - first >= L::kPerTeam;
  if (view.contiguous && whole) {
    T* const at = data + first * (L::N * L::M) + 4 * lane;
#pragma unroll
    for (int i = 0; i < L::kChunks; ++i) visit(i, at + 4 * L::kThreads * i, true);
    return;
  }
  int const lane_matrix = lane / kPerMatrix;
  int const left = whole ? L::kPerTeam : static_cast<int>(batch - first) - lane_matrix;
  T* const at = data + (first + lane_matrix) * view.batch_stride + lane % kPerMatrix / kPerRow * view.row_stride +
                4 * (lane % kPerRow);
#pragma unroll
  for (int i = 0; i < L::kChunks; ++i) {
    int const matrix = L::kThreads * i / kPerMatrix, row = L::kThreads * i % kPerMatrix / kPerRow;
    visit(i, at + matrix * view.batch_stride + row * view.row_stride, matrix < left);
  }
}

template <class L>
__device__ __forceinline__ void fetch(BatchArguments const& view, std::int64_t first, std::int64_t batch,
                                      float4 (&chunk)[L::kChunks]) {
  with_type(view, [&](auto const* data) {
    for_each_chunk<L>(data, view, first, batch, [&](int i, auto const* at, bool inside) {
      chunk[i] = inside ? load_four(at) : make_float4(0, 0, 0, 0);
    });
  });
}

/// Prefetches a team's contiguous matrices to the L2 cache.
template <class L>
__device__ __forceinline__ void fetch_to_cache(BatchArguments const& view, std::int64_t first, std::int64_t batch) {
  if (!view.contiguous || first + L::kPerTeam > batch) return;
  with_type(view, [&](auto const* data) {
    constexpr int kPiece = 64 / static_cast<int>(sizeof(*data));  // Elements of one prefetch.
    auto const* const at = data + first * (L::N * L::M) + kPiece * (threadIdx.x % L::kThreads);
#pragma unroll
    for (int i = 0; i < L::kThreads * L::R * L::C; i += L::kThreads * kPiece) prefetch(at + i);
  });
}

/// A contiguous 4 x 4 matrix, read by one lane alone. Its four loads share the sectors of L1, its four stores those of
/// L2.
__device__ __forceinline__ void load_matrix(float4 const* from, float (&x)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float4 const row = from[i];
    x[i][0] = row.x, x[i][1] = row.y, x[i][2] = row.z, x[i][3] = row.w;
  }
}
__device__ __forceinline__ void store_matrix(float4* to, float const (&x)[4][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = make_float4(x[i][0], x[i][1], x[i][2], x[i][3]);
}

/// A team's staging memory. An entry lies at a constant of the lane XOR a constant of the register that holds it
/// (TileLayout::swizzled). Bits of the register's constant that no lane's constant has are added instead: so they are
/// the immediate offset of the instruction and cost nothing.
template <class L>
class TileStaging {
 public:
  __device__ __forceinline__ TileStaging(float4* shared, TilePlace<L> const& place)
      : memory_(shared),
        linear_(L::swizzled(static_cast<int>(threadIdx.x) % L::kThreads)),
        tile_(offset((place.matrix * L::N + (place.row ^ place.row_twist)) * L::M +
                     (place.column ^ place.column_twist))) {}

  __device__ __forceinline__ void put(float4 const (&from)[L::kChunks]) const {
#pragma unroll
    for (int i = 0; i < L::kChunks; ++i) chunk(i) = from[i];
  }
  /// Row r of this lane's registers.
  __device__ __forceinline__ void get_row(int r, float (&to)[L::C]) const {
#pragma unroll
    for (int c = 0; c < L::C; c += L::kPiece) {
      if constexpr (L::kPiece == 4) {
        float4 const four = *reinterpret_cast<float4 const*>(piece(r, c));
        to[c] = four.x, to[c + 1] = four.y, to[c + 2] = four.z, to[c + 3] = four.w;
      } else {
        float2 const two = *reinterpret_cast<float2 const*>(piece(r, c));
        to[c] = two.x, to[c + 1] = two.y;
      }
    }
  }
  __device__ __forceinline__ void put_row(int r, float const (&from)[L::C]) const {
#pragma unroll
    for (int c = 0; c < L::C; c += L::kPiece) {
      if constexpr (L::kPiece == 4) {
        *reinterpret_cast<float4*>(piece(r, c)) = make_float4(from[c], from[c + 1], from[c + 2], from[c + 3]);
      } else {
        *reinterpret_cast<float2*>(piece(r, c)) = make_float2(from[c], from[c + 1]);
      }
    }
  }
  /// Exchanges chunks in the order of memory for the entries of each lane.
  __device__ __forceinline__ void exchange(float4 const (&from)[L::kChunks], float (&to)[L::R][L::C]) const {
    put(from);
    sync_team<L>();
#pragma unroll
    for (int r = 0; r < L::R; ++r) get_row(r, to[r]);
    sync_team<L>();
  }
  /// Writes the matrices that the lanes have put here to memory.
  __device__ __forceinline__ void send(BatchArguments const& view, std::int64_t first, std::int64_t batch) const {
    sync_team<L>();
    with_type(view, [&](auto* data) {
      for_each_chunk<L>(data, view, first, batch, [&](int i, auto* at, bool inside) {
        if (inside) store_four(at, chunk(i));
      });
    });
    sync_team<L>();
  }

 private:
  static __device__ __forceinline__ constexpr int offset(int element) {
    return L::swizzled(element / 4) * 4 + element % 4;
  }
  /// The bits that are set in the tile_ of some lane.
  static constexpr int kTileBits = [] {
    int bits = 0;
    for (int matrix = 0; matrix < L::kPerTeam; ++matrix) {
      for (int p = 0; p < L::kRowLanes; ++p) {
        for (int q = 0; q < L::kColumnLanes; ++q) {
          int const row = p * L::R ^ L::row_twist(q), column = q * L::C ^ L::column_twist(p);
          int const element = (matrix * L::N + row) * L::M + column;
          bits |= L::swizzled(element / 4) * 4 + element % 4;
        }
      }
    }
    return bits;
  }();
  __device__ __forceinline__ float4& chunk(int i) const {
    int const swizzled = L::swizzled(L::kThreads * i);
    return memory_[(linear_ ^ (swizzled & (L::kThreads - 1))) + (swizzled & ~(L::kThreads - 1))];
  }
  /// The kPiece floats from register (r, c) on.
  __device__ __forceinline__ float* piece(int r, int c) const {
    int const at = offset(r * L::M + c);
    return reinterpret_cast<float*>(memory_) + (tile_ ^ (at & kTileBits)) + (at & ~kTileBits);
  }

  float4* memory_;
  int linear_, tile_;  // This lane's chunk in memory order; the first float that it holds.
};

/// A team's matrices of any shape, strides and address. They pass through the staging memory, one after the other
/// without gaps. Entries outside of rows x columns are read as `other`.
template <class L>
struct ElementRows {
  BatchArguments const& view;
  TilePlace<L> const& place;
  std::int64_t first, batch;
  int rows, columns;
  float* staging;
  float other = 0;

  __device__ __forceinline__ std::int64_t matrix() const { return first + place.matrix; }
  __device__ __forceinline__ bool inside() const { return matrix() < batch; }
  /// Calls visit(e, pointer, four) for this lane's share of the team's elements; with `four`, for e to e + 3 at once.
  template <class Visit>
  __device__ __forceinline__ void for_each_element(Visit&& visit) const {
    with_type(view, [&](auto* data) {
      int const lane = static_cast<int>(threadIdx.x) % L::kThreads, cells = rows * columns;
      int const count = (batch - first < L::kPerTeam ? static_cast<int>(batch - first) : L::kPerTeam) * cells;
      auto* const from = data + first * view.batch_stride;
      bool const four = view.contiguous && reinterpret_cast<std::uintptr_t>(from) % (4 * sizeof(*from)) == 0;
      int const fours = four ? count / 4 * 4 : 0;
#pragma unroll 4
      for (int e = 4 * lane; e < fours; e += 4 * L::kThreads) visit(e, from + e, std::true_type{});
#pragma unroll 1
      for (int e = fours + lane; e < count; e += L::kThreads) {
        int const row = e / columns;
        visit(e, from + row / rows * view.batch_stride + row % rows * view.row_stride + e % columns, std::false_type{});
      }
    });
  }
  /// Call before the first get_row().
  __device__ __forceinline__ void load() const {
    for_each_element([&](int e, auto const* from, auto four) {
      if constexpr (decltype(four)::value) {
        *reinterpret_cast<float4*>(staging + e) = load_four(from);
      } else {
        staging[e] = load_one(from);
      }
    });
    sync_team<L>();
  }
  /// Call after the last put_row().
  __device__ __forceinline__ void store() const {
    sync_team<L>();
    for_each_element([&](int e, auto* to, auto four) {
      if constexpr (decltype(four)::value) {
        store_four(to, *reinterpret_cast<float4 const*>(staging + e));
      } else {
        store_one(to, staging[e]);
      }
    });
    sync_team<L>();
  }
  /// Calls visit(c, entry, there) for each entry of row r of this lane's registers.
  template <class Visit>
  __device__ __forceinline__ void for_each_of_row(int r, Visit&& visit) const {
    int const i = place.row_of(r);
    float* const row = staging + (place.matrix * rows + i) * columns;
#pragma unroll
    for (int c = 0; c < L::C; ++c) {
      int const j = place.column_of(c);
      visit(c, row[j], inside() && i < rows && j < columns);
    }
  }
  __device__ __forceinline__ void get_row(int r, float (&to)[L::C]) const {
    for_each_of_row(r, [&](int c, float const& entry, bool there) { to[c] = there ? entry : other; });
  }
  __device__ __forceinline__ void put_row(int r, float const (&from)[L::C]) const {
    for_each_of_row(r, [&](int c, float& entry, bool there) {
      if (there) entry = from[c];
    });
  }
};

/// The logits of a team's matrices; the dustbin's score where the dustbin has its row and column.
template <class L>
__device__ __forceinline__ ElementRows<L> logit_elements(ProjectionArguments const& arguments,
                                                         TilePlace<L> const& place, std::int64_t first,
                                                         float* staging) {
  return {arguments.logits,       place, first, arguments.batch, arguments.logit_rows, arguments.logit_columns, staging,
          arguments.dustbin_score};
}

/// For kernels whose row and column sums are all 1: 2 KiB of marginals as arguments would cost time at every launch.
struct NoMarginals {
  __host__ __device__ explicit NoMarginals(SumTargets const&) {}
};
template <ProjectionMode kMode>
using MarginalsOf =
    std::conditional_t<kMode == ProjectionMode::plain || kMode == ProjectionMode::guarded, NoMarginals, SumTargets>;
__device__ __forceinline__ SumTargets const* pointer_to(SumTargets const& marginals) {
  return &marginals;
}
__device__ __forceinline__ SumTargets const* pointer_to(NoMarginals const&) {
  return nullptr;
}

}  // namespace monge::cuda
