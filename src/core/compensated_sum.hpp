// Neumaier's compensated sum: for differences of close numbers, and for sums that must not depend on how many terms
// there are.
#pragma once
#include <cmath>

namespace monge {

class CompensatedSum {
 public:
  void add(double value) {
    double const next = sum_ + value;
    carry_ += std::abs(sum_) >= std::abs(value) ? (sum_ - next) + value : (value - next) + sum_;
    sum_ = next;
  }
  double value() const { return sum_ + carry_; }

 private:
  double sum_ = 0, carry_ = 0;
};

}  // namespace monge
