// The entropic operator on a CUDA device: what to launch, in which order, on which memory. It knows no geometry.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "backend/backend.hpp"
#include "cuda/entropic/problem.hpp"

namespace monge::cuda {

class EntropicOperator final : public monge::EntropicOperator {
 public:
  /// `cache_bytes` is for the plans.
  EntropicOperator(Problem problem, double cache_bytes, Queue const& queue);
  ~EntropicOperator() override;

  Problem const& problem() const { return problem_; }
  CostSize cost_size() const override { return {problem_.costs->bound(), problem_.costs->mean()}; }
  VectorOperations const& vectors() const override { return vectors_; }
  void set_potentials(VectorView f, VectorView g) override;
  void get_potentials(MutableVectorView f, MutableVectorView g) const override;
  Vector const& potential(Side side) const override { return potentials_[side_index(side)]; }
  Vector& potential(Side side) override;
  void sweep(Sweep const& sweep, int count) override;
  SweepErrors errors() override;
  using monge::EntropicOperator::evaluate;
  Evaluation evaluate(double eps, Vector* row_marginal, Vector* column_marginal) override;
  std::unique_ptr<monge::PlanOperator> plan(double eps) const override { return plan(eps, problem_.runtime->stream()); }
  std::unique_ptr<monge::PlanOperator> plan(double eps, Queue const& queue) const;

  /// Backend::renew().
  void renew(Geometry const& geometry, Marginals const& marginals);
  /// Backend::evaluate().
  static void evaluate_together(SharedRuntime const& runtime, std::span<EvaluationStep> steps);

  /// What sweeps are made of, for those who launch those of many operators together: prepare_sweeps(); then for each
  /// group of sweeps settle(), make_logits() and enqueue_sweep() as often as wanted. A group of which the first sweep
  /// starts_apart() is two, the first of one sweep and without settle().
  void prepare_sweeps();
  bool starts_apart(Sweep const& sweep) const;
  void settle(Sweep const& sweep);
  void make_logits(Sweep const& sweep, Queue const& queue) const;
  void enqueue_sweep(bool symmetric, Queue const& queue) const;
  /// The errors of the last sweep in parts: where they are on the device, how many, and what they come to.
  double const* error_parts() const { return state(Side::rows).errors; }
  std::int64_t error_count() const;
  SweepErrors errors_from(double const* parts);
  /// That of no other operator, before or after.
  std::uint64_t number() const { return number_; }

 private:
  /// What the sweeps need of one side.
  struct SweepState {
    Costs::Launch half_step;
    Logits logits;                      // Of this side, for the half-step of the other.
    unsigned char* partials = nullptr;  // Of the half-step of this side.
    double* errors = nullptr;
    LogMeanSums* log_mean_parts = nullptr;  // Where there is a penalty.
    PackedSide points;                      // As the sweeps know them.
  };

  /// What a sweep from one read of the costs needs, where these have one.
  struct FusedState {
    Costs::FusedSweep sweep;
    DeviceArray<unsigned char> line_sums, across_sums;
  };

  /// Numbers that are the errors of a side.
  std::int64_t error_count(Side side) const;
  SweepState& state(Side side) { return states_[side_index(side)]; }
  SweepState const& state(Side side) const { return states_[side_index(side)]; }
  /// As the costs plan them: rows, columns.
  std::array<Costs::Launch, 2> half_steps() const;
  /// What the sweeps know of the problem. Graphs of another are dropped.
  void connect_sweeps(std::array<Costs::Launch, 2> const& steps);
  void connect_fused_sweep();
  void connect_translation();
  void launch_sweeps(Sweep const& sweep, int count);
  void drop_graphs() noexcept;
  /// Whose logits are the columns of a half-step of `side`: of a self problem, its own.
  Side columns_of(Side side) const { return is_self() ? side : opposite(side); }
  /// Those that sweeps update.
  std::span<Side const> swept_sides() const;
  /// Whether sweeps move the constant of the potentials; that of a self problem's, whose sides are alike, stays.
  bool translates() const { return !problem_.penalties.balanced() && !is_self(); }
  void enqueue_half_step(Side side, Queue const& queue) const;
  void enqueue_update(Side side, bool symmetric, Queue const& queue) const;
  void enqueue_fused_sweep(bool symmetric, Queue const& queue) const;
  /// Of `side`, from what lies in `partials`.
  UpdateArguments update_arguments(Side side, void const* partials, WorkPlan const& work, bool symmetric) const;
  static std::uint64_t next_number();

  std::uint64_t number_ = next_number();
  Problem problem_;
  DeviceVectorOperations vectors_;
  double cache_bytes_;
  Potentials potentials_;
  SweepState states_[2];
  std::optional<FusedState> fused_;
  std::optional<TranslationArguments> translation_;  // If translates().
  SweepParameters* parameters_ = nullptr;
  DeviceArray<unsigned char> sweep_memory_;  // Parameters, partial sums and errors.
  std::optional<Graph> graphs_[2];           // Of kSweepsPerGraph sweeps; the symmetric ones second.
  int sweeps_ = 0;                           // So far.
  double swept_eps_ = 0;                     // Of the last sweep; 0 if the potentials were set since.
};

}  // namespace monge::cuda
