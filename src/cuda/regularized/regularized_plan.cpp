#include "cuda/regularized/regularized_plan.hpp"

#include "core/require.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/vectors/kernels.hpp"

namespace monge::cuda {
namespace {

StridedIndices in_place(Output const& output) {
  return {static_cast<std::int64_t*>(output.view().data), output.view().stride};
}

MatrixView readable(MutableIndexView const& view) {
  return {view.data, DataType::float64, view.rows, view.columns, view.row_stride, view.device};
}

/// A matrix or a vector of float64 on the device.
StridedView on_device(double* data) {
  return {data, 1, DataType::float64};
}

}  // namespace

RegularizedReadout::RegularizedReadout(RegularizedCosts const& costs) {
  std::int64_t const n = costs.order().size, m = costs.columns();
  memory_ = allocate_parts(costs.runtime(), Part{u_, n}, Part{v_, m}, Part{p_, n}, Part{q_, m},
                           Part{marginal_[0], costs.rows()}, Part{marginal_[1], m},
                           Part{parts_, entry_value_parts(costs.matrix().columns)}, Part{result_, 1});
  std::vector<double> const p = costs.in_order(costs.of(Side::rows).share);
  upload(*costs.runtime(), p.data(), p_, n * static_cast<std::int64_t>(sizeof(double)));
  upload(*costs.runtime(), costs.of(Side::columns).share.data(), q_, m * static_cast<std::int64_t>(sizeof(double)));
}

RegularizedValues RegularizedReadout::evaluate(RegularizedCosts const& costs, RegularizedEntries const& entries,
                                               DualBound bound) const {
  cudaStream_t const stream = costs.runtime()->stream();
  for (Side const side : kSides) {
    multiply_entries({.entries = entries,
                      .side = side,
                      .factor = 1,
                      .averaged = false,
                      .values = {},
                      .width = 1,
                      .out = on_device(marginal_[side_index(side)])},
                     stream);
  }
  evaluate_entries({.entries = entries,
                    .terms = costs.terms(),
                    .p = p_,
                    .q = q_,
                    .u = u_,
                    .bound = bound,
                    .v = v_,
                    .marginal = {marginal_[0], marginal_[1]},
                    .parts = parts_,
                    .result = result_},
                   stream);
  return download(*costs.runtime(), result_, 1)[0];
}

void RegularizedReadout::potentials(RegularizedCosts const& costs, double depth, MutableVectorView u,
                                    MutableVectorView v) const {
  CostScale const& scale = costs.scale();
  cudaStream_t const stream = costs.runtime()->stream();
  DeviceArray<double> lowered[2];
  auto const read = [&](Side side) -> double const* {
    double const* const potential = side == Side::rows ? u_ : v_;
    if (depth == 0) return potential;
    std::vector<double> const& given = costs.of(side).share;
    std::vector<double> const shares = side == Side::rows ? costs.in_order(given) : given;
    std::vector<double> values = download(*costs.runtime(), potential, std::ssize(shares));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (shares[i] == 0) values[i] -= depth / scale.range;
    }
    return (lowered[side_index(side)] = uploaded(costs.runtime(), values)).data();
  };
  Output u_output(costs.runtime(), u), v_output(costs.runtime(), v);
  store_rows(costs.order(), read(Side::rows), scale.range, scale.offset / 2, u_output.view(), stream);
  store_rows({costs.matrix().columns}, read(Side::columns), scale.range, scale.offset / 2, v_output.view(), stream);
  u_output.finish();
  v_output.finish();
}

void dense(RegularizedCosts const& costs, RegularizedEntries const& entries, MutableMatrixView out) {
  Output output(costs.runtime(), out);
  dense_entries(entries, costs.scale().mass, output.view(), costs.runtime()->stream());
  output.finish();
}

std::int64_t nonzeros(RegularizedCosts const& costs, RegularizedEntries const& entries, MutableIndexView row_begin) {
  SharedRuntime const& runtime = costs.runtime();
  Output output(runtime, row_begin);
  DeviceArray<std::int64_t> const counts(runtime, costs.rows());
  NonzeroArguments arguments;
  arguments.entries = entries;
  arguments.counts = counts.data();
  cuda::nonzero_entries(arguments, runtime->stream());
  StridedIndices const begin = in_place(output);
  running_sums(counts.data(), costs.rows(), begin, runtime->stream());
  std::int64_t const total = download(*runtime, begin.data + costs.rows() * begin.stride, 1)[0];
  output.finish();
  return total;
}

void nonzero_entries(RegularizedCosts const& costs, RegularizedEntries const& entries, MutableIndexView row_begin,
                     MutableIndexView columns, MutableVectorView values) {
  SharedRuntime const& runtime = costs.runtime();
  DeviceArray<unsigned char> staging;
  Output column_output(runtime, columns), value_output(runtime, values);
  DeviceArray<std::int64_t> const first_wrong = uploaded(runtime, std::vector<std::int64_t>{costs.rows()});
  StridedView const begin = upload(runtime, readable(row_begin), staging);
  NonzeroArguments arguments;
  arguments.entries = entries;
  arguments.factor = costs.scale().mass;
  arguments.row_begin = {static_cast<std::int64_t*>(begin.data), begin.stride};
  arguments.columns = in_place(column_output);
  arguments.values = value_output.view();
  arguments.size = columns.rows;
  arguments.first_wrong = first_wrong.data();
  cuda::nonzero_entries(arguments, runtime->stream());
  column_output.finish();
  value_output.finish();
  std::int64_t const wrong = download(*runtime, first_wrong.data(), 1)[0];
  require(wrong == costs.rows(),
          "row_begin: row {} does not hold exactly its entries; must be what nonzeros() gave, with columns and values "
          "as long as it returned",
          wrong);
}

void marginal(RegularizedCosts const& costs, RegularizedEntries const& entries, Side side, MutableVectorView out) {
  Output output(costs.runtime(), out);
  multiply_entries({.entries = entries,
                    .side = side,
                    .factor = costs.scale().mass,
                    .averaged = false,
                    .values = {},
                    .width = 1,
                    .out = output.view()},
                   costs.runtime()->stream());
  output.finish();
}

void product(RegularizedCosts const& costs, RegularizedEntries const& entries, Side side, bool averaged,
             MatrixView values, MutableMatrixView out) {
  DeviceArray<unsigned char> staging;
  Output output(costs.runtime(), out);
  multiply_entries({.entries = entries,
                    .side = side,
                    .factor = costs.scale().mass,
                    .averaged = averaged,
                    .values = upload(costs.runtime(), values, staging),
                    .width = static_cast<int>(values.columns()),
                    .out = output.view()},
                   costs.runtime()->stream());
  output.finish();
}

}  // namespace monge::cuda
