// The entropic operator on a CUDA device: what to launch, in which order, on which memory. It knows no geometry.
#pragma once
#include <memory>
#include <optional>

#include "cuda/problem.hpp"
#include "operators/entropic_operator.hpp"

namespace monge::cuda {

class EntropicOperator final : public monge::EntropicOperator {
 public:
  /// `cache_bytes` is for the plans.
  EntropicOperator(Problem problem, double cache_bytes);
  ~EntropicOperator() override;

  Problem const& problem() const { return problem_; }
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
    Logits logits;                      // Of this side, for the half-step of the other.
    unsigned char* partials = nullptr;  // Of the half-step of this side.
    double* errors = nullptr;
  };

  SweepState& state(Side side) { return states_[side_index(side)]; }
  SweepState const& state(Side side) const { return states_[side_index(side)]; }
  void prepare_sweeps();
  void launch_sweeps(Sweep const& sweep, int count);
  void enqueue_sweeps(bool symmetric, int count, cudaStream_t stream) const;
  void enqueue_half_step(Side side, cudaStream_t stream) const;
  void enqueue_update(Side side, bool symmetric, cudaStream_t stream) const;

  Problem problem_;
  DeviceVectorOperations vectors_;
  double cache_bytes_;
  Potentials potentials_;
  SweepState states_[2];
  SweepParameters* parameters_ = nullptr;
  DeviceArray<unsigned char> sweep_memory_;  // Parameters, partial sums and errors.
  std::optional<Graph> graphs_[2];           // Of kSweepsPerGraph sweeps; the symmetric ones second.
  int sweeps_ = 0;                           // So far.
  double swept_eps_ = 0;                     // Of the last sweep; 0 if the potentials were set since.
};

}  // namespace monge::cuda
