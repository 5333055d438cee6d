// Sweeps of many operators on a CUDA device: each half-step and each update of all of them is one launch. All resident
// sweeps of operators with tiles of one kind are one launch, too.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/entropic/entropic_operator.hpp"
#include "cuda/launch/batch.hpp"

namespace monge::cuda {

/// The launches of a sweep are recorded once for each operator. Calls differ in the parameters and in the operators
/// that take part.
class Sweeper final : public monge::Sweeper {
 public:
  explicit Sweeper(SharedRuntime runtime) : runtime_(std::move(runtime)) {}
  void sweep(std::span<SweepStep> steps) override;

 private:
  /// Some sweeps of one operator with the same parameters.
  struct Turn {
    std::size_t problem;
    EntropicOperator* entropic;
    Sweep sweep;
    int count;
    double* errors = nullptr;  // Errors of resident sweeps.
  };
  /// The indices by which the recording of an operator is found.
  struct Recorded {
    std::size_t problem;       // Its number in the batch.
    std::int64_t first_error;  // Index in errors_ of the operator's errors.
  };
  static void sweep_alone(SweepStep& step);
  void sweep_here(std::span<SweepStep*> steps);
  void sweep_spread(DeviceRanks const& ranks, std::span<SweepStep*> steps);
  void sweep_recorded(std::span<SweepStep*> steps);
  void record(std::span<SweepStep*> steps);
  void launch(std::vector<Turn> turns);
  void sweep_resident(std::span<SweepStep*> steps);
  void launch_resident(std::vector<Turn> const& turns);

  SharedRuntime runtime_;
  std::optional<Batch> sweeps_;
  std::unordered_map<std::uint64_t, Recorded> recorded_;  // Recordings, by key_of() the step.
  std::vector<std::size_t> order_;                        // The present order of the problems in sweeps_.
  DeviceArray<double> errors_;
};

}  // namespace monge::cuda
