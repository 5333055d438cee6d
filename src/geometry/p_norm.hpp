// The p-norm of a difference of two points, in float64.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>

namespace monge {

/// sum_k term(k) over k < count. Eight sums side by side become SIMD, which one sum in order may not.
template <class Term>
double sum_of(std::size_t count, Term const& term) {
  constexpr std::size_t kSums = 8;
  double sums[kSums] = {}, rest = 0;
  std::size_t const whole = count / kSums * kSums;
  for (std::size_t k = 0; k < whole; k += kSums) {
    for (std::size_t q = 0; q < kSums; ++q) sums[q] += term(k + q);
  }
  for (std::size_t k = whole; k < count; ++k) rest += term(k);
  for (double const sum : sums) rest += sum;
  return rest;
}

/// (sum_k |difference(k)|^p)^(1/p) over k < count; p may be infinite.
template <class Difference>
double p_norm(std::size_t count, double p, Difference const& difference) {
  auto const size = [&](std::size_t k) { return std::abs(difference(k)); };
  if (p == 1) return sum_of(count, size);
  if (p == 2) {
    double const square = sum_of(count, [&](std::size_t k) { return difference(k) * difference(k); });
    // No square overflows, and those below the least normal number do not count.
    if (square > 0x1p-900 && square < 0x1p1000) return std::sqrt(square);
  }
  double largest = 0;  // Powers of differences relative to the largest do not overflow.
  for (std::size_t k = 0; k < count; ++k) largest = std::max(largest, size(k));
  if (largest == 0 || std::isinf(p)) return largest;
  constexpr int kMostFactors = 8;  // Factors of a product in the place of std::pow, which takes 20 ns.
  int const factors = p <= kMostFactors && p == std::floor(p) ? static_cast<int>(p) : 0;
  auto const power = [&](std::size_t k) {
    double const base = size(k) / largest;
    if (factors == 0) return std::pow(base, p);
    double product = base;
    for (int factor = 1; factor < factors; ++factor) product *= base;
    return product;
  };
  return largest * std::pow(sum_of(count, power), 1 / p);
}

}  // namespace monge
