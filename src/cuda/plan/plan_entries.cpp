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

/// The most tiles that a tile of rows has in its list, at least 1. Waits.
std::int64_t most_listed(SharedRuntime const& runtime, ListedTiles const& tiles) {
  DeviceArray<int> const counts(runtime, tiles.rows.tiles());
  count_listed(tiles, counts.data(), runtime->stream());
  return std::max<std::int64_t>(std::ranges::max(download(*runtime, counts.data(), counts.size())), 1);
}

/// The caller's indices where kernels can read them; `staging` receives a copy if they lie on the host.
StridedIndices upload(SharedRuntime const& runtime, IndexView from, DeviceArray<unsigned char>& staging) {
  VectorView const bits(from.data, DataType::float64, from.size, from.stride, from.device);
  StridedView const view = cuda::upload(runtime, bits, staging);
  return {static_cast<std::int64_t*>(view.data), view.stride};
}

}  // namespace

template <class Visit>
void PlanOperator::for_log_rows(Side side, std::int64_t scratch_bytes, int fill, Visit const& visit) {
  Frozen& from = frozen(side);
  SharedRuntime const& runtime = problem_.runtime;
  cudaStream_t const stream = runtime->stream();
  Costs const& costs = *problem_.costs;
  Side const other = opposite(side);
  ListedTiles const* const listed = tiles(side);
  std::int64_t const width = size_of(costs.scalar()), all_columns = costs.padded_size(other);
  std::int64_t const padded = costs.padded_size(side);
  std::int64_t const columns =
      listed ? std::min(all_columns, round_up(most_listed(runtime, *listed) * kTilePoints + fill, kRowPadding))
             : all_columns;
  // Of a tile of rows: the numbers of its columns and a bit for each of all.
  std::int64_t const numbers = listed ? columns : 0, words = listed ? divided_up(costs.size(other), 32) : 0;
  std::int64_t const row_bytes = columns * width + (numbers + words) * 4 / kTilePoints + scratch_bytes;
  std::int64_t const fitting = std::max<std::int64_t>(kLogRowBytes / row_bytes / kRowPadding, 1);
  int const most = static_cast<int>(std::min(fitting * kRowPadding, padded));
  int const together =
      static_cast<int>(std::clamp<std::int64_t>(kLogRowBytes / std::max<std::int64_t>(scratch_bytes, 1), 1, most));
  std::int64_t const groups = columns / kLogitGroup;
  grow(runtime, workspace().log_rows, most * (columns + groups) * width);
  grow(runtime, workspace().log_columns, most / kTilePoints * numbers);
  grow(runtime, workspace().log_listed, most / kTilePoints * words);
  grow(runtime, workspace().selection, together * scratch_bytes);
  grow(runtime, workspace().log_factors, all_columns * width);
  log_factors(problem_.side(other), from.transform.logits.factors.data(), workspace().log_factors.data(), stream);

  LogRows rows;
  rows.scalar = costs.scalar();
  rows.values = workspace().log_rows.data();
  void* const largest = workspace().log_rows.data() + most * columns * width;
  rows.largest = largest;
  rows.stride = columns;
  rows.factor = from.plan_factor.data();
  rows.weight = problem_.side(side).weight;
  if (listed) {
    rows.point = listed->rows.point;
    rows.columns = workspace().log_columns.data();
  }
  for (rows.first = 0; rows.first < problem_.size(side); rows.first += most) {
    int const count = static_cast<int>(std::min<std::int64_t>(most, padded - rows.first));
    rows.count = std::min(count, problem_.size(side) - rows.first);
    Costs::Launch pass = costs.launch(side, rows.first, count, Pass::logits);
    PassArguments& arguments = pass.arguments;
    arguments.parameters = from.transform.parameters.data();
    arguments.logits = from.transform.logits.values.data();
    arguments.factors = workspace().log_factors.data();
    arguments.entries = {costs.scalar(), columns, workspace().log_rows.data(), largest};
    if (listed) {
      arguments.references = from.references.data();
      ListedRows const of{.first = rows.first / static_cast<int>(kTilePoints),
                          .count = divided_up(rows.count, kTilePoints),
                          .fill = fill,
                          .listed = workspace().log_listed.data(),
                          .columns = workspace().log_columns.data()};
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
  for_log_rows(side, 0, 0, [&](LogRows const& rows) {
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
  for_log_rows(side, top_k_scratch(problem_.costs->scalar(), arguments.k), arguments.k, [&](LogRows const& rows) {
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
  for_log_rows(Side::rows, 0, 0, [&](LogRows const& rows) {
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
  for_log_rows(Side::rows, 0, 0, [&](LogRows const& rows) {
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
  std::int64_t const tiles = problem_.costs->padded_size(Side::columns) / kSampleTile;
  for_log_rows(Side::rows, tiles * static_cast<std::int64_t>(sizeof(double)), 0, [&](LogRows const& rows) {
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
