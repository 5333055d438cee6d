#include "entropic/policy/mixing_choice.hpp"

namespace monge {
namespace {

/// A sweep is rejected where its error is above kWorse times the least. The method ends with rejection kMostRejections.
constexpr double kWorse = 100;
constexpr int kMostRejections = 3;
/// Where mixing is slow, overrelaxed sweeps are tried. After this number of them their error is compared with the error
/// of the last mixed sweep. If it is higher, the solve returns to mixing.
constexpr int kOverrelaxedTrial = 100;

}  // namespace

SweepErrors MixingChoice::swept(SweepErrors const& errors) {
  is_best_ = !best_ || errors.column < best_->column;
  // The first error at an eps may be NaN, which ends the solve.
  if (is_best_) best_ = errors;
  bool const is_rejected = !(is_best_ || errors.column <= kWorse * best_->column);
  kind_ = is_rejected ? StepKind::rejected : images_ > 1 ? StepKind::mixed : StepKind::sweeps;
  images_ = is_rejected ? 0 : images_ + 1;
  if (is_rejected && ++rejections_ >= kMostRejections) end();
  return *best_;
}

void MixingChoice::forget() {
  images_ = 0;
  best_.reset();
}

void MixingChoice::end() {
  has_ended_ = true;
  slow_.reset();
}

void MixingChoice::yield(int iterations, double error) {
  if (has_returned_) return;
  end();
  slow_ = {iterations, error};
}

void MixingChoice::compare(int iterations, double error) {
  if (!slow_ || iterations < slow_->iterations + kOverrelaxedTrial) return;
  has_returned_ = error > slow_->error;
  has_ended_ = !has_returned_;
  slow_.reset();
}

void MixingChoice::refined() {
  slow_.reset();
  has_ended_ = rejections_ >= kMostRejections;
  forget();
}

}  // namespace monge
