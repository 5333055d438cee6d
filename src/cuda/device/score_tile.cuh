// Scores of 64 rows and 64 columns in float or double: __device__ only.
//
//   score_ij = <x'_i, y'_j> (products), |x'_i - y'_j|^2 (differences), the p-norm of x'_i - y'_j (distances) or
//   C_ij - least (stored).
//
// 128 threads. A warp takes 16 rows. A thread has 2 x 16 scores, as tensor cores leave them: rows g and g + 8, g = lane
// / 4, columns 8 n + 2 (lane % 4) and the next, n = 0 to 7. Tensor cores compute products in double, FMA pipes all
// other scores. Coordinates pass through shared memory in chunks of 16, copied asynchronously one chunk ahead, across
// tiles too. Stored scores come straight from memory, 2 of a line at once if aligned.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/device/pair_cost.cuh"
#include "cuda/device/stored.cuh"
#include "cuda/device/work.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

inline constexpr int kTileRows = 64;
inline constexpr int kTileColumns = 64;
inline constexpr int kTileThreads = 128;
inline constexpr int kTileChunk = 16;

/// The scores of a thread.
inline constexpr int kThreadRows = 2;
inline constexpr int kThreadColumns = 16;
template <class T>
using ThreadScores = T[kThreadRows][kThreadColumns];

/// A thread's first row and column in the tile, and the offsets of its other ones.
__device__ __forceinline__ int thread_row() {
  return static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
}
__device__ __forceinline__ int thread_column() {
  return static_cast<int>(threadIdx.x) % 4 * 2;
}
__device__ constexpr int row_offset(int r) {
  return 8 * r;
}
__device__ constexpr int column_offset(int c) {
  return c / 2 * 8 + c % 2;
}

template <class T>
__device__ __forceinline__ void load_vector_4(T (&value)[4], T const* from) {
  if constexpr (sizeof(T) == 4) {
    float4 const v = *reinterpret_cast<float4 const*>(from);
    value[0] = v.x, value[1] = v.y, value[2] = v.z, value[3] = v.w;
  } else {
    double2 const v = *reinterpret_cast<double2 const*>(from);
    double2 const w = *reinterpret_cast<double2 const*>(from + 2);
    value[0] = v.x, value[1] = v.y, value[2] = w.x, value[3] = w.y;
  }
}

__device__ __forceinline__ void load_vector_2(float& first, float& second, float const* from) {
  float2 const v = *reinterpret_cast<float2 const*>(from);
  first = v.x, second = v.y;
}
__device__ __forceinline__ void load_vector_2(double& first, double& second, double const* from) {
  double2 const v = *reinterpret_cast<double2 const*>(from);
  first = v.x, second = v.y;
}
template <class T, int kCount>
__device__ __forceinline__ void load_vector(T (&value)[kCount], T const* from) {
  static_assert(kCount == 1 || kCount == 2 || kCount == 4);
  if constexpr (kCount == 1) value[0] = *from;
  if constexpr (kCount == 2) load_vector_2(value[0], value[1], from);
  if constexpr (kCount == 4) load_vector_4(value, from);
}
__device__ __forceinline__ void store_vector_2(float* to, float first, float second) {
  *reinterpret_cast<float2*>(to) = make_float2(first, second);
}
__device__ __forceinline__ void store_vector_2(double* to, double first, double second) {
  *reinterpret_cast<double2*>(to) = make_double2(first, second);
}
__device__ __forceinline__ void store_vector_4(float* to, float const (&value)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(value[0], value[1], value[2], value[3]);
}
__device__ __forceinline__ void store_vector_4(double* to, double const (&value)[4]) {
  *reinterpret_cast<double2*>(to) = make_double2(value[0], value[1]);
  *reinterpret_cast<double2*>(to + 2) = make_double2(value[2], value[3]);
}

/// c += a b for a (16 x 16), b (16 x 8), c (16 x 8); each product is added with one rounding. Let g = lane / 4 and
/// t = lane % 4. c0 and c1 are row g, columns 2 t and 2 t + 1; c2 and c3 are these columns of row g + 8; a[2 k] and
/// a[2 k + 1] are column 4 k + t of these rows; b[k] is row 4 k + t of column g.
__device__ __forceinline__ void mma_16x8x16_in_parts(double& c0, double& c1, double& c2, double& c3,
                                                     double const (&a)[8], double const (&b)[4]) {
  auto const multiply = [](double& first, double& second, double row, double column) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(first), "+d"(second)
                 : "d"(row), "d"(column));
  };
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    multiply(c0, c1, a[2 * k], b[k]);
    multiply(c2, c3, a[2 * k + 1], b[k]);
  }
}

/// The same by the largest product that the device has.
__device__ __forceinline__ void mma_16x8x16(double& c0, double& c1, double& c2, double& c3, double const (&a)[8],
                                            double const (&b)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(c0), "+d"(c1), "+d"(c2), "+d"(c3)
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]),
        "d"(b[2]), "d"(b[3]));
