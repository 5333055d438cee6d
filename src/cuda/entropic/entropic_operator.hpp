// The entropic operator on a CUDA device: kernels, their order and their memory. It does not know the geometry.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "cuda/entropic/resident_sweep.hpp"
#include "cuda/plan/plan_tiles.hpp"
#include "cuda/plan/problem.hpp"
#include "seam/backend.hpp"

namespace monge::cuda {

/// The least work of many problems together that ranks share problem by problem, on one device: ten messages.
inline constexpr double kLeastSpreadNanoseconds = 3e5;

class EntropicOperator final : public monge::EntropicOperator {
 public:
  /// Plans may keep `cache_bytes` of entries.
  EntropicOperator(Problem problem, double cache_bytes, Queue const& queue);
  ~EntropicOperator() override;

  Problem const& problem() const { return problem_; }
  /// The tiles of the sweeps, where these leave out pairs.
  std::optional<PlanTiles> const& tiles() const { return tiles_; }
  /// Before sweeps: passes leave out pairs.
  void order(std::shared_ptr<Ordering const> ordering);
  CostSize cost_size() const override {
    Costs const& costs = *problem_.costs;
    return {costs.bound(), costs.bound_of_all(), costs.mean(), costs.forbidden()};
  }
  VectorOperations const& vectors() const override { return vectors_; }
  void set_potentials(VectorView f, VectorView g) override;
  void get_potentials(MutableVectorView f, MutableVectorView g) const override;
  Vector const& potential(Side side) const override { return potentials_[side_index(side)]; }
  Vector& potential(Side side) override;
  void sweep(Sweep const& sweep, int count) override;
  SweepErrors errors() override;
  using monge::EntropicOperator::evaluate;
  Evaluation evaluate(double eps, Vector* row_marginal, Vector* column_marginal) override;
  using monge::EntropicOperator::plan;
  std::unique_ptr<monge::PlanOperator> plan(double eps, double t) const override {
    return plan(eps, t, problem_.runtime->stream());
  }
  std::unique_ptr<monge::PlanOperator> plan(double eps, double t, Queue const& queue) const;

  /// Backend::renew().
  void renew(Geometry const& geometry, Marginals const& marginals);
  /// Backend::evaluate().
  static void evaluate_together(SharedRuntime const& runtime, std::span<EvaluationStep> steps);

  /// Calls for launches of many operators' sweeps together. The operators must not share passes with other ranks. Call
  /// prepare_sweeps() once; then for each group of sweeps settle() and make_logits() once and enqueue_sweep() for each
  /// sweep. If starts_apart(), launch the first sweep alone, without settle(), then the rest as a group. If there are
  /// resident_sweeps(), a group is one launch with resident_arguments(), after settle() alone.
  void prepare_sweeps();
  std::optional<ResidentSweepPlan> const& resident_sweeps() const { return resident_; }
  /// Arguments of the next launch, behind which count_arrivals() follows; errors of the last sweep go to `errors`, as
  /// error_parts().
  ResidentSweepArguments resident_arguments(Sweep const& sweep, int count, double* errors) const;
  /// Counts the arrivals of a launch that has not failed: the barriers of the next one wait for them.
  void count_arrivals(ResidentSweepArguments const& launched) { arrivals_ += launched.new_arrivals(); }
  bool starts_apart(Sweep const& sweep) const;
  void settle(Sweep const& sweep);
  void make_logits(Sweep const& sweep, Queue const& queue) const;
  void enqueue_sweep(Sweep const& sweep, Queue const& queue, cudaStream_t stream = nullptr) const;
  /// Parts of the errors of the last sweep, in device memory; their number; and the errors from a host copy of them.
  double const* error_parts() const { return state(Side::rows).errors; }
  std::int64_t error_count() const;
  SweepErrors errors_from(double const* parts);
  /// Follows sweeps of this problem on another rank, whose potentials are copied apart, with these typical values.
  void take_over(Sweep const& sweep, double const (&typical)[2]);
  double* potential_data(Side side) const { return potentials_[side_index(side)].data(); }
  /// A number that no other operator of this process has, before or after.
  std::uint64_t number() const { return number_; }

