// Products with concentrated vectors (plan/concentration.hpp). Few plans have any, so their data may go through the
// host.
#include <algorithm>
#include <cmath>

#include "core/numbers.hpp"
#include "cuda/plan/plan_operator.hpp"
#include "cuda/vectors/kernels.hpp"
#include "plan/concentration.hpp"

namespace monge::cuda {
namespace {

/// The largest |R_jk| of row j.
double largest_of(std::vector<double> const& r, std::size_t j, int inner) {
  auto const row = r.begin() + static_cast<std::ptrdiff_t>(j) * inner;
  double largest = 0;
  std::for_each(row, row + inner, [&](double value) { largest = std::max(largest, std::abs(value)); });
  return largest;
}

}  // namespace

/// The argument of Concentration::exceeds(). Passes in float32 lose shares below 2^-126; entries, in two fp16 numbers,
/// are off by 2^-40.
double PlanOperator::reach(bool of_entries) const {
  if (problem_.costs->scalar() == DataType::float64) return 0x1p800;
  return of_entries ? 0x1p20 : 0x1p60;
}

/// The ratio for the marginal if the caller knows it, for then a vector may be as large as its reciprocal; else for the
/// weights.
double PlanOperator::mean_over_least(Side side) const {
  std::optional<Frozen> const& known = frozen_[side_index(side)];
  if (!known || !known->is_given) return known_mean_over_least_[side_index(side)];
  if (!known->mean_over_least)
    known->mean_over_least =
        cuda::mean_over_least(download(*problem_.runtime, known->marginal.data(), known->marginal.size()));
  return *known->mean_over_least;
}

/// V has a row for each point of the other side; with R each row has the factor max_k |R_jk|. Waits, unless the least
/// mass of a point shows that no column is concentrated.
std::vector<PlanOperator::HostColumn> PlanOperator::concentrated(Side side, StridedView const& v, int width,
                                                                 StridedView const* r, int inner, double reach) {
  Side const far = opposite(side);
  if (mean_over_least(far) <= reach) return {};
  Runtime const& runtime = *problem_.runtime;
  int const points = problem_.size(far);
  auto const on_host = [&](StridedView const& from, int columns) {
    DeviceVector copy(problem_.runtime, points, columns);
    load_vector(from, copy.size(), columns, nullptr, copy.data(), runtime.stream());
    return download(runtime, copy.data(), copy.size());
  };
  std::optional<Frozen> const& known = frozen_[side_index(far)];
  bool const is_given = known && known->is_given;
  std::vector<double> const& weight = problem_.weights[side_index(far)]->host();
  std::vector<double> const marginal =
      is_given ? download(runtime, known->marginal.data(), points) : std::vector<double>();
  std::vector<double> values = on_host(v, width), factors = r ? on_host(*r, inner) : std::vector<double>();
  std::vector<HostColumn> result;
  for (int p = 0; p < width; ++p) {
    std::vector<double> column(weight.size());
    Concentration concentration;
    for (std::size_t j = 0; j < column.size(); ++j) {
      if (weight[j] == 0) continue;
      column[j] = values[j * to_size(width) + to_size(p)];
      if (r) column[j] *= largest_of(factors, j, inner);
      concentration.add(is_given ? marginal[j] : weight[j], std::abs(column[j]));
    }
    if (concentration.exceeds(reach, is_given)) result.push_back({p, std::move(column)});
  }
  return result;
}

/// P v = P' s for the signs s of v and a plan P' whose potentials have eps log |v| beside this plan's. With R, v_j has
/// the factor max_k |R_jk|, and s_j is divided by it.
PlanOperator::Scaled PlanOperator::scaled(Side side, std::vector<double> const& v, StridedView const* r,
                                          int inner) const {
  SharedRuntime const& runtime = problem_.runtime;
  cudaStream_t const stream = runtime->stream();
  Side const far = opposite(side);
  int const points = problem_.size(far);
  std::vector<double> weight = problem_.weights[side_index(far)]->host(), sign(v.size()), change(v.size());
  for (std::size_t j = 0; j < v.size(); ++j) {
    if (v[j] == 0) weight[j] = 0;
    if (weight[j] == 0) continue;
    sign[j] = std::copysign(1.0, v[j]);
    change[j] = eps_ * std::log(std::abs(v[j]));
  }
  if (r) {
    DeviceVector factors(runtime, points, inner);
    load_vector(*r, factors.size(), inner, nullptr, factors.data(), stream);
    std::vector<double> const on_host = download(*runtime, factors.data(), factors.size());
    for (std::size_t j = 0; j < sign.size(); ++j) sign[j] = sign[j] == 0 ? 0 : sign[j] / largest_of(on_host, j, inner);
  }
  DeviceVector signs(runtime, points), changes(runtime, points);
  vectors_.read(MatrixView(sign.data(), points, 1), signs);
  vectors_.read(MatrixView(change.data(), points, 1), changes);
  Problem problem = problem_;
  problem.is_self = false;
  problem.weights[side_index(far)] = std::make_shared<Weights>(runtime, std::move(weight), stream);
  Potentials potentials;
  for (Side const each : kSides) {
    DeviceVector const& from = potentials_[side_index(each)];
    DeviceVector& copy = potentials[side_index(each)] = DeviceVector(runtime, from.size());
    vectors_.copy(from, copy);
    if (each == far) vectors_.combine({{1, &copy}, {1, &changes}}, copy);
  }
  return {std::make_unique<PlanOperator>(std::move(problem), potentials, eps_, 0, 0, stream), std::move(signs)};
}

/// out = P v, shares of it or, with L and R, (P o L R^T) v where v_j has the factor max_k |R_jk|, for a concentrated v.
void PlanOperator::multiply_concentrated(Side side, Scaling scaling, std::vector<double> const& v, StridedView const* l,
                                         StridedView const* r, int inner, StridedView const& out) {
  SharedRuntime const& runtime = problem_.runtime;
  int const rows = problem_.size(side);
  auto const [plan, signs] = scaled(side, v, r, inner);
  if (r) return plan->multiply_hadamard(side, *l, *r, inner, signs.strided(), 1, out);
  if (scaling == Scaling::plan) return plan->multiply_columns(side, scaling, signs.strided(), 1, nullptr, out, false);
  DeviceVector mean(runtime, rows);
  plan->multiply_columns(side, scaling, signs.strided(), 1, nullptr, mean.strided(), false);
  std::vector<double> values = download(*runtime, mean.data(), rows);
  std::vector<double> const before = download(*runtime, frozen(side).transform.plus.data(), rows),
                            after = download(*runtime, plan->frozen(side).transform.plus.data(), rows);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::isinf(after[i]) ? 0 : values[i] * std::exp((before[i] - after[i]) / eps_);
  vectors_.read(MatrixView(values.data(), rows, 1), mean);
  store_vector(out, rows, 1, mean.data(), nullptr, runtime->stream());
}

}  // namespace monge::cuda
