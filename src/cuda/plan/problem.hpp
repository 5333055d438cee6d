// One entropic problem on a CUDA device: costs and weights, shared by the operator that sweeps and by its plans;
// half-steps and evaluations outside the sweeps.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "cuda/geometry/costs.hpp"
#include "cuda/sweep/plan_sums.hpp"
#include "cuda/sweep/update.hpp"
#include "cuda/vectors/kernels.hpp"
#include "cuda/vectors/vectors.hpp"
#include "seam/entropic_operator.hpp"

namespace monge::cuda {

/// The mean of the positive masses over the least of them.
double mean_over_least(std::vector<double> const& masses);

/// The weights of one side, on the host and on the device, there also as log2.
class Weights {
 public:
  Weights(SharedRuntime const& runtime, std::vector<double> weight, Queue const& queue);
  /// `weight` must have the same size as before.
  void set(Runtime const& runtime, std::vector<double> weight, Queue const& queue);

  std::vector<double> const& host() const { return host_; }
  double total() const { return total_; }
  double const* weight() const { return device_.data(); }
  double const* log_weight() const { return device_.data() + host_.size(); }
  PointWeights of_points() const { return {weight(), total_}; }
  bool has_idle_points() const { return has_idle_points_; }
  /// The mean of the positive weights over the least one.
  double mean_over_least() const { return mean_over_least_; }

 private:
  std::vector<double> host_;
  double total_ = 0, mean_over_least_ = 1;
  DeviceArray<double> device_;  // The weights, then log2 of each.
  bool has_idle_points_ = false;
};

/// Logits of one side, for passes whose columns are that side.
struct Logits {
  Logits() = default;
  Logits(SharedRuntime const& runtime, int padded_size, DataType scalar);
  LogitArrays arrays() const { return {values.data(), factors.data()}; }

  DeviceArray<unsigned char> values;
  DeviceArray<float> factors;
};

/// A pair of potentials, each in the centred gauge (f', g').
using Potentials = DeviceVector[2];

struct Ordering;  // cuda/geometry/ordering.hpp

struct Problem {
  SharedRuntime runtime;
  std::shared_ptr<Costs const> costs;
  std::shared_ptr<Weights> weights[2];
  Precision precision = Precision::float32;
  bool is_self = false;  // EntropicOperator::is_self(): f = g, and both sides share one Weights.
  Penalties penalties;
  std::shared_ptr<Ordering const> ordering;  // Null where passes take all pairs.

  int size(Side side) const { return costs->size(side); }
  PackedSide side(Side side) const;
};

/// The result of a half-step outside the sweeps, with its parameters and logits.
struct Transform {
  DeviceArray<SweepParameters> parameters;
  Logits logits;                       // Logits of the other side.
  DeviceArray<double> plus;            // f+
  DeviceArray<double> reference, sum;  // SoftminValues of the rows.
};
/// Only the parameters and logits of a Transform.
Transform transform_logits(Problem const& problem, Side side, Potentials const& potentials, double eps);
/// Over the given tiles alone, unless these are null.
Transform transform(Problem const& problem, Side side, Potentials const& potentials, double eps,
                    ListedTiles const* tiles = nullptr);

SweepParameters parameters_for(Potentials const& potentials, double eps, double relaxation);

/// The number of PlanSums for both sides.
std::int64_t plan_sum_count(Problem const& problem);
/// Writes the PlanSums to device memory.
void sum_plan(Problem const& problem, Potentials const& potentials, double eps, PlanSumsOutput const& out,
              Queue const& queue);
/// The tiles of passes over a plan whose rows are the points of a side, and what the marginals lack, by point.
struct PlanLists {
  ListedTiles tiles[2];
  double const* left_out[2] = {};
};
/// The same over the given tiles.
void sum_plan(Problem const& problem, PlanLists const& lists, Potentials const& potentials, double eps,
              PlanSumsOutput const& out);
/// The values of the plan from a host copy of its PlanSums.
Evaluation evaluation_of(Problem const& problem, std::span<PlanSums const> parts, double eps);
/// Waits.
Evaluation evaluate(Problem const& problem, Potentials const& potentials, double eps, PlanMarginals const& marginals);

/// Writes the user's potential f' + shift to the caller's memory. Points of zero weight get the value that an update
/// from `idle`, the side's transform, would give them; without `idle` they keep their own.
void store_potential(Problem const& problem, Side side, DeviceVector const& potential, Transform const* idle,
                     MutableVectorView out);

}  // namespace monge::cuda
