#include "cuda/second_order/chosen_entries.hpp"

#include <bit>
#include <utility>

#include <cub/device/device_radix_sort.cuh>

#include "cuda/device/points.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

/// Bits of numbers below `size`.
int bits_of(int size) {
  return std::bit_width(static_cast<unsigned>(size));
}

/// Calls sort(memory, bytes), twice as CUB wants it: for the size of its memory, and to sort.
template <class Sort>
void with_memory(SharedRuntime const& runtime, Sort const& sort) {
  std::size_t bytes = 0;
  MONGE_CUDA_TRY(sort(nullptr, bytes));
  DeviceArray<unsigned char> const memory(runtime, static_cast<std::int64_t>(bytes));
  MONGE_CUDA_TRY(sort(memory.data(), bytes));
}

/// Sorts keys of `bits` bits with their values, both of size `count`; equal keys keep their order.
void sort_pairs(SharedRuntime const& runtime, DeviceArray<int>& keys, DeviceArray<int>& values, int count, int bits) {
  DeviceArray<int> sorted_keys(runtime, count), sorted_values(runtime, count);
  with_memory(runtime, [&](void* memory, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, keys.data(), sorted_keys.data(), values.data(),
                                           sorted_values.data(), count, 0, bits, runtime->stream());
  });
  keys = std::move(sorted_keys);
  values = std::move(sorted_values);
}

/// The numbers of the `count` largest values, ascending.
DeviceArray<int> ranks_of_largest(SharedRuntime const& runtime, RowEntries const& entries, int count) {
  int const all = entries.rows * entries.k;
  DeviceArray<int> ranks(runtime, all), by_value(runtime, all), kept(runtime, count), places(runtime, count);
  DeviceArray<double> sorted(runtime, all);
  for_each_point(all, runtime->stream(), [rank = ranks.data(), value = entries.value] __device__(int r) {
    rank[r] = r;
    if (!(value[r] > 0)) value[r] = 0;
  });
  with_memory(runtime, [&](void* memory, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortPairsDescending(memory, bytes, entries.value, sorted.data(), ranks.data(),
                                                     by_value.data(), all, 0, 64, runtime->stream());
  });
  with_memory(runtime, [&](void* memory, std::size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(memory, bytes, by_value.data(), kept.data(), count, 0, bits_of(all),
                                          runtime->stream());
  });
  return kept;
}

/// begin_l: the number of `keys`, which ascend, below l, for l = 0 .. lines.
DeviceArray<int> line_begins(SharedRuntime const& runtime, int const* keys, int count, int lines) {
  DeviceArray<int> begins(runtime, lines + 1);
  for_each_point(lines + 1, runtime->stream(), [keys, count, begin = begins.data()] __device__(int line) {
    int low = 0, high = count;
    while (low < high) {
      int const middle = low + (high - low) / 2;
      if (keys[middle] < line) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begin[line] = low;
  });
  return begins;
}

}  // namespace

ChosenEntries choose_entries(SharedRuntime const& runtime, RowEntries const& entries, std::int64_t wanted) {
  int const count = static_cast<int>(wanted);
  cudaStream_t const stream = runtime->stream();
  ChosenEntries chosen{DeviceArray<std::int64_t>(runtime, count),
                       DeviceArray<std::int64_t>(runtime, count),
                       {},
                       DeviceArray<int>(runtime, count),
                       {},
                       DeviceArray<int>(runtime, count),
                       DeviceArray<int>(runtime, count)};
  DeviceArray<int> row_keys(runtime, count), column_keys(runtime, count);
  if (count > 0) {
    DeviceArray<int> const ranks = ranks_of_largest(runtime, entries, count);
    for_each_point(count, stream,
                   [rank = ranks.data(), k = entries.k, index = entries.index, rows = chosen.rows.data(),
                    columns = chosen.columns.data(), row_index = chosen.row_index.data(), row_key = row_keys.data(),
                    column_key = column_keys.data(), order = chosen.order.data()] __device__(int place) {
                     int const i = rank[place] / k, j = static_cast<int>(index[rank[place]]);
                     rows[place] = row_key[place] = i;
                     columns[place] = row_index[place] = column_key[place] = j;
                     order[place] = place;
                   });
    sort_pairs(runtime, column_keys, chosen.order, count, bits_of(entries.columns));
    for_each_point(
        count, stream,
        [order = chosen.order.data(), row_key = row_keys.data(), column_index = chosen.column_index.data()] __device__(
            int place) { column_index[place] = row_key[order[place]]; });
  }
  chosen.row_begin = line_begins(runtime, row_keys.data(), count, entries.rows);
  chosen.column_begin = line_begins(runtime, column_keys.data(), count, entries.columns);
  return chosen;
}

}  // namespace monge::cuda
