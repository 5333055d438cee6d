// Many iterations of Douglas-Rachford splitting in one launch, with X in shared memory throughout.
//
// The kernel has the formulas and results of split_kernel (cuda/regularized/splitting.cuh). Opening and closing
// iterations alternate.
//
// Tiling: the grid is on the device at once and divides X in tiles of rows times columns, one for each block. A warp
//   takes 32 vectors of 16 bytes of rows, and every few columns of the tile. An iteration ends at a barrier of the
//   grid. Before it, a block leaves the sums of its rows, of its columns and of all its entries. After it, a block
//   joins the sums of its own rows and columns from all blocks itself, so potentials need no second barrier. Two sets
//   of sums take turns in memory, since a block may still read one while another writes the next.
// Traffic: costs, 4 or 8 bytes for each entry in every second iteration, from the L2 cache if they fit; X once.
// Numerics: sums of a warp's rows and columns in T, all others in double, in a fixed order.
#pragma once
#include "cuda/device/grid.cuh"
#include "cuda/regularized/splitting.cuh"
#include "cuda/regularized/splitting.hpp"

namespace monge::cuda {

inline constexpr int kResidentThreads = 512;
inline constexpr int kResidentWarps = kResidentThreads / 32;

/// The arrays of a tile in shared memory.
template <class T>
struct ResidentTile {
  static constexpr int kPerVector = 16 / sizeof(T);
  static constexpr int kWarpRows = 32 * kPerVector;

  T* entries;       // [columns][rows]
  T* warp_rows;     // [warps][kWarpRows]: row sums of each warp,
  T* warp_columns;  // [rows / kWarpRows][columns]: column sums.
  T* potential[2];  // phi of the rows, psi of the columns
  double* sum[2];   // a, b
  double* share[2];

  MONGE_HOST_DEVICE static std::int64_t bytes(int rows, int columns) {
    std::int64_t const points = rows + columns;
    std::int64_t const sums = kResidentWarps * kWarpRows + rows / kWarpRows * columns;
    return (static_cast<std::int64_t>(rows) * columns + sums + points) * static_cast<std::int64_t>(sizeof(T)) +
           2 * points * static_cast<std::int64_t>(sizeof(double)) + 32;
  }
  __device__ __forceinline__ ResidentTile(unsigned char* memory, int rows, int columns) {
    auto const take = [&]<class U>(U*& pointer, int count) {
      memory += (sizeof(U) - reinterpret_cast<std::uintptr_t>(memory) % sizeof(U)) % sizeof(U);
      pointer = reinterpret_cast<U*>(memory);
      memory += count * sizeof(U);
    };
    take(entries, rows * columns);
    take(warp_rows, kResidentWarps * kWarpRows);
    take(potential[0], rows);
    take(warp_columns, rows / kWarpRows * columns);
    take(potential[1], columns);
    take(sum[0], rows);
    take(share[0], rows);
    take(sum[1], columns);
    take(share[1], columns);
  }
};

/// The position of a block's tile in the grid and in X.
struct ResidentPlace {
  int tile[2];   // Number of the tile along rows and columns.
  int first[2];  // First row and column.
  int size[2];   // Rows and columns of the tile that exist.
};

template <class U>
__device__ __forceinline__ U of_side(U const (&both)[2], int s) {
  return s == 0 ? both[0] : both[1];
}

/// Prox of the tile, and the sums of its warps; ends with a barrier of the block.
template <class T, SplittingProx kProx, SplittingIteration kIteration>
__device__ __forceinline__ void iterate_tile(ResidentArguments const& arguments, ResidentPlace const& place,
                                             ResidentTile<T> const& tile, T step, UngroupedProx<T, kProx> const& prox) {
  constexpr bool kReadsCosts = kIteration != SplittingIteration::closing;
  constexpr bool kLeavesPlan = kIteration != SplittingIteration::opening;
  constexpr int kPerVector = ResidentTile<T>::kPerVector, kWarpRows = ResidentTile<T>::kWarpRows;
  constexpr int kColumns = 4;  // Columns at a time.
  SplittingArguments const& problem = arguments.problem;
  int const lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int const chunks = arguments.tile_rows / kWarpRows, stride = kResidentWarps / chunks;
  int const chunk = warp % chunks, row = chunk * kWarpRows + lane * kPerVector;
  bool const has_rows = row < place.size[0];
  T const* const costs = static_cast<T const*>(problem.costs) + place.first[1] * problem.pitch + place.first[0] + row;
  T phi[kPerVector], row_sum[kPerVector] = {};
  load_16_bytes(phi, tile.potential[0] + row);
  T cost[kColumns][kPerVector], next[kColumns][kPerVector] = {};
  auto const read_costs = [&](T(&to)[kColumns][kPerVector], int first) {
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      int const column = first + k * stride;
      if (kReadsCosts && has_rows && column < place.size[1]) load_16_bytes(to[k], costs + column * problem.pitch);
    }
  };
  read_costs(next, warp / chunks);
  for (int first = warp / chunks; first < place.size[1]; first += kColumns * stride) {
    T column_sum[kColumns] = {};
    // The next costs load while these are used.
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
#pragma unroll
      for (int e = 0; e < kPerVector; ++e) cost[k][e] = next[k][e];
    }
    read_costs(next, first + kColumns * stride);
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      int const column = first + k * stride;
      if (column >= place.size[1]) break;
      T* const entries = tile.entries + column * arguments.tile_rows + row;
      T const psi = tile.potential[1][column];
      T value[kPerVector];
      load_16_bytes(value, entries);
#pragma unroll
      for (int e = 0; e < kPerVector; ++e) {
        T sum = value[e];
        if constexpr (kReadsCosts) sum = fused(-step, cost[k][e], sum);
        sum += phi[e] + psi;
        value[e] = has_rows && sum > 0 ? sum : T(0);
        value[e] = prox(value[e]);
        row_sum[e] += value[e];
      }
      column_sum[k] = entry_sum<T>(value);
      if constexpr (!kLeavesPlan) {
#pragma unroll
        for (int e = 0; e < kPerVector; ++e) value[e] = fused(-step, cost[k][e], value[e]);
      }
      store_16_bytes(entries, value);
    }
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      T const sum = warp_sum(column_sum[k]);
      int const column = first + k * stride;
      if (lane == 0 && column < place.size[1]) tile.warp_columns[chunk * arguments.tile_columns + column] = sum;
    }
  }
  store_16_bytes(tile.warp_rows + warp * kWarpRows + lane * kPerVector, row_sum);
  __syncthreads();
}

