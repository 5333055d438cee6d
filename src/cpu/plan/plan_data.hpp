// What defines a plan up to eps: costs, weights and potentials; and what a pass over the pairs reads of its columns.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu/geometry/costs.hpp"
#include "cpu/vectors.hpp"
#include "entropic/entropic_operator.hpp"

namespace monge::cpu {

/// The weights of one side with their base-2 logarithms.
struct SideWeights {
  explicit SideWeights(std::vector<double> weights);
  std::vector<double> value, log2;
  double total;
};

/// Costs and weights are shared between an operator and its plans, potentials are each one's own.
template <class T>
struct PlanData {
  std::shared_ptr<Costs<T> const> costs;
  std::shared_ptr<SideWeights const> weights[2];
  HostVector potentials[2];  // f' and g', for the cost C'; of a self problem the first stands for both.
  Penalties penalties;
  bool is_self = false;

  std::vector<double> const& weight(Side side) const { return weights[static_cast<int>(side)]->value; }
  HostVector const& potential(Side side) const { return potentials[is_self ? 0 : static_cast<int>(side)]; }
  HostVector& potential(Side side) { return potentials[is_self ? 0 : static_cast<int>(side)]; }
  double mass() const { return weights[0]->total; }
  /// The same with a potential for each side.
  PlanData with_both_potentials() const {
    PlanData result = *this;
    result.is_self = false;
    result.potential(Side::columns) = potential(Side::columns);
    return result;
  }
};

/// The points of no weight.
std::vector<std::int64_t> idle_points(std::vector<double> const& weight);

/// The logits of a pass but for the scores: t_ij = h_j + multiplier score_ij, with
/// h_j = log2 b_j + (g'_j - norm_j) log2(e) / eps - offset.
template <class T>
struct Logits {
  explicit Logits(std::int64_t columns);
  void set(PlanData<T> const& data, Side columns, HostVector const& potential, double eps);

  AlignedArray<T> h, beta, log2_weight;  // Padded to whole panels.
  std::vector<double> bias;              // What h and beta hold, and offset, in float64.
  T multiplier = 0;
  double offset = 0;   // Taken from every h before rounding: a constant of the potential must not cost digits.
  double largest = 0;  // The largest |h_j| of a point that has weight.
};

}  // namespace monge::cpu
