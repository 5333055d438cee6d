#include "cuda/regularized/regularized_entries.hpp"

#include "cuda/launch/sizes.hpp"
#include "cuda/regularized/regularized_entries.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

int tiles(int rows, int columns) {
  return divided_up(rows, kEntryRows) * divided_up(columns, kEntryColumns);
}

/// Calls `function` for the kind of pairs.
template <class Function>
void with_pairs(RegularizedMatrix const& matrix, Function&& function) {
  if (matrix.cost.data) {
    function.template operator()<MatrixPairs>();
  } else {
    function.template operator()<PointPairs>();
  }
}

}  // namespace

void pack_costs(PackCostsArguments const& arguments, Queue const& queue) {
  using Pack = Kernel<PackCostsArguments>;
  with_pairs(arguments.matrix, [&]<class Pairs>() {
    queue.launch(arguments.scalar == DataType::float32
                     ? Pack{pack_costs_kernel<float, Pairs>, pack_costs_kernel<float, Pairs>}
                     : Pack{pack_costs_kernel<double, Pairs>, pack_costs_kernel<double, Pairs>},
                 {tiles(static_cast<int>(arguments.pitch), arguments.matrix.columns), kEntryBlock}, arguments);
  });
}

int entry_value_parts(int columns) {
  return divided_up(columns, kEntryColumns);
}

void evaluate_entries(EvaluateEntriesArguments const& arguments, cudaStream_t stream) {
  int const parts = entry_value_parts(arguments.entries.matrix.columns);
  with_pairs(arguments.entries.matrix, [&]<class Pairs>() {
    entry_values_kernel<Pairs><<<static_cast<unsigned>(parts), kEntryBlock, 0, stream>>>(arguments);
  });
  MONGE_CUDA_TRY(cudaGetLastError());
  sum_entry_values_kernel<<<1, kEntryBlock, 0, stream>>>(arguments, parts);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void dense_entries(RegularizedEntries const& entries, double factor, StridedView const& out, cudaStream_t stream) {
  int const blocks = tiles(entries.order.size, entries.matrix.columns);
  with_pairs(entries.matrix, [&]<class Pairs>() {
    dense_entries_kernel<Pairs><<<static_cast<unsigned>(blocks), kEntryBlock, 0, stream>>>(entries, factor, out);
  });
  MONGE_CUDA_TRY(cudaGetLastError());
}

void nonzero_entries(NonzeroArguments const& arguments, cudaStream_t stream) {
  int const blocks = divided_up(arguments.entries.order.size, kEntryRows);
  with_pairs(arguments.entries.matrix, [&]<class Pairs>() {
    nonzero_entries_kernel<Pairs><<<static_cast<unsigned>(blocks), kEntryBlock, 0, stream>>>(arguments);
  });
  MONGE_CUDA_TRY(cudaGetLastError());
}

void multiply_entries(EntryProductOf const& product, cudaStream_t stream) {
  bool const of_rows = product.side == Side::rows;
  unsigned const blocks = product_blocks(product) * static_cast<unsigned>(divided_up(product.width, kProductWidth));
  with_pairs(product.entries.matrix, [&]<class Pairs>() {
    auto const kernel = of_rows ? row_products_kernel<Pairs> : column_products_kernel<Pairs>;
    kernel<<<blocks, kEntryBlock, 0, stream>>>(product);
  });
  MONGE_CUDA_TRY(cudaGetLastError());
}

void turn_points(Operand const& points, int size, double* out, cudaStream_t stream) {
  turn_points_kernel<<<static_cast<unsigned>(divided_up(size, kEntryBlock)), kEntryBlock, 0, stream>>>(points, size,
                                                                                                       out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

void store_rows(RowOrder const& order, double const* value, double factor, double shift, StridedView const& out,
                cudaStream_t stream) {
  store_rows_kernel<<<static_cast<unsigned>(divided_up(order.size, kEntryBlock)), kEntryBlock, 0, stream>>>(
      order, value, factor, shift, out);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