/// Writes the sums of the tile to memory, from those of its warps; thread 0 writes the total.
template <class T>
__device__ __forceinline__ void leave_sums(ResidentArguments const& arguments, ResidentPlace const& place,
                                           ResidentTile<T> const& tile, int turn) {
  constexpr int kWarpRows = ResidentTile<T>::kWarpRows;
  int const chunks = arguments.tile_rows / kWarpRows;
  double total = 0;
  for (int i = static_cast<int>(threadIdx.x); i < place.size[0]; i += kResidentThreads) {
    double sum = 0;
    for (int warp = i / kWarpRows; warp < kResidentWarps; warp += chunks)
      sum += static_cast<double>(tile.warp_rows[warp * kWarpRows + i % kWarpRows]);
    arguments.sums(0, turn, place.tile[1])[place.first[0] + i] = sum;
    total += sum;
  }
  for (int j = static_cast<int>(threadIdx.x); j < place.size[1]; j += kResidentThreads) {
    double sum = 0;
    for (int chunk = 0; chunk < chunks; ++chunk)
      sum += static_cast<double>(tile.warp_columns[chunk * arguments.tile_columns + j]);
    arguments.sums(1, turn, place.tile[0])[place.first[1] + j] = sum;
  }
  total = block_sum<kResidentThreads>(total);
  if (threadIdx.x == 0) arguments.totals[turn * arguments.blocks() + static_cast<int>(blockIdx.x)] = total;
}

