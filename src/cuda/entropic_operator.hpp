// The entropic operator on a CUDA device: what to launch, in which order, on which memory. It knows no geometry.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cuda/problem.hpp"
#include "operators/backend.hpp"

namespace monge::cuda {

class EntropicOperator final : public monge::EntropicOperator {
 public:
  /// `cache_bytes` is for the plans.
  EntropicOperator(Problem problem, double cache_bytes);
  ~EntropicOperator() override;

  double centred_cost_bound() const override { return problem_.costs->bound(); }
  double mean_cost() const override { return problem_.costs->mean(); }
  VectorOperations const& vectors() const override { return vectors_; }
  void set_potentials(VectorView f, VectorView g) override;
  void get_potentials(MutableVectorView f, MutableVectorView g) const override;
  Vector const& potential(Side side) const override { return potentials_[side_index(side)]; }
  Vector& potential(Side side) override;
  void sweep(Sweep const& sweep, int count) override;
  SweepErrors errors() override;
  Evaluation evaluate(double eps) override;
  std::unique_ptr<monge::PlanOperator> plan(double eps) const override;

  /// Backend::sweep() of operators of one runtime: each step of all of them is one launch.
  static void sweep_together(SharedRuntime const& runtime, std::span<SweepStep> steps);

 private:
  /// What the sweeps need of one side.
  struct SweepState {
    Costs::Launch half_step;
    Logits logits;                        // Of this side, for the half-step of the other.
    DeviceArray<unsigned char> partials;  // Of the half-step of this side.
    DeviceArray<double> errors;           // In parts.
  };
  /// Some sweeps with the same parameters.
  struct Turn {
    EntropicOperator* entropic;
    Sweep sweep;
    int count;
  };

  SweepState& state(Side side) { return states_[side_index(side)]; }
  SweepState const& state(Side side) const { return states_[side_index(side)]; }
  void prepare_sweeps();
  /// The first of `count` sweeps, where it needs parameters of its own.
  bool starts_apart(Sweep const& sweep) const;
  void settle(Sweep const& sweep);
  void launch_sweeps(Sweep const& sweep, int count);
  static void launch_together(SharedRuntime const& runtime, std::vector<Turn> turns);
  void set_parameters(Sweep const& sweep, Queue const& queue) const;
  void make_logits(Queue const& queue) const;
  void enqueue_sweep(bool symmetric, Queue const& queue) const;
  void enqueue_half_step(Side side, Queue const& queue) const;
  void enqueue_update(Side side, bool symmetric, Queue const& queue) const;
  void sum_errors(double* out, Queue const& queue) const;

  Problem problem_;
  DeviceVectorOperations vectors_;
  double cache_bytes_;
  Potentials potentials_;
  SweepState states_[2];
  DeviceArray<SweepParameters> parameters_;
  DeviceArray<double> error_sums_;
  PinnedArray<double> host_errors_;
  std::map<std::pair<bool, int>, Graph> graphs_;  // By symmetry and number of sweeps.
  double swept_eps_ = 0;                          // Of the last sweep; 0 if the potentials were set since.
};

}  // namespace monge::cuda
