// The score of a pair from its coordinates, one after the other, on the FMA pipes: __device__ only.
//
//   products      score += x y
//   differences   score += (x - y)^2
//   distances     score = (sum_k |x_k - y_k|^p)^(1/p)
//
// For p other than 1, 2 and infinity, the powers are relative to the largest difference so far; a larger difference
// scales the sum down. No power overflows, and powers that underflow do not count. A power of a ratio t has an error of
// p |ln t| t^p <= 1 / e units of 1, and the sum is at least 1.
#pragma once
#include <type_traits>

#include "cuda/device/numerics.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// The score of one form; `p` is for distances. visit(add, is_short) calls add(score, x, y, r, c) for the coordinates
/// of pair (r, c) of a thread; is_short: std::true_type where a coordinate takes one or two instructions. finish(score)
/// follows the last coordinate.
template <class T, ScoreForm kForm, int kRows, int kColumns>
struct PairCost {
  __device__ __forceinline__ explicit PairCost(double) {}

  template <class Visit>
  __device__ __forceinline__ void visit(Visit const& visit) {
    visit(
        [](T& score, T x, T y, int, int) {
          if constexpr (kForm == ScoreForm::differences) {
            T const difference = x - y;
            score = fused(difference, difference, score);
          } else {
            score = fused(x, y, score);
          }
        },
        std::true_type());
  }
  __device__ __forceinline__ void finish(T (&)[kRows][kColumns]) {}
};

template <class T, int kRows, int kColumns>
struct PairCost<T, ScoreForm::distances, kRows, kColumns> {
  /// For larger p, too, the power of every ratio below 1 is 0. float can hold this number.
  static constexpr double kLargestPower = 1e30;

  __device__ __forceinline__ explicit PairCost(double p)
      : p_(static_cast<T>(fmin(p, kLargestPower))), is_maximum_(isinf(p)) {
    clear();
  }

  template <class Visit>
  __device__ __forceinline__ void visit(Visit const& visit) {
    if (p_ == 2) {
      visit(
          [](T& score, T x, T y, int, int) {
            T const difference = x - y;
            score = fused(difference, difference, score);
          },
          std::true_type());
    } else if (p_ == 1) {
      visit([](T& score, T x, T y, int, int) { score += fabs(x - y); }, std::true_type());
    } else if (is_maximum_) {
      visit([](T& score, T x, T y, int, int) { score = fmax(score, static_cast<T>(fabs(x - y))); }, std::true_type());
    } else {
      visit(
          [this](T& score, T x, T y, int r, int c) {
            T const difference = fabs(x - y), largest = largest_[r][c];
            T const top = fmax(difference, largest);
            T const ratio = top > 0 ? fmin(difference, largest) / top : T(0);
            T const power = exp2(p_ * log2(ratio));
            score = difference > largest ? fused(score, power, T(1)) : score + power;
            largest_[r][c] = top;
          },
          std::false_type());
    }
  }

  __device__ __forceinline__ void finish(T (&score)[kRows][kColumns]) {
    if (p_ == 1 || is_maximum_) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        score[r][c] = p_ == 2 ? sqrt(score[r][c]) : largest_[r][c] * exp2(log2(score[r][c]) / p_);
    }
    clear();
  }

 private:
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) largest_[r][c] = 0;
    }
  }

  T p_;
  bool is_maximum_;
  T largest_[kRows][kColumns];
};

}  // namespace monge::cuda
