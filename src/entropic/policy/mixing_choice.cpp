#include "entropic/policy/mixing_choice.hpp"

namespace monge {
namespace {

/// A sweep is rejected where its error is above kWorse times the least. The method ends with rejection kMostRejections.
constexpr double kWorse = 100;
constexpr int kMostRejections = 3;

}  // namespace

SweepErrors MixingChoice::swept(SweepErrors const& errors) {
  is_best_ = !best_ || errors.column < best_->column;
  // The first error at an eps may be NaN, which ends the solve.
  if (is_best_) best_ = errors;
  has_images_ = is_best_ || errors.column <= kWorse * best_->column;
  if (!has_images_ && ++rejections_ >= kMostRejections) end();
  return *best_;
}

void MixingChoice::forget() {
  has_images_ = false;
  best_.reset();
}

void MixingChoice::refined() {
  has_ended_ = rejections_ >= kMostRejections;
  forget();
}

}  // namespace monge