#else
  mma_16x8x16_in_parts(c0, c1, c2, c3, a, b);
#endif
}

/// The scores of a segment from points, tile after tile.
template <class T, ScoreForm kForm>
class TileScores {
  static constexpr bool kMma = sizeof(T) == 8 && kForm == ScoreForm::products;
  // Padding keeps the coordinates of a thread's points in different banks.
  static constexpr int kStride = kTileChunk + (kMma ? 0 : sizeof(T) == 8 ? 2 : 4);
  static_assert(kTileRows == kTileColumns);
  using Points = T[kTileRows][kStride];  // A chunk of one operand.

  /// Up to this dimension all chunks of the rows stay in shared memory, which leaves room for two more blocks.
  /// Otherwise two stages alternate, as for columns.
  static constexpr bool has_resident_rows(int dimension) { return dimension <= 4 * kTileChunk; }
  static constexpr int row_stages(int dimension) {
    return has_resident_rows(dimension) ? (dimension + kTileChunk - 1) / kTileChunk : 2;
  }

 public:
  static constexpr int shared_bytes(int dimension) {
    return (2 + row_stages(dimension)) * static_cast<int>(sizeof(Points));
  }

  __device__ __forceinline__ TileScores(unsigned char* shared, PassArguments const& arguments, Segment const& segment)
      : columns_(reinterpret_cast<Points*>(shared)),
        rows_(columns_ + 2),
        arguments_(arguments),
        segment_(segment),
        pair_(arguments.p) {
    copy_next();
  }

  /// Computes the scores of the next tile; all threads of the block call it.
  __device__ __forceinline__ void next(ThreadScores<T>& score) {
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c) score[r][c] = 0;
    }
    int const dimension = arguments_.rows.dimension;
    for (int k = 0; k < dimension; k += kTileChunk) {
      Points const& rows = rows_[row_stage(k)];
      Points const& columns = columns_[stage_];
      copy_async_wait<0>();
      __syncthreads();  // All threads see the chunk, and none still reads the other stage.
      stage_ ^= 1;
      copy_next();
      if constexpr (kMma) {
        multiply(score, rows, columns);
      } else {
        add_coordinates(score, rows, columns, min(kTileChunk, dimension - k));
      }
    }
    pair_.finish(score);
  }

 private:
  __device__ __forceinline__ int row_stage(int coordinate) const {
    return has_resident_rows(arguments_.rows.dimension) ? coordinate / kTileChunk : stage_;
  }

  /// Starts copying the next chunk of the segment, if there is one.
  __device__ __forceinline__ void copy_next() {
    if (next_tile_ == segment_.tiles) return;
    int const dimension = arguments_.rows.dimension;
    int const first_column = (segment_.first_tile + next_tile_) * kTileColumns;
    if (next_tile_ == 0 || !has_resident_rows(dimension))
      copy(rows_[row_stage(next_coordinate_)], arguments_.rows, segment_.first_row);
    copy(columns_[stage_], arguments_.columns, first_column);
    copy_async_commit();
    next_coordinate_ += kTileChunk;
    if (next_coordinate_ < dimension) return;
    next_coordinate_ = 0;
    ++next_tile_;
  }

  __device__ __forceinline__ void copy(Points& to, Operand const& operand, int first_point) const {
    constexpr int kVector = 16 / sizeof(T), kVectors = kTileChunk / kVector;
    static_assert(kTileRows * kVectors % kTileThreads == 0);
    T const* const points = static_cast<T const*>(operand.points) + next_coordinate_;
    int const coordinates = operand.stride - next_coordinate_;
    // Vectors for products are padded to whole chunks.
    bool const padded = kForm == ScoreForm::products, aligned = padded || operand.stride % kVector == 0;
#pragma unroll
    for (int v = 0; v < kTileRows * kVectors / kTileThreads; ++v) {
      int const index = v * kTileThreads + static_cast<int>(threadIdx.x);
      int const point = index / kVectors, k = index % kVectors * kVector;
      T const* const from = points + static_cast<std::int64_t>(first_point + point) * operand.stride + k;
      if (aligned) {
        if (padded || k < coordinates) copy_async_16(shared_address(&to[point][place(point, k)]), from);
      } else {
        for (int e = 0; e < kVector && k + e < coordinates; ++e) to[point][k + e] = from[e];
      }
    }
  }

  /// The place of an even coordinate of a point in a chunk. Points of odd number exchange the halves of a chunk, so
  /// that the fragments of the tensor cores lie in different banks.
  static __device__ __forceinline__ int place(int point, int k) {
    return kMma ? k ^ point % 2 * 8 : k;
  }

  /// A lane loads two neighbouring coordinates at once. The order of coordinates in a product is free if both factors
  /// have the same: columns 4 k + t of the fragments are coordinates 8 (k / 2) + 2 t + k % 2.
  static __device__ __forceinline__ void multiply(ThreadScores<double>& score, Points const& rows,
                                                  Points const& columns) {
    int const lane = static_cast<int>(threadIdx.x) % 32, first = place(lane / 4, lane % 4 * 2);
    double a[kTileChunk / 2];
#pragma unroll
    for (int k = 0; k < kTileChunk / 4; k += 2) {
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r)
        load_vector_2(a[2 * k + r], a[2 * k + 2 + r], &rows[thread_row() + row_offset(r)][first ^ 4 * k]);
    }
