// One entropic problem on a CUDA device: costs, weights and what a half-step outside the sweeps gives. Shared by the
// operator that sweeps and the plans it makes.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "cuda/entropic/plan_sums.hpp"
#include "cuda/entropic/update.hpp"
#include "cuda/geometry/costs.hpp"
#include "cuda/vectors/kernels.hpp"
#include "cuda/vectors/vectors.hpp"
#include "entropic/entropic_operator.hpp"

namespace monge::cuda {

/// Of one side: on the host, and on the device with log2.
class Weights {
 public:
  Weights(SharedRuntime const& runtime, std::vector<double> weight, Queue const& queue);
  /// As many others.
  void set(Runtime const& runtime, std::vector<double> weight, Queue const& queue);

  std::vector<double> const& host() const { return host_; }
  double total() const { return total_; }
  double const* weight() const { return device_.data(); }
  double const* log_weight() const { return device_.data() + host_.size(); }
  PointWeights of_points() const { return {weight(), total_}; }
  bool has_idle_points() const { return has_idle_points_; }

 private:
  std::vector<double> host_;
  double total_ = 0;
  DeviceArray<double> device_;  // The weights, then log2 of each.
  bool has_idle_points_ = false;
};

/// Logits of one side, for passes whose columns it is.
struct Logits {
  Logits() = default;
  Logits(SharedRuntime const& runtime, int padded_size, DataType scalar);
  LogitArrays arrays() const { return {values.data(), factors.data()}; }

  DeviceArray<unsigned char> values;
  DeviceArray<float> factors;
};

/// A pair of potentials, each in the centred gauge (f', g').
using Potentials = DeviceVector[2];

struct Problem {
  SharedRuntime runtime;
  std::shared_ptr<Costs const> costs;
  std::shared_ptr<Weights> weights[2];
  Precision precision = Precision::float32;
  bool is_self = false;  // EntropicOperator::is_self(): one Weights, and potentials of both sides that are equal.
  Penalties penalties;

  int size(Side side) const { return costs->size(side); }
  PackedSide side(Side side) const;
};

/// The result of a half-step outside the sweeps, and what it was computed with.
struct Transform {
  DeviceArray<SweepParameters> parameters;
  Logits logits;                       // Of the other side.
  DeviceArray<double> plus;            // f+
  DeviceArray<double> reference, sum;  // As SoftminValues.
};
/// The logits and the parameters; the rest is still to come.
Transform transform_logits(Problem const& problem, Side side, Potentials const& potentials, double eps);
Transform transform(Problem const& problem, Side side, Potentials const& potentials, double eps);

SweepParameters parameters_for(Potentials const& potentials, double eps, double relaxation);

/// How many PlanSums there are of the sides together.
std::int64_t plan_sum_count(Problem const& problem);
/// What the values of the plan are made of, to device memory.
void sum_plan(Problem const& problem, Potentials const& potentials, double eps, PlanSumsOutput const& out,
              Queue const& queue);
/// From those parts, on the host.
Evaluation evaluation_of(Problem const& problem, std::span<PlanSums const> parts, double eps);
/// Waits.
Evaluation evaluate(Problem const& problem, Potentials const& potentials, double eps, PlanMarginals const& marginals);

/// The user's potential, f' + shift, to wherever the caller wants it; points of no weight get what an update from
/// `idle`, the side's transform, would give them. Null leaves them as they are.
void store_potential(Problem const& problem, Side side, DeviceVector const& potential, Transform const* idle,
                     MutableVectorView out);

}  // namespace monge::cuda
