// The entropic operator on a CUDA device: what to launch, in which order, on which memory. It knows no geometry.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cuda/problem.hpp"
#include "operators/backend.hpp"

namespace monge::cuda {

class EntropicOperator final : public monge::EntropicOperator {
 public:
  /// `cache_bytes` is for the plans.
  EntropicOperator(Problem problem, double cache_bytes, Queue const& queue);
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
  std::unique_ptr<monge::PlanOperator> plan(double eps) const override { return plan(eps, problem_.runtime->stream()); }
  std::unique_ptr<monge::PlanOperator> plan(double eps, Queue const& queue) const;

  /// Backend::renew().
  void renew(Geometry const& geometry, Marginals const& marginals);

  /// Backend::sweep() and evaluate() of several operators: each step of all of them is one launch.
  static void sweep_together(SharedRuntime const& runtime, std::span<SweepStep> steps);
  static void evaluate_together(SharedRuntime const& runtime, std::span<EvaluationStep> steps);

 private:
  /// What the sweeps need of one side.
  struct SweepState {
    Costs::Launch half_step;
    Logits logits;                      // Of this side, for the half-step of the other.
    unsigned char* partials = nullptr;  // Of the half-step of this side.
    double* errors = nullptr;
    PackedSide points;  // As the sweeps know them.
  };

  /// Some sweeps of one operator with the same parameters.
  struct Turn {
    EntropicOperator* entropic;
    Sweep sweep;
    int count;
  };

  /// What a sweep from one read of the costs needs, where these have one.
  struct FusedState {
    Costs::FusedSweep sweep;
    DeviceArray<unsigned char> line_sums, across_sums;
  };

  SweepState& state(Side side) { return states_[side_index(side)]; }
  SweepState const& state(Side side) const { return states_[side_index(side)]; }
  Costs::Launch half_step_of(Side side) const;
  void prepare_sweeps();
  /// What the sweeps know of the problem. Graphs of another are dropped.
  void connect_sweeps();
  void connect_fused_sweep();
  /// Whether the first of some sweeps needs parameters of its own.
  bool starts_apart(Sweep const& sweep) const;
  /// The typical values of the potentials in the sweeps after that.
  void settle(Sweep const& sweep);
  void launch_sweeps(Sweep const& sweep, int count);
  void drop_graphs() noexcept;
  static void launch_together(SharedRuntime const& runtime, std::vector<Turn> turns);
  void make_logits(Sweep const& sweep, Queue const& queue) const;
  void enqueue_sweep(bool symmetric, Queue const& queue) const;
  void enqueue_half_step(Side side, Queue const& queue) const;
  void enqueue_update(Side side, bool symmetric, Queue const& queue) const;
  void enqueue_fused_sweep(bool symmetric, Queue const& queue) const;
  /// Of `side`, from what lies in `partials`.
  UpdateArguments update_arguments(Side side, void const* partials, WorkPlan const& work, bool symmetric) const;
  /// Of both sides, rows first.
  std::int64_t error_count() const;
  SweepErrors errors_from(double const* parts) const;

  Problem problem_;
  DeviceVectorOperations vectors_;
  double cache_bytes_;
  Potentials potentials_;
  SweepState states_[2];
  std::optional<FusedState> fused_;
  SweepParameters* parameters_ = nullptr;
  DeviceArray<unsigned char> sweep_memory_;  // Parameters, partial sums and errors.
  std::optional<Graph> graphs_[2];           // Of kSweepsPerGraph sweeps; the symmetric ones second.
  int sweeps_ = 0;                           // So far.
  double swept_eps_ = 0;                     // Of the last sweep; 0 if the potentials were set since.
};

}  // namespace monge::cuda
