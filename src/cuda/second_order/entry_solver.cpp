#include "cuda/second_order/entry_solver.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace monge::cuda {
namespace {

/// What the iteration leaves of an eigenvector, and the least eigenvalue that it does so for: the steps grow with the
/// root of its inverse.
constexpr double kReduction = 0.1, kLeastEigenvalue = 1e-3;

}  // namespace

EntrySolver::EntrySolver(SharedRuntime runtime, int n, int m, std::span<std::int64_t const> rows,
                         std::span<std::int64_t const> columns)
    : runtime_(std::move(runtime)),
      n_(n),
      m_(m),
      pair_rows_(rows.begin(), rows.end()),
      pair_columns_(columns.begin(), columns.end()),
      by_rows_(sorted(n, rows, columns)),
      by_columns_(sorted(m, columns, rows)),
      inverse_diagonal_(runtime_, m),
      between_(runtime_, n),
      right_(runtime_, m),
      direction_(runtime_, m) {}

EntrySolver::Lines EntrySolver::sorted(int count, std::span<std::int64_t const> lines,
                                       std::span<std::int64_t const> others) const {
  DeviceGuard const guard(runtime_->index());
  std::vector<int> begin(static_cast<std::size_t>(count) + 1), index(lines.size());
  for (std::int64_t const line : lines) ++begin[static_cast<std::size_t>(line) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  Lines result;
  result.order.resize(lines.size());
  std::vector<int> next(begin.begin(), begin.end() - 1);
  for (std::size_t k = 0; k < lines.size(); ++k) {
    std::size_t const place = static_cast<std::size_t>(next[static_cast<std::size_t>(lines[k])]++);
    result.order[place] = static_cast<std::int64_t>(k);
    index[place] = static_cast<int>(others[k]);
  }
  result.begin = uploaded(runtime_, begin);
  result.index = uploaded(runtime_, index);
  result.value = DeviceArray<double>(runtime_, static_cast<std::int64_t>(lines.size()));
  return result;
}

SparseLines EntrySolver::view(Lines const& lines, int count) const {
  return {count, lines.begin.data(), lines.index.data(), lines.value.data()};
}

void EntrySolver::set(std::span<double const> a, std::span<double const> c, std::span<double const> entries) {
  DeviceGuard const guard(runtime_->index());
  auto const inverse = [](double value) { return value > 0 ? 1 / value : 1.0; };
  std::vector<double> of_rows(static_cast<std::size_t>(n_)), of_columns(static_cast<std::size_t>(m_));
  std::transform(a.begin(), a.end(), of_rows.begin(), inverse);
  std::transform(c.begin(), c.end(), of_columns.begin(), inverse);
  // diag(1/c) E^T diag(1/a) E has no row sum, and so no eigenvalue, above 1 - least.
  std::vector<double> share(static_cast<std::size_t>(n_)), sum(static_cast<std::size_t>(m_));
  auto const row = [&](std::size_t k) { return static_cast<std::size_t>(pair_rows_[k]); };
  auto const column = [&](std::size_t k) { return static_cast<std::size_t>(pair_columns_[k]); };
  for (std::size_t k = 0; k < entries.size(); ++k) share[row(k)] += entries[k] * of_rows[row(k)];
  for (std::size_t k = 0; k < entries.size(); ++k) sum[column(k)] += entries[k] * of_columns[column(k)] * share[row(k)];
  double const most = sum.empty() ? 0 : *std::max_element(sum.begin(), sum.end());
  least_ = std::clamp(1 - most, kLeastEigenvalue, 1.0);
  // Chebyshev's polynomial falls by exp(-2 sqrt(least)) a step, from 2.
  steps_ = least_ < 1 ? static_cast<int>(std::ceil(std::log(2 / kReduction) / (2 * std::sqrt(least_)))) : 0;

  auto const upload_values = [&](Lines& lines, std::vector<double> const& factor, auto const& line) {
    std::vector<double> values(entries.size());
    for (std::size_t k = 0; k < values.size(); ++k) {
      std::size_t const pair = static_cast<std::size_t>(lines.order[k]);
      values[k] = entries[pair] * factor[line(pair)];
    }
    upload(*runtime_, values.data(), lines.value.data(), lines.value.bytes());
  };
  upload_values(by_rows_, of_rows, row);
  upload_values(by_columns_, of_columns, column);
  upload(*runtime_, of_columns.data(), inverse_diagonal_.data(), inverse_diagonal_.bytes());
}

void EntrySolver::solve(Vector const& in, Vector& out) {
  DeviceGuard const guard(runtime_->index());
  cudaStream_t const stream = runtime_->stream();
  double const centre = (1 + least_) / 2, radius = (1 - least_) / 2, ratio = centre / radius;
  first_entry_step(
      {m_, inverse_diagonal_.data(), on_device(in).data(), 1 / centre, right_.data(), direction_.data(), written(&out)},
      stream);
  double last = 1 / ratio;
  for (int k = 0; k < steps_; ++k) {
    double const next = 1 / (2 * ratio - last);
    entry_step({view(by_rows_, n_), view(by_columns_, m_), between_.data(), next * last, 2 * next / radius,
                right_.data(), direction_.data(), on_device(out).data()},
               stream);
    last = next;
  }
}

}  // namespace monge::cuda
