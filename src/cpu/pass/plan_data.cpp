#include "cpu/pass/plan_data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "core/numbers.hpp"
#include "cpu/pass/stripe.hpp"

namespace monge::cpu {
namespace {

constexpr double kHuge = 1e30;  // A poor warm start may exceed the range of float.

}  // namespace

SideWeights::SideWeights(std::vector<double> weights)
    : value(std::move(weights)), log2(value.size()), total(std::accumulate(value.begin(), value.end(), 0.0)) {
  std::transform(value.begin(), value.end(), log2.begin(), [](double w) { return std::log2(w); });
}

std::vector<std::int64_t> idle_points(std::vector<double> const& weight) {
  std::vector<std::int64_t> idle;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    if (weight[i] == 0) idle.push_back(static_cast<std::int64_t>(i));
  }
  return idle;
}

template <class T>
Logits<T>::Logits(std::int64_t columns)
    : h(aligned_array<T>(padded_to_panel<T>(columns))),
      beta(aligned_array<T>(padded_to_panel<T>(columns))),
      bias(to_size(columns)) {}

template <class T>
void Logits<T>::set(PlanData<T> const& data, Side columns, HostVector const& potential, double eps) {
  SideWeights const& weights = *data.weights[static_cast<int>(columns)];
  std::span<double const> const norm = data.costs->norm(columns);
  // Finite and not 0, whatever eps is: scores may be 0, and those of forbidden pairs are infinite.
  using Limits = std::numeric_limits<T>;
  double const exact = -data.costs->factor() * std::numbers::log2e / eps;
  double const size =
      std::clamp(std::abs(exact), static_cast<double>(Limits::min()), static_cast<double>(Limits::max()));
  multiplier = static_cast<T>(std::copysign(size, exact));
  offset = -kHuge;
  for (std::size_t j = 0; j < bias.size(); ++j) {
    bias[j] = -kHuge;
    if (weights.value[j] == 0) continue;
    bias[j] = weights.log2[j] + (potential.values()[j] - norm[j]) * (std::numbers::log2e / eps);
    bias[j] = std::clamp(bias[j], -kHuge, kHuge);
    offset = std::max(offset, bias[j]);
  }
  largest = 0;
  for (std::size_t j = 0; j < to_size(padded_to_panel<T>(potential.size())); ++j) {
    if (j >= bias.size() || weights.value[j] == 0) {
      h[j] = kNoWeight<T>;
      beta[j] = 0;
      continue;
    }
    double const shown = bias[j] - offset;
    largest = std::max(largest, std::abs(shown));
    h[j] = static_cast<T>(shown);
    // Where numbers of T are more than 2 apart, logits are noise already. The clamp only keeps beta finite.
    double const remainder = std::clamp(shown - static_cast<double>(h[j]), -1.0, 1.0);
    beta[j] = std::exp2(static_cast<T>(remainder));
  }
}

template struct Logits<float>;
template struct Logits<double>;

}  // namespace monge::cpu
