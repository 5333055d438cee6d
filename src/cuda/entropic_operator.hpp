// The entropic operator on a CUDA device: what to launch, in which order, on which memory. It knows no geometry.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "cuda/problem.hpp"
#include "operators/entropic_operator.hpp"

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

 private:
  /// What the sweeps need of one side.
  struct SweepState {
    Costs::Launch half_step;
    Logits logits;                        // Of this side, for the half-step of the other.
    DeviceArray<unsigned char> partials;  // Of the half-step of this side.
    DeviceArray<double> errors;
    PinnedArray<double> host_errors;
  };

  SweepState& state(Side side) { return states_[side_index(side)]; }
  SweepState const& state(Side side) const { return states_[side_index(side)]; }
  /// What a sweep from one read of the costs leaves, where these have one.
  struct FusedState {
    Costs::FusedSweep sweep;
    DeviceArray<unsigned char> line_sums, across_sums;
  };

  void prepare_sweeps();
  void prepare_fused_sweep(Costs::FusedSweep sweep);
  void launch_sweeps(Sweep const& sweep, int count);
  void enqueue_sweeps(bool symmetric, int count, cudaStream_t stream) const;
  void enqueue_plain_sweeps(bool symmetric, int count, cudaStream_t stream) const;
  void enqueue_fused_sweeps(bool symmetric, int count, cudaStream_t stream) const;
  void enqueue_half_step(Side side, cudaStream_t stream) const;
  void enqueue_update(Side side, bool symmetric, cudaStream_t stream) const;
  void enqueue_fused_sweep(bool symmetric, cudaStream_t stream) const;
  /// Of `side`, from what lies in `partials`.
  UpdateArguments update_arguments(Side side, void const* partials, WorkPlan const& work, bool symmetric) const;

  Problem problem_;
  DeviceVectorOperations vectors_;
  double cache_bytes_;
  Potentials potentials_;
  SweepState states_[2];
  std::optional<FusedState> fused_;
  DeviceArray<SweepParameters> parameters_;
  std::map<std::pair<bool, int>, Graph> graphs_;  // By symmetry and number of sweeps.
  double swept_eps_ = 0;                          // Of the last sweep; 0 if the potentials were set since.
};

}  // namespace monge::cuda
