#include "cuda/second_order/entry_solver.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "plan/plan_operator.hpp"

namespace monge::cuda {
namespace {

/// The number of steps leaves at most kReduction of an eigenvector whose eigenvalue is at least kLeastEigenvalue. It
/// grows as 1 / sqrt(kLeastEigenvalue).
constexpr double kReduction = 0.1, kLeastEigenvalue = 1e-3;

/// Pairs sorted by one of their points; pairs with the same point keep their order.
struct Sorted {
  std::vector<int> begin, order;
};

Sorted sorted(std::int64_t count, std::vector<std::int64_t> const& points) {
  Sorted result{std::vector<int>(static_cast<std::size_t>(count) + 1), std::vector<int>(points.size())};
  for (std::int64_t const point : points) ++result.begin[static_cast<std::size_t>(point) + 1];
  std::partial_sum(result.begin.begin(), result.begin.end(), result.begin.begin());
  std::vector<int> next(result.begin.begin(), result.begin.end() - 1);
  for (std::size_t k = 0; k < points.size(); ++k)
    result.order[static_cast<std::size_t>(next[static_cast<std::size_t>(points[k])]++)] = static_cast<int>(k);
  return result;
}

template <class T>
std::vector<T> in_order(std::vector<int> const& order, std::span<std::int64_t const> values) {
  std::vector<T> result;
  for (int const k : order) result.push_back(static_cast<T>(values[static_cast<std::size_t>(k)]));
  return result;
}

}  // namespace

EntrySolver::EntrySolver(SharedRuntime runtime, std::int64_t n, std::int64_t m, std::span<std::int64_t const> rows,
                         std::span<std::int64_t const> columns)
    : runtime_(std::move(runtime)),
      vectors_(runtime_, n, m),
      entries_(runtime_, std::ssize(rows)),
      inverse_diagonal_(runtime_, m),
      between_(runtime_, n),
      direction_(runtime_, m),
      right_(runtime_, m) {
  DeviceGuard const guard(runtime_->index());
  Sorted const by_rows = sorted(n, {rows.begin(), rows.end()});
  std::vector<std::int64_t> const pair_rows = in_order<std::int64_t>(by_rows.order, rows);
  std::vector<std::int64_t> const pair_columns = in_order<std::int64_t>(by_rows.order, columns);
  Sorted const by_columns = sorted(m, pair_columns);
  pair_rows_ = uploaded(runtime_, pair_rows);
  pair_columns_ = uploaded(runtime_, pair_columns);
  order_ = uploaded(runtime_, by_columns.order);
  by_rows_ = upload_lines(by_rows.begin, in_order<int>(by_rows.order, columns));
  by_columns_ = upload_lines(by_columns.begin, in_order<int>(by_columns.order, pair_rows));
}

EntrySolver::Lines EntrySolver::upload_lines(std::vector<int> const& begin, std::vector<int> const& index) const {
  return {static_cast<int>(begin.size()) - 1, uploaded(runtime_, begin), uploaded(runtime_, index),
          DeviceArray<double>(runtime_, std::ssize(index))};
}

void EntrySolver::set(PlanEntries& plan, Vector const& a, Vector const& c) {
  DeviceGuard const guard(runtime_->index());
  Device const device{DeviceType::cuda, runtime_->index()};
  std::int64_t const count = entries_.size();
  if (count > 0)
    plan.entries_at({pair_rows_.data(), count, 1, device}, {pair_columns_.data(), count, 1, device},
                    {entries_.data(), DataType::float64, count, 1, device});
  scale_entries({by_rows_.view(), by_columns_.view(), order_.data(), entries_.data(), on_device(a).data(),
                 on_device(c).data(), inverse_diagonal_.data(), between_.data(), right_.data()},
                runtime_->stream());
  // No row sum of diag(1/c) E^T diag(1/a) E, and so no eigenvalue, exceeds 1 - least.
  least_ = std::clamp(1 - vectors_.norms(right_).largest, kLeastEigenvalue, 1.0);
  // Chebyshev's polynomial starts at 2 and falls by a factor exp(-2 sqrt(least)) in each step.
  steps_ = least_ < 1 ? static_cast<int>(std::ceil(std::log(2 / kReduction) / (2 * std::sqrt(least_)))) : 0;
}

void EntrySolver::solve(Vector const& in, Vector& out) {
  DeviceGuard const guard(runtime_->index());
  cudaStream_t const stream = runtime_->stream();
  double const centre = (1 + least_) / 2, radius = (1 - least_) / 2, ratio = centre / radius;
  first_entry_step({by_columns_.count, inverse_diagonal_.data(), on_device(in).data(), 1 / centre, right_.data(),
                    direction_.data(), written(&out)},
                   stream);
  double last = 1 / ratio;
  for (int k = 0; k < steps_; ++k) {
    double const next = 1 / (2 * ratio - last);
    entry_step({by_rows_.view(), by_columns_.view(), between_.data(), next * last, 2 * next / radius, right_.data(),
                direction_.data(), on_device(out).data()},
               stream);
    last = next;
  }
}

}  // namespace monge::cuda
