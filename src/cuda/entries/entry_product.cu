#include "cuda/entries/entry_product.hpp"

#include <algorithm>

#include "core/numbers.hpp"
#include "cuda/device/score_tile.cuh"
#include "cuda/entries/double_product.cuh"
#include "cuda/entries/entry_product.cuh"
#include "cuda/entries/values.cuh"
#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/queue.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/pass/pass.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

// kTile, kChunk, kStages, kAhead.
using Narrow = EntryProductShape<64, 64, 4, 2>;
using Wide = EntryProductShape<128, 64, 3, 2>;
using Mma = EntryProductShape<128, 32, 3, 1>;
static_assert(Mma::kSharedBytes <= kLeastSharedBytes);

/// Calls function.operator()<Shape>(kernel).
template <class Function>
void with_shape(EntryProductPlan const& plan, Function&& function) {
  if (!plan.wgmma) {
    function.template operator()<Mma>(entry_product_mma<Mma>);
  } else if (plan.tile == Narrow::kTile) {
    function.template operator()<Narrow>(entry_product_wgmma<Narrow>);
  } else {
    function.template operator()<Wide>(entry_product_wgmma<Wide>);
  }
}

bool have_wgmma() {
  return generation() == Generation::sm_90a;
}

unsigned blocks_of(std::int64_t threads) {
  return static_cast<unsigned>(divided_up(threads, kValueThreads));
}

}  // namespace

int value_tile(int width, DataType scalar) {
  if (scalar == DataType::float64) return kTileColumns;
  return width <= Narrow::kTile && have_wgmma() ? Narrow::kTile : Wide::kTile;
}

void pack_values(PackValuesArguments const& arguments, cudaStream_t stream) {
  constexpr unsigned kRowShares = 64;
  unsigned const column_blocks = static_cast<unsigned>(divided_up(arguments.padded_width, kValueColumns));
  unsigned const blocks = column_blocks * static_cast<unsigned>(arguments.padded_count / kValueRows);
  if (arguments.scalar == DataType::float32) {
    MONGE_CUDA_TRY(
        cudaMemsetAsync(arguments.largest, 0, to_size(arguments.width) * sizeof(unsigned long long), stream));
    largest_values_kernel<<<dim3(column_blocks, kRowShares), kValueThreads, 0, stream>>>(arguments);
    MONGE_CUDA_TRY(cudaGetLastError());
    pack_values_kernel<float><<<blocks, kValueThreads, 0, stream>>>(arguments);
  } else {
    pack_values_kernel<double><<<blocks, kValueThreads, 0, stream>>>(arguments);
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

int double_product_parts(Operand const& rows, Operand const& columns, int multiprocessors) {
  constexpr int kLeastPoints = 512;  // The store of a tile then takes a small part of the time.
  int const blocks =
      multiprocessors * occupancy_of(double_product_kernel, kTileThreads, kDoubleProductBytes).resident_blocks;
  int const tiles = rows.padded_size / kTileRows * (columns.padded_size / kTileColumns);
  int const wanted = std::clamp(blocks / tiles, 1, std::max(rows.dimension / kLeastPoints, 1));
  int const chunks = rows.dimension / kTileChunk;
  return divided_up(chunks, divided_up(chunks, wanted));  // None is empty.
}

void launch_double_product(DoubleProductArguments const& arguments, cudaStream_t stream) {
  constexpr int kMostRows = 65535;  // Rows of a grid, at most.
  int const row_tiles = arguments.rows.padded_size / kTileRows;
  DoubleProductArguments some = arguments;
  for (; some.first_row_tile < row_tiles; some.first_row_tile += kMostRows) {
    dim3 const grid(static_cast<unsigned>(arguments.columns.padded_size / kTileColumns),
                    static_cast<unsigned>(std::min(kMostRows, row_tiles - some.first_row_tile)),
                    static_cast<unsigned>(arguments.parts));
    double_product_kernel<<<grid, kTileThreads, kDoubleProductBytes, stream>>>(some);
    MONGE_CUDA_TRY(cudaGetLastError());
  }
}

EntryProductPlan plan_entry_product(int padded_rows, int padded_count, int padded_width, int multiprocessors) {
  EntryProductPlan plan;
  plan.wgmma = have_wgmma();
  plan.tile = plan.wgmma && padded_width == Narrow::kTile ? Narrow::kTile : Wide::kTile;
  plan.column_tiles = padded_width / plan.tile;
  with_shape(plan, [&]<class Shape>(auto kernel) {
    occupancy_of(kernel, Shape::kThreads, Shape::kSharedBytes);
    plan.work = plan_work(padded_rows / Shape::kRows * plan.column_tiles, Shape::kRows, padded_count / Shape::kChunk,
                          multiprocessors);
  });
  return plan;
}

void launch_entry_product(EntryProductPlan const& plan, EntryProductArguments const& arguments, cudaStream_t stream) {
  with_shape(plan, [&]<class Shape>(auto kernel) {
    launch_chained(kernel, plan.work.grid, Shape::kThreads, Shape::kSharedBytes, stream, arguments);
  });
}

void store_values(StoreValuesArguments const& arguments, cudaStream_t stream) {
  unsigned const blocks = blocks_of(static_cast<std::int64_t>(arguments.rows) * arguments.width);
  if (arguments.scalar == DataType::float32) {
    store_values_kernel<float><<<blocks, kValueThreads, 0, stream>>>(arguments);
  } else {
    store_values_kernel<double><<<blocks, kValueThreads, 0, stream>>>(arguments);
  }
  MONGE_CUDA_TRY(cudaGetLastError());
}

void split_rows(SplitRowsArguments const& arguments, cudaStream_t stream) {
  split_rows_kernel<<<blocks_of(static_cast<std::int64_t>(arguments.padded_rows) * 32), kValueThreads, 0, stream>>>(
      arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
