// Douglas-Rachford splitting on a CUDA device. X and the costs are in memory, and an iteration is two launches; or X is
// in the shared memory of the device, if it fits and gains, and many iterations are one launch.
#pragma once
#include <array>
#include <optional>
#include <span>

#include "core/numbers.hpp"
#include "cuda/launch/batch.hpp"
#include "cuda/regularized/regularized_plan.hpp"
#include "cuda/regularized/splitting.hpp"
#include "seam/backend.hpp"

namespace monge::cuda {

class SplittingOperator final : public ReadableOperator<monge::SplittingOperator> {
 public:
  /// Packs the costs.
  SplittingOperator(std::shared_ptr<RegularizedCosts const> costs, Precision precision, Queue const& queue);

  void start(double step) override;
  void begin_from(SplittingStart const& from) override;
  void set_step(double step) override;
  void iterate(int count) override;
  SplittingResidual residual() override;
  void keep(Spare spare) override;
  void exchange(Spare spare) override;
  void approach(Spare spare, double share) override;
  SplittingDistance distance(Spare spare) override;
  RegularizedValues evaluate() override;
  void potentials(MutableVectorView u, MutableVectorView v) const override;

  /// Backend::iterate().
  static void iterate_together(SharedRuntime const& runtime, std::span<SplittingStep> steps);

 private:
  void allocate();
  void allocate_resident();
  void set_parameters(double step);
  /// Writes numbers of a side to device memory, rows in the order of the entries.
  void upload_side(Side side, std::vector<double> const& values, double* to) const;
  void restart(double factor, bool empty);
  /// `number`: earlier iterations, which decide the direction of this one.
  void enqueue(SplittingIteration iteration, std::int64_t number, Queue const& queue) const;
  void make_potentials() const;
  void enqueue_residual(SplittingResidual* result, Queue const& queue) const;
  RegularizedEntries plan() const override;

  /// X and the recursion's numbers, as in entries_ and at the head of vectors_.
  struct SpareState {
    DeviceArray<unsigned char> entries, vectors;
    double step = 0;
    std::int64_t iterations = 0;
  };
  SpareState& kept(Spare spare) { return spares_[static_cast<std::size_t>(spare)]; }
  /// The numbers end at `end`, which lies in vectors_.
  SplittingSpareArguments spare_arguments(SpareState const& spare, void const* end);

  SharedRuntime runtime_;
  DataType scalar_;
  SplittingPlan plan_;
  std::optional<ResidentPlan> resident_plan_;  // Replaces plan_, if given.
  std::int64_t pitch_ = 0;
  DeviceArray<unsigned char> entries_, packed_costs_, vectors_, resident_memory_;
  SplittingArguments arguments_;
  ResidentArguments resident_;
  SplittingParameters* parameters_ = nullptr;
  SplittingResidual* residual_ = nullptr;  // Follows all data that belong to X.
  std::array<SpareState, kSpares> spares_;
  RegularizedReadout readout_;
  std::optional<Graph> graph_;  // Holds kIterationsPerGraph iterations.
  double step_ = 0;
  std::int64_t iterations_ = 0;  // Iterations since the start.
  bool evaluated_ = false;       // No iteration since the last evaluation.
};

}  // namespace monge::cuda
