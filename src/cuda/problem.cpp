#include "cuda/problem.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/evaluation.hpp"

namespace monge::cuda {

Weights::Weights(SharedRuntime const& runtime, std::vector<double> weight)
    : host_(std::move(weight)),
      weight_(uploaded(runtime, host_)),
      has_idle_points_(std::find(host_.begin(), host_.end(), 0.0) != host_.end()) {
  std::vector<double> log_weight(host_.size());
  std::transform(host_.begin(), host_.end(), log_weight.begin(),
                 [](double value) { return value > 0 ? std::log2(value) : 0.0; });
  log_weight_ = uploaded(runtime, log_weight);
}

Logits::Logits(SharedRuntime const& runtime, int padded_size, DataType scalar)
    : values(runtime, padded_size * size_of(scalar)), factors(runtime, scalar == DataType::float32 ? padded_size : 0) {}

PackedSide Problem::side(Side side) const {
  Weights const& weight = *weights[side_index(side)];
  return {costs->size(side), costs->padded_size(side), costs->scalar(),
          weight.weight(),   weight.log_weight(),      costs->norm(side)};
}

SweepParameters parameters_for(Potentials const& potentials, double eps, double relaxation) {
  return {eps,
          eps * std::numbers::ln2,
          std::numbers::log2e / eps,
          relaxation,
          {potentials[0].typical, potentials[1].typical}};
}

Transform transform(Problem const& problem, Side side, Potentials const& potentials, double eps, bool moments) {
  SharedRuntime const& runtime = problem.runtime;
  cudaStream_t const stream = runtime->stream();
  Side const other = opposite(side);
  PackedSide const rows = problem.side(side), columns = problem.side(other);
  Transform result;
  result.parameters = DeviceArray<SweepParameters>(runtime, 1);
  set_parameters({result.parameters.data(), parameters_for(potentials, eps, 1.0)}, stream);
  result.logits = Logits(runtime, columns.padded_size, columns.scalar);
  DeviceArray<double> const slopes(runtime, moments ? columns.padded_size : 0);
  make_logits({side_index(other), columns, potentials[side_index(other)].data(), result.parameters.data(),
               result.logits.arrays(), slopes.data()},
              stream);

  Costs::Launch pass = problem.costs->launch(side, moments ? Pass::moments : Pass::softmin);
  std::int64_t const parts = static_cast<std::int64_t>(rows.padded_size) * pass.plan.work.slots;
  DeviceArray<unsigned char> const partials(runtime, parts * 2 * size_of(rows.scalar));
  DeviceArray<double> const moment_sums(runtime, moments ? parts : 0);
  pass.arguments.logits = result.logits.values.data();
  pass.arguments.factors = result.logits.factors.data();
  pass.arguments.slopes = slopes.data();
  pass.arguments.parameters = result.parameters.data();
  pass.arguments.partials = partials.data();
  pass.arguments.moments = moment_sums.data();
  launch_pass(pass.plan, pass.arguments, stream);

  for (DeviceArray<double>* array : {&result.plus, &result.reference, &result.sum})
    *array = DeviceArray<double>(runtime, rows.size);
  if (moments) result.mean = DeviceArray<double>(runtime, rows.size);
  softmin_values(
      {side_index(side), rows, partials.data(), moment_sums.data(), pass.plan.work, result.parameters.data()},
      {result.plus.data(), result.reference.data(), result.sum.data(), result.mean.data()}, stream);
  return result;
}

Evaluation evaluate(Problem const& problem, Potentials const& potentials, double eps) {
  Runtime const& runtime = *problem.runtime;
  struct Host {
    std::vector<double> marginal, potential, shift;
  };
  auto const gather = [&](Side side, Transform const& from) {
    std::int64_t const count = problem.size(side);
    DeviceVector const& potential = potentials[side_index(side)];
    DeviceArray<double> const result(problem.runtime, count);
    marginal(problem.side(side), potential.data(), from.plus.data(), from.parameters.data(), result.data(),
             runtime.stream());
    return Host{download(runtime, result.data(), count), download(runtime, potential.data(), count),
                download(runtime, problem.costs->shift(side), count)};
  };
  Transform const row = transform(problem, Side::rows, potentials, eps, true);
  Host const rows = gather(Side::rows, row);
  Host const columns = gather(Side::columns, transform(problem, Side::columns, potentials, eps, false));
  std::int64_t const n = problem.size(Side::rows);
  std::vector<double> const norm = download(runtime, problem.costs->norm(Side::rows), n);
  std::vector<double> const mean = download(runtime, row.mean.data(), n);

  // C'_ij = norm_i + g'_j - eps ln2 (t_ij - log2 b_j), summed under P.
  double row_cost = 0;
  for (std::size_t i = 0; i < norm.size(); ++i) {
    if (rows.marginal[i] > 0) row_cost += rows.marginal[i] * (norm[i] - eps * std::numbers::ln2 * mean[i]);
  }
  double const column_cost =
      std::inner_product(columns.marginal.begin(), columns.marginal.end(), columns.potential.begin(), 0.0);
  return evaluate_plan(eps, {problem.weights[0]->host(), rows.marginal, rows.potential, rows.shift},
                       {problem.weights[1]->host(), columns.marginal, columns.potential, columns.shift},
                       row_cost + column_cost);
}

void store_potential(Problem const& problem, Side side, DeviceVector const& potential, double const* plus,
                     MutableVectorView out) {
  cudaStream_t const stream = problem.runtime->stream();
  DeviceArray<double> const chosen(problem.runtime, plus ? potential.size() : 0);
  if (plus) choose_idle(problem.side(side), potential.data(), plus, chosen.data(), stream);
  Output output(problem.runtime, out);
  store_vector(output.view(), potential.size(), plus ? chosen.data() : potential.data(), problem.costs->shift(side),
               stream);
  output.finish();
}

}  // namespace monge::cuda