#pragma unroll
    for (int n = 0; n < kTileColumns / 8; ++n) {
      double b[kTileChunk / 4];
#pragma unroll
      for (int k = 0; k < kTileChunk / 4; k += 2)
        load_vector_2(b[k], b[k + 1], &columns[8 * n + lane / 4][first ^ 4 * k]);
      mma_16x8x16(score[0][2 * n], score[0][2 * n + 1], score[1][2 * n], score[1][2 * n + 1], a, b);
    }
  }

  __device__ __forceinline__ void add_coordinates(ThreadScores<T>& score, Points const& rows, Points const& columns,
                                                  int count) {
    pair_.visit([&](auto const& add, auto is_short) {
      // Vectors of coordinates: one coordinate a load would keep the FMA pipes waiting for shared memory.
      constexpr int kVector = decltype(is_short)::value ? 16 / sizeof(T) : 1;
      auto const add_some = [&]<int kCount>(int k) {
        T x[kThreadRows][kCount];
#pragma unroll
        for (int r = 0; r < kThreadRows; ++r) load_vector(x[r], &rows[thread_row() + row_offset(r)][k]);
#pragma unroll
        for (int c = 0; c < kThreadColumns; ++c) {
          T y[kCount];
          load_vector(y, &columns[thread_column() + column_offset(c)][k]);
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
#pragma unroll
            for (int r = 0; r < kThreadRows; ++r) add(score[r][c], x[r][e], y[e], r, c);
          }
        }
      };
      int k = 0;
      for (; k + kVector <= count; k += kVector) add_some.template operator()<kVector>(k);
      if constexpr (kVector > 1)
        for (; k < count; ++k) add_some.template operator()<1>(k);
    });
  }

  Points* columns_;  // Two stages.
  Points* rows_;
  PassArguments const& arguments_;
  Segment const& segment_;
  PairCost<T, kForm, kThreadRows, kThreadColumns> pair_;
  int stage_ = 0;  // The stage that next() reads next.
  int next_tile_ = 0, next_coordinate_ = 0;
};

/// The scores of a segment from a cost matrix in memory; costs past its ends are infinite.
template <class T>
class TileScores<T, ScoreForm::stored> {
 public:
  static constexpr int shared_bytes(int) { return 0; }

  __device__ __forceinline__ TileScores(unsigned char*, PassArguments const& arguments, Segment const& segment)
      : arguments_(arguments), segment_(segment) {}

  __device__ __forceinline__ void next(ThreadScores<T>& score) {
    int const row = segment_.first_row + thread_row();
    int const column = (segment_.first_tile + next_tile_++) * kTileColumns + thread_column();
    void const* const data = arguments_.stored.data;
    if (arguments_.stored.scalar == DataType::float32) {
      load(score, static_cast<float const*>(data), row, column);
    } else {
      load(score, static_cast<double const*>(data), row, column);
    }
  }

 private:
  template <class S>
  __device__ __forceinline__ void load(ThreadScores<T>& score, S const* data, int row, int column) const {
    StoredCosts const& stored = arguments_.stored;
    S cost[kThreadRows][kThreadColumns];
    if (stored.aligned && !stored.transposed && row + row_offset(kThreadRows - 1) < stored.rows &&
        column + column_offset(kThreadColumns - 1) < stored.columns) {
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
        S const* const line = data + (row + row_offset(r)) * stored.stride + column;
#pragma unroll
        for (int c = 0; c < kThreadColumns; c += 2) load_vector_2(cost[r][c], cost[r][c + 1], line + column_offset(c));
      }
    } else {
      std::int64_t const row_step = stored.transposed ? 1 : stored.stride;
      std::int64_t const column_step = stored.transposed ? stored.stride : 1;
#pragma unroll
      for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
        for (int c = 0; c < kThreadColumns; ++c) {
          int const i = row + row_offset(r), j = column + column_offset(c);
          bool const inside = i < stored.rows && j < stored.columns;
          cost[r][c] = inside ? data[i * row_step + j * column_step] : static_cast<S>(INFINITY);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
      for (int c = 0; c < kThreadColumns; ++c) score[r][c] = stored_score<T>(cost[r][c], stored.least);
    }
  }

  PassArguments const& arguments_;
  Segment const& segment_;
  int next_tile_ = 0;
};

}  // namespace monge::cuda
