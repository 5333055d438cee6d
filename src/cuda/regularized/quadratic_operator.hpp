// The dual of a quadratically regularised plan on a CUDA device. A step is one direction, found on the device, and one
// pass; the host waits for a few numbers only.
#pragma once
#include <span>

#include "cuda/regularized/quadratic.hpp"
#include "cuda/regularized/regularized_plan.hpp"

namespace monge::cuda {

class QuadraticOperator final : public ReadableOperator<monge::QuadraticOperator> {
 public:
  explicit QuadraticOperator(std::shared_ptr<RegularizedCosts const> costs);

  QuadraticValues start(double weight, std::span<double const> u, std::span<double const> v) override;
  QuadraticValues set_weight(double weight) override;
  QuadraticStep step(QuadraticDamping damping) override;
  QuadraticValues shorten(double fraction) override;
  void accept() override;

  RegularizedValues evaluate() override;
  void potentials(MutableVectorView u, MutableVectorView v) const override;

 private:
  struct Found {
    QuadraticValues values;
    QuadraticSearch search;
  };
  DeviceArray<unsigned char> allocate(QuadraticState& state) const;
  void allocate_system();
  void pass(QuadraticState const& state);
  Found found() const;
  /// The results of the trial's pass.
  Found found_trial();
  /// Makes the trial: the state at `fraction` of the direction.
  void try_fraction(double fraction);
  RegularizedEntries plan() const override;

  SharedRuntime runtime_;
  RegularizedReadout readout_;
  QuadraticProblem problem_;
  RegularizedCosts::Points const* points_[2];  // Data of the lines and of the places.
  DeviceArray<unsigned char> now_memory_, trial_memory_, system_memory_;
  QuadraticState now_, trial_;
  std::int64_t now_active_ = 0, trial_active_ = 0;
  QuadraticDirectionArguments direction_;
  double* chunk_sum_ = nullptr;
  int* chunk_count_ = nullptr;
  Found* found_ = nullptr;
};

}  // namespace monge::cuda