 private:
  /// Data of one side for the sweeps.
  struct SweepState {
    std::shared_ptr<SumPass const> half_step;
    Logits logits;                      // Logits of this side, for the half-step of the other side.
    unsigned char* partials = nullptr;  // Partial sums of the half-step of this side.
    double* errors = nullptr;
    LogMeanSums* log_mean_parts = nullptr;  // Null without a penalty.
    PackedSide points;                      // The side at the last connect_sweeps().
  };

  /// Data of fused sweeps, if the costs have them.
  struct FusedState {
    Costs::FusedSweep sweep;
    DeviceArray<unsigned char> line_sums, across_sums;  // Across: of all ranks, if several, then of this one.
    RankPart part;                                      // The lines of this rank.
    void* all_across = nullptr;                         // Sums that the update of the other side reads,
    int parts = 0;                                      // and its parts.
  };

  bool tiles_serve(Sweep const& sweep) const;
  static void evaluate_here(SharedRuntime const& runtime, std::span<EvaluationStep* const> steps);
  /// The length of one side's errors.
  std::int64_t error_count(Side side) const;
  SweepState& state(Side side) { return states_[side_index(side)]; }
  SweepState const& state(Side side) const { return states_[side_index(side)]; }
  /// The half-steps of the rows and of the columns.
  using HalfSteps = std::array<std::shared_ptr<SumPass>, 2>;
  HalfSteps half_steps() const;
  void prepare_resident_sweeps();
  void prepare_sweeps_in_memory();
  /// Sets the arguments of all kernels of a sweep. Drops the graphs if an argument changed.
  void connect_sweeps(HalfSteps const& steps);
  void connect_fused_sweep();
  void connect_translation();
  void launch_sweeps(Sweep const& sweep, int count);
  void drop_graphs() noexcept;
  /// The side whose logits a half-step of `side` reads; for a self problem `side` itself.
  Side columns_of(Side side) const { return is_self() ? side : opposite(side); }
  /// The sides that a sweep updates.
  std::span<Side const> swept_sides() const;
  /// Whether sweeps translate the potentials. A self problem keeps f = g, so it has no translation.
  bool translates() const { return !problem_.penalties.balanced() && !is_self(); }
  void enqueue_half_step(Side side, Queue const& queue, cudaStream_t stream) const;
  void enqueue_update(Side side, bool symmetric, Queue const& queue) const;
  void enqueue_fused_sweep(bool symmetric, Queue const& queue, cudaStream_t stream) const;
  /// The update of `side` from the sums in `partials`.
  UpdateArguments update_arguments(Side side, void const* partials, WorkPlan const& work, bool symmetric) const;
  static std::uint64_t unique_number();

  std::uint64_t number_ = unique_number();
  Problem problem_;
  DeviceVectorOperations vectors_;
  double cache_bytes_;
  Potentials potentials_;
  SweepState states_[2];
  std::optional<FusedState> fused_;
  bool prepared_ = false;                            // Sweeps have all their memory.
  std::optional<ResidentSweepPlan> resident_;        // These sweeps have no graphs and no logits in memory.
  unsigned* arrived_ = nullptr;                      // Counter of the barriers of resident sweeps;
  unsigned arrivals_ = 0;                            // its value when all launches so far are done.
  std::optional<TranslationArguments> translation_;  // Null unless translates().
  SweepParameters* parameters_ = nullptr;
  DeviceArray<unsigned char> sweep_memory_;  // Parameters, partial sums and errors.
  std::optional<Graph> graphs_[2];           // [symmetric]; each holds kSweepsPerGraph sweeps.
  int sweeps_ = 0;                           // Launched so far.
  double swept_eps_ = 0;                     // eps of the last sweep; 0 if the potentials were set after it.
  std::optional<PlanTiles> tiles_;           // Null unless passes leave out pairs.
  double tiles_eps_ = 0;                     // The eps of sweeps over tiles_; 0: the tiles are of other passes.
  int sweeps_of_tiles_ = 0;
  bool translated_ = false;  // Whether the last sweep began with a translation.
};

}  // namespace monge::cuda