/// Updates phi, psi, a, b and alpha of the tile from the sums of all blocks.
template <class T>
__device__ __forceinline__ void update_tile(ResidentArguments const& arguments, ResidentPlace const& place,
                                            ResidentTile<T> const& tile, int turn, bool is_last, double& alpha) {
  constexpr int kLoads = 24;
  __shared__ double excess;
  SplittingArguments const& problem = arguments.problem;
  int const thread = static_cast<int>(threadIdx.x);
  double total = 0;
  for (int k = thread; k < arguments.blocks(); k += kResidentThreads)
    total += __ldcg(arguments.totals + turn * arguments.blocks() + k);
  double const n = problem.side[0].real, m = problem.side[1].real;
  int const points = place.size[0] + place.size[1];
  // The sums of most points load before the total is known.
  double sums[2] = {};
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    int const point = thread + k * kResidentThreads;
    if (point >= points) break;
    int const s = point < place.size[0] ? 0 : 1, i = of_side(place.first, s) + point - s * place.size[0];
    // Most points need no more than kLoads loads: together they take the latency of the L2 cache once.
    for (int first = 0; first < arguments.tiles[1 - s]; first += kLoads) {
      double part[kLoads];
#pragma unroll
      for (int q = 0; q < kLoads; ++q)
        part[q] = first + q < arguments.tiles[1 - s] ? __ldcg(arguments.sums(s, turn, first + q) + i) : 0.0;
#pragma unroll
      for (int q = 0; q < kLoads; ++q) sums[k] += part[q];
    }
  }
  total = block_sum<kResidentThreads>(total);
  if (thread == 0) excess = total - 1;
  __syncthreads();
  double const shift = splitting_shift(excess, alpha, n, m);
  alpha -= excess;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    int const point = thread + k * kResidentThreads;
    if (point >= points) break;
    int const s = point < place.size[0] ? 0 : 1, mine = point - s * place.size[0], i = of_side(place.first, s) + mine;
    double const residual = sums[k] - of_side(tile.share, s)[mine];
    SplittingUpdate const update{shift, s == 0 ? m : n};
    SplittingPoint const next = update(of_side(tile.sum, s)[mine], residual);
    of_side(tile.sum, s)[mine] = next.sum;
    of_side(tile.potential, s)[mine] = static_cast<T>(next.potential);
    if (is_last && of_side(place.tile, 1 - s) == 0) {
      SplittingSide const& side = problem.side[s];
      side.sum[i] = next.sum;
      side.potential[i] = next.potential;
      static_cast<T*>(side.rounded)[i] = static_cast<T>(next.potential);
      side.residual[i] = residual;
    }
  }
  __syncthreads();
}

template <class T, SplittingProx kProx>
__global__ void __launch_bounds__(kResidentThreads, 1)
    resident_splitting_kernel(ResidentArguments const arguments, int count) {
  constexpr int kPerVector = ResidentTile<T>::kPerVector;
  extern __shared__ __align__(16) unsigned char dynamic[];
  SplittingArguments const& problem = arguments.problem;
  ResidentTile<T> const tile(dynamic, arguments.tile_rows, arguments.tile_columns);
  int const thread = static_cast<int>(threadIdx.x), block = static_cast<int>(blockIdx.x);
  ResidentPlace place;
  for (int s : {0, 1}) {
    int const size = s == 0 ? arguments.tile_rows : arguments.tile_columns;
    place.tile[s] = s == 0 ? block % arguments.tiles[0] : block / arguments.tiles[0];
    place.first[s] = place.tile[s] * size;
    place.size[s] = min(size, problem.side[s].size - place.first[s]);
    SplittingSide const& side = problem.side[s];
    for (int k = thread; k < size; k += kResidentThreads) {
      bool const real = k < place.size[s];
      tile.potential[s][k] = real ? static_cast<T const*>(side.rounded)[place.first[s] + k] : T(0);
      tile.sum[s][k] = real ? side.sum[place.first[s] + k] : 0.0;
      tile.share[s][k] = real ? side.share[place.first[s] + k] : 0.0;
    }
  }
  int const vectors = arguments.tile_rows / kPerVector;
  // In memory, padding of the rows reaches up to the pitch.
  auto const for_vectors = [&](auto const& visit) {
    for (int k = thread; k < vectors * place.size[1]; k += kResidentThreads) {
      int const row = k % vectors * kPerVector, column = k / vectors;
      if (row >= place.size[0]) continue;
      visit(tile.entries + column * arguments.tile_rows + row,
            static_cast<T*>(problem.entries) + (place.first[1] + column) * problem.pitch + place.first[0] + row);
    }
  };
  for_vectors([](T* shared, T* global) { copy_async_16(shared_address(shared), global); });
  copy_async_commit();
  copy_async_wait<0>();
  double alpha = problem.state->alpha;
  SplittingParameters const parameters = *problem.parameters;
  T const step = static_cast<T>(parameters.step);
  UngroupedProx<T, kProx> const prox(problem, parameters);
  __syncthreads();
  for (int k = 0; k < count; ++k) {
    using enum SplittingIteration;
    int const turn = k % 2;
    if (turn == 1) {
      iterate_tile<T, kProx, closing>(arguments, place, tile, step, prox);
    } else if (k + 1 < count) {
      iterate_tile<T, kProx, opening>(arguments, place, tile, step, prox);
    } else {
      iterate_tile<T, kProx, single>(arguments, place, tile, step, prox);
    }
    leave_sums(arguments, place, tile, turn);
    grid_barrier(arguments.arrived, k + 1);
    update_tile(arguments, place, tile, turn, k + 1 == count, alpha);
  }
  for_vectors([](T const* shared, T* global) {
    T value[kPerVector];
    load_16_bytes(value, shared);
    store_16_bytes(global, value);
  });
  if (thread == 0 && block == 0) problem.state->alpha = alpha;
}

}  // namespace monge::cuda
