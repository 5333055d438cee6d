// How the score of a pair follows from its coordinates, one after the other, on the FMA pipes: __device__ only.
//
//   products      score += x y
//   differences   score += (x - y)^2
//   distances     score = (sum_k |x_k - y_k|^p)^(1/p)
//
// Distances of other p than 1, 2 and infinity are sums of powers relative to the largest difference so far, so that
// none overflows and those that underflow do not count: a larger difference scales the sum down. A power of a ratio t
// is off by p |ln t| t^p units of 1, at most 1 / e, and the sum is at least 1.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Of distances of this p. visit(add), add(score, x, y, r, c) for the coordinates of pair (r, c) of a thread;
/// finish(score) after the last.
template <class T, ScoreForm kForm, int kRows, int kColumns>
struct PairCost {
  __device__ __forceinline__ explicit PairCost(double) {}

  template <class Visit>
  __device__ __forceinline__ void visit(Visit const& visit) {
    visit([](T& score, T x, T y, int, int) {
      if constexpr (kForm == ScoreForm::differences) {
        T const difference = x - y;
        score = fused(difference, difference, score);
      } else {
        score = fused(x, y, score);
      }
    });
  }
  __device__ __forceinline__ void finish(T (&)[kRows][kColumns]) {}
};

template <class T, int kRows, int kColumns>
struct PairCost<T, ScoreForm::distances, kRows, kColumns> {
  /// From this p on, ratios below 1 have the power 0 all the same, and float holds it.
  static constexpr double kLargestPower = 1e30;

  __device__ __forceinline__ explicit PairCost(double p)
      : p_(static_cast<T>(fmin(p, kLargestPower))), is_maximum_(isinf(p)) {
    clear();
  }

  template <class Visit>
  __device__ __forceinline__ void visit(Visit const& visit) {
    if (p_ == 2) {
      visit([](T& score, T x, T y, int, int) {
        T const difference = x - y;
        score = fused(difference, difference, score);
      });
    } else if (p_ == 1) {
      visit([](T& score, T x, T y, int, int) { score += fabs(x - y); });
    } else if (is_maximum_) {
      visit([](T& score, T x, T y, int, int) { score = fmax(score, static_cast<T>(fabs(x - y))); });
    } else {
      visit([this](T& score, T x, T y, int r, int c) {
        T const difference = fabs(x - y), largest = largest_[r][c];
        T const top = fmax(difference, largest);
        T const ratio = top > 0 ? fmin(difference, largest) / top : T(0);
        T const power = exp2(p_ * log2(ratio));
        score = difference > largest ? fused(score, power, T(1)) : score + power;
        largest_[r][c] = top;
      });
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
