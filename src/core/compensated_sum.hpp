// Neumaier's compensated sum: for differences of close numbers, and for sums whose rounding must not grow with the
// number of terms.
#pragma once
#include <cmath>

#include "core/host_device.hpp"

namespace monge {

class CompensatedSum {
 public:
  MONGE_HOST_DEVICE void add(double value) {
    double const next = sum_ + value;
    carry_ += std::abs(sum_) >= std::abs(value) ? (sum_ - next) + value : (value - next) + sum_;
    sum_ = next;
  }
  MONGE_HOST_DEVICE void add(CompensatedSum const& other) {
    add(other.sum_);
    carry_ += other.carry_;
  }
  MONGE_HOST_DEVICE double value() const { return sum_ + carry_; }

 private:
  double sum_ = 0, carry_ = 0;
};

}  // namespace monge
