// Selected entries of a plan. Logarithms of shares go to memory for a block of rows at a time and are selected there.
#include <algorithm>
#include <numbers>

#include "core/numbers.hpp"
#include "cuda/plan/entries_at.hpp"
#include "cuda/plan/plan_operator.hpp"
#include "cuda/tiles/listed_rows.hpp"
#include "plan/sampling.hpp"

namespace monge::cuda {
namespace {

/// Logits are made for a block of rows at a time: 256 MiB of them, but at least 128 rows. The selected entries get as
/// much again, but at least one row.
constexpr std::int64_t kLogRowBytes = std::int64_t{256} << 20;

StridedIndices in_place(Output const& output) {
  return {static_cast<std::int64_t*>(output.view().data), output.view().stride};
}

/// Rows `begin` to `begin + count - 1` of these.
LogRows part(LogRows rows, int begin, int count) {
  std::int64_t const values = begin * rows.stride * size_of(rows.scalar);
  rows.values = static_cast<unsigned char const*>(rows.values) + values;
  rows.largest = static_cast<unsigned char const*>(rows.largest) + values / kLogitGroup;
  rows.first += begin;
  rows.begin += begin;
  rows.count = std::min(count, rows.count - begin);
  return rows;
}

/// The number of listed tiles of each tile of rows. Waits.
std::vector<int> listed_counts(SharedRuntime const& runtime, ListedTiles const& tiles) {
  DeviceArray<int> const counts(runtime, tiles.rows.tiles());
  count_listed(tiles, counts.data(), runtime->stream());
  return download(*runtime, counts.data(), counts.size());
}

/// The caller's indices where kernels can read them; `staging` receives a copy if they lie on the host.
StridedIndices upload(SharedRuntime const& runtime, IndexView from, DeviceArray<unsigned char>& staging) {
  VectorView const bits(from.data, DataType::float64, from.size, from.stride, from.device);
  StridedView const view = cuda::upload(runtime, bits, staging);
  return {static_cast<std::int64_t*>(view.data), view.stride};
}

}  // namespace

template <class Visit>
void PlanOperator::for_log_rows(Side side, RowScratch const& scratch, int fill, Visit const& visit) {
  Frozen& from = frozen(side);
  SharedRuntime const& runtime = problem_.runtime;
  cudaStream_t const stream = runtime->stream();
  Costs const& costs = *problem_.costs;
  Side const other = opposite(side);
  Workspace& work = workspace();
  constexpr int kTile = static_cast<int>(kTilePoints);
  std::int64_t const width = size_of(costs.scalar()), all_columns = costs.padded_size(other);
  int const size = problem_.size(side);
  ListedTiles const* const listed = tiles(side);
  std::vector<int> const counts = listed ? listed_counts(runtime, *listed) : std::vector<int>();
  auto const columns_of = [&](int row) {
    std::int64_t const own = listed ? std::max(counts[to_size(row / kTile)], 1) * kTilePoints + fill : all_columns;
    return std::min(all_columns, round_up(own, kRowPadding));
  };
  // A tile of rows from lists has a bit for each of all columns, and the numbers of its own.
  std::int64_t const words = listed ? divided_up(costs.size(other), 32) : 0;
  auto const fits = [&](std::int64_t rows, std::int64_t columns) {
    std::int64_t const numbers = listed ? columns : 0;
    return rows * (columns * width + (numbers + words) * 4 / kTile + scratch.bytes(columns)) <= kLogRowBytes;
  };
  int const step = listed ? kTile : kRowPadding;
  grow(runtime, work.log_factors, all_columns * width);
  log_factors(problem_.side(other), from.transform.logits.factors.data(), work.log_factors.data(), stream);

  LogRows rows;
  rows.scalar = costs.scalar();
  rows.factor = from.plan_factor.data();
  rows.weight = problem_.side(side).weight;
  rows.point = listed ? listed->rows.point : nullptr;
  for (int count = 0; rows.first < size; rows.first += count) {
    rows.stride = 0;
    for (count = 0; rows.first + count < size; count += step) {
      std::int64_t const columns = std::max(rows.stride, columns_of(rows.first + count));
      if (count >= kRowPadding && !fits(count + step, columns)) break;
      rows.stride = columns;
    }
    rows.count = std::min(count, size - rows.first);
    std::int64_t const scratch_bytes = scratch.bytes(rows.stride);
    int const together =
        static_cast<int>(std::clamp<std::int64_t>(kLogRowBytes / std::max<std::int64_t>(scratch_bytes, 1), 1, count));
    grow(runtime, work.log_rows, count * (rows.stride + rows.stride / kLogitGroup) * width);
    grow(runtime, work.selection, together * scratch_bytes);
    void* const largest = work.log_rows.data() + count * rows.stride * width;
    rows.values = work.log_rows.data();
    rows.largest = largest;

    Costs::Launch pass = costs.launch(side, listed ? 0 : rows.first, listed ? kRowPadding : count, Pass::logits);
    PassArguments& arguments = pass.arguments;
    arguments.parameters = from.transform.parameters.data();
    arguments.logits = from.transform.logits.values.data();
    arguments.factors = work.log_factors.data();
    arguments.entries = {costs.scalar(), rows.stride, work.log_rows.data(), largest};
    if (listed) {
      grow(runtime, work.log_columns, count / kTile * rows.stride);
      grow(runtime, work.log_listed, count / kTile * words);
      rows.columns = work.log_columns.data();
      arguments.references = from.references.data();
      ListedRows const of{.first = rows.first / kTile,
                          .count = count / kTile,
                          .fill = fill,
                          .listed = work.log_listed.data(),
                          .columns = work.log_columns.data()};
      launch_listed_logits(*listed, of, arguments, stream);
    } else {
      arguments.references = from.references.data() + rows.first * width;
      launch_pass(pass.plan, arguments, stream);
    }
    for (int begin = 0; begin < rows.count; begin += together) visit(part(rows, begin, together));
  }
}

void PlanOperator::all(Side side, MutableMatrixView out) {
  DeviceGuard const guard(problem_.runtime->index());
  Output output(problem_.runtime, out);
  for_log_rows(side, {}, 0, [&](LogRows const& rows) {
    all_entries(rows, problem_.size(opposite(side)), output.view(), problem_.runtime->stream());
  });
  output.finish();
}

void PlanOperator::top_k(Side side, MutableIndexView indices, MutableMatrixView values) {
  DeviceGuard const guard(problem_.runtime->index());
  Output index_output(problem_.runtime, indices), value_output(problem_.runtime, values);
  TopKArguments arguments;
  arguments.k = checked_size("k", indices.columns);
  arguments.indices = in_place(index_output);
  arguments.values = value_output.view();
  for_log_rows(side, {.row = top_k_scratch(problem_.costs->scalar(), arguments.k)}, arguments.k,
               [&](LogRows const& rows) {
                 arguments.rows = rows;
                 arguments.scratch = workspace().selection.data();
                 cuda::top_k(arguments, problem_.runtime->stream());
               });
  index_output.finish();
  value_output.finish();
}

std::int64_t PlanOperator::count_above(double threshold, MutableIndexView row_begin) {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  int const n = problem_.size(Side::rows);
  Output output(runtime, row_begin);
  DeviceArray<std::int64_t> const counts(runtime, n);
  AboveArguments arguments;
  arguments.threshold = threshold;
  arguments.counts = counts.data();
  for_log_rows(Side::rows, {}, 0, [&](LogRows const& rows) {
    arguments.rows = rows;
    cuda::entries_above(arguments, runtime->stream());
  });
  StridedIndices const begin = in_place(output);
  running_sums(counts.data(), n, begin, runtime->stream());
  output.finish();
  return download(*runtime, begin.data + n * begin.stride, 1).front();
}

std::int64_t PlanOperator::entries_above(double threshold, MutableIndexView row_begin, MutableIndexView columns,
                                         MutableVectorView values) {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  DeviceArray<unsigned char> staging;
  Output column_output(runtime, columns), value_output(runtime, values);
  DeviceArray<std::int64_t> const first_wrong = uploaded(runtime, std::vector<std::int64_t>{size(Side::rows)});
  AboveArguments arguments;
  arguments.threshold = threshold;
  arguments.row_begin =
      upload(runtime, IndexView{row_begin.data, row_begin.rows, row_begin.row_stride, row_begin.device}, staging);
  arguments.columns = in_place(column_output);
  arguments.values = value_output.view();
  arguments.size = columns.rows;
  arguments.first_wrong = first_wrong.data();
  for_log_rows(Side::rows, {}, 0, [&](LogRows const& rows) {
    arguments.rows = rows;
    cuda::entries_above(arguments, runtime->stream());
  });
  column_output.finish();
  value_output.finish();
  return download(*runtime, first_wrong.data(), 1).front();
}

void PlanOperator::sample(std::uint64_t seed, MutableIndexView pairs) {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  cudaStream_t const stream = runtime->stream();
  int const n = problem_.size(Side::rows);
  Output output(runtime, pairs);
  DeviceArray<double> const sums(runtime, n + 1);  // Running sums, then the number of lost rows.
  DeviceArray<std::int64_t> const draws(runtime, n), begin(runtime, n + 1), order(runtime, pairs.rows);
  running_sums(frozen(Side::rows).marginal.data(), n, sums.data(), stream);
  MONGE_CUDA_TRY(cudaMemsetAsync(sums.data() + n, 0, sizeof(double), stream));
  MONGE_CUDA_TRY(cudaMemsetAsync(draws.data(), 0, to_size(draws.bytes()), stream));
  SampleArguments const arguments{
      .seed = seed,
      .count = pairs.rows,
      .rows = n,
      .row_sums = sums.data(),
      .lost_rows = sums.data() + n,
      .row_draws = draws.data(),
      .draw_begin = begin.data(),
      .order = order.data(),
      .pairs = in_place(output),
  };
  draw_rows(arguments, stream);
  static_assert(kSampleTile == kLogitGroup);
  for_log_rows(Side::rows, {.group = sizeof(double)}, 0, [&](LogRows const& rows) {
    draw_columns(arguments, rows, reinterpret_cast<double*>(workspace().selection.data()), stream);
  });
  auto const found = download(*runtime, sums.data() + n - 1, 2);
  require_mass(found[0]);
  require_shares(found[1]);
  output.finish();
}

void PlanOperator::entries_at(IndexView rows, IndexView columns, MutableVectorView values) {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  DeviceArray<unsigned char> row_staging, column_staging;
  Output output(runtime, values);
  cuda::entries_at(
      {
          .scores = problem_.costs->scores(Side::rows),
          .side = {problem_.side(Side::rows), problem_.side(Side::columns)},
          .potential = {potentials_[0].data(), potentials_[1].data()},
          .log2e_over_eps = std::numbers::log2e / eps_,
          .count = values.size(),
          .rows = upload(runtime, rows, row_staging),
          .columns = upload(runtime, columns, column_staging),
          .values = output.view(),
      },
      runtime->stream());
  output.finish();
}

}  // namespace monge::cuda
