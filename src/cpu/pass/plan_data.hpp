// The data that define a plan up to eps: costs, weights and potentials; and the logits of the columns of a pass.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/pass/costs.hpp"
#include "cpu/runtime/vectors.hpp"
#include "seam/entropic_operator.hpp"

namespace monge::cpu {

/// The weights of one side with their base-2 logarithms.
struct SideWeights {
  explicit SideWeights(std::vector<double> weights);
  std::vector<double> value, log2;
  double total;
};

struct Ordering;  // cpu/pass/plan_tiles.hpp

/// An operator and its plans share costs and weights; each has its own potentials.
template <class T>
struct PlanData {
  std::shared_ptr<Costs<T> const> costs;
  std::shared_ptr<SideWeights const> weights[2];
  HostVector potentials[2];  // f' and g', for the cost C'; a self problem uses the first for both sides.
  Penalties penalties;
  bool is_self = false;
  std::shared_ptr<Ordering const> ordering;  // Null where points have the caller's order and passes take all pairs.

  std::vector<double> const& weight(Side side) const { return weights[static_cast<int>(side)]->value; }
  HostVector const& potential(Side side) const { return potentials[is_self ? 0 : static_cast<int>(side)]; }
  HostVector& potential(Side side) { return potentials[is_self ? 0 : static_cast<int>(side)]; }
  double mass() const { return weights[0]->total; }
  /// A copy with a separate potential for each side.
  PlanData with_both_potentials() const {
    PlanData result = *this;
    result.is_self = false;
    result.potential(Side::columns) = potential(Side::columns);
    result.potential(Side::columns).set_side(Side::columns);
    return result;
  }
};

/// The points of zero weight.
std::vector<std::int64_t> idle_points(std::vector<double> const& weight);

/// The logits of a pass without the scores: t_ij = h_j + multiplier score_ij, with
/// h_j = log2 b_j + (g'_j - norm_j) log2(e) / eps - offset.
template <class T>
struct Logits {
  explicit Logits(std::int64_t columns);
  void set(PlanData<T> const& data, Side columns, HostVector const& potential, double eps);

  AlignedArray<T> h, beta;   // Padded to whole panels.
  std::vector<double> bias;  // h + log2 beta + offset, in float64.
  T multiplier = 0;
  double offset = 0;   // Subtracted from every h before rounding, so that a constant of the potential costs no digits.
  double largest = 0;  // The largest |h_j| over points of positive weight.
};

}  // namespace monge::cpu
