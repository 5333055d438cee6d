// The formulas of Douglas-Rachford splitting, for the CPU code and the CUDA kernels (docs/math.md, section 17).
//
// An iteration, of costs S = (C - offset) / range + lambda_1 W, with a step s (RDROT, eq. 6 and 8; Lemma 3.1):
//   V = [X + phi 1^T + 1 psi^T - s S]_+,   X <- prox_{s h}(V)
//   r = X 1 - p,  c = X^T 1 - q,  excess = sum X - 1
//   a <- a - r,  b <- b - c,  t = (2 excess - alpha) / (n + m),  alpha <- alpha - excess
//   phi = (a - r + t) / m,  psi = (b - c + t) / n
// Before an iteration a = Y 1 - p, b = Y^T 1 - q and alpha = sum Y - 1 for Y = X + phi 1^T + 1 psi^T. At the fixed
// point u = phi / s and v = psi / s are dual potentials.
#pragma once
#include <algorithm>
#include <cmath>
#include <span>

#include "core/host_device.hpp"

namespace monge {

/// The prox of an entry, without the group lasso. The conjugate of h has the same equation, with infinite `shrink`
/// where there is no quadratic term.
template <class T>
struct EntryProx {
  T shrink = 1;      // 1 / (1 + s lambda_quadratic)
  T hypentropy = 0;  // s lambda; 0: no such term.
  T width = 1;       // beta

  /// The prox of an entry whose group has the threshold s lambda w_g and, after the prox, the norm `norm` > 0: the
  /// derivative of the group lasso is threshold x / norm.
  MONGE_HOST_DEVICE EntryProx within_group(T threshold, T norm) const {
    return {norm / (norm / shrink + threshold), hypentropy, width};
  }

  /// The prox of v >= 0.
  MONGE_HOST_DEVICE T operator()(T v) const {
    if (hypentropy == 0 || v == 0) return v * shrink;
    // x / shrink + h asinh(x / beta) = v. With x = beta sinh(y) the left side is convex in y >= 0, so Newton's method
    // descends from any upper bound, and each of the two terms alone gives one.
    T const slope = width / shrink;
    T y = std::fmin(v / hypentropy, std::asinh(v / slope));
    for (int k = 0; k < 30; ++k) {
      T const next = y - (slope * std::sinh(y) + hypentropy * y - v) / (slope * std::cosh(y) + hypentropy);
      if (!(next < y)) break;
      y = next;
    }
    return width * std::sinh(y);
  }
};

/// The factor of a group of norm `norm` whose threshold is s lambda w_g, before EntryProx: the prox of a norm plus a
/// quadratic term is the composition of both.
template <class T>
MONGE_HOST_DEVICE T group_factor(T norm, T threshold) {
  return norm > threshold ? 1 - threshold / norm : T(0);
}

/// The norm N of a group after the prox of hypentropy and group lasso: N = |x(N)|_2 where x(N) is
/// EntryProx::within_group(threshold, N) of each entry. N / |x(N)|_2 is concave in N and rises through 1, so Newton's
/// method rises to the root from any lower bound, here from least(). A group whose norm before the prox is at most the
/// threshold becomes 0.
///
/// Rounding. Where the norm V before the prox is hardly above the threshold, N / threshold is below the unit roundoff
/// u, and so is the slope of ln(N / |x(N)|_2) by ln N. A difference of numbers near 1 would lose it, or make it 0; Sums
/// adds positive numbers. The slope is at least 1 / (1 + shrink threshold / N). A rounding error u of |x| / N therefore
/// moves a step by at most u (N + shrink threshold), which is at most u shrink V.
template <class T>
struct GroupNorm {
  EntryProx<T> prox;
  T threshold;

  /// Sums over the entries of a group at x(N).
  struct Sums {
    T squares = 0;  // x^2
    T rises = 0;    // x^2 times the derivative of ln(N / x) by ln N.

    /// `prox` is GroupNorm::prox. `of_group` is the prox with the group's penalty at x(N).
    MONGE_HOST_DEVICE void add(EntryProx<T> const& prox, EntryProx<T> const& of_group, T x) {
      T const square = x * x, root = std::sqrt(square + prox.width * prox.width);
      squares += square;
      rises += square * ((1 / prox.shrink * root + prox.hypentropy) / (1 / of_group.shrink * root + prox.hypentropy));
    }
  };

  /// A lower bound, exact if the positive entries, `count` of them with the norm `norm` before the prox, are equal:
  /// asinh(sqrt(t))^2 is concave in t, so |asinh(x / beta)|_2 is at most that of equal entries.
  MONGE_HOST_DEVICE T least(T norm, T count) const {
    T const root = std::sqrt(count);
    return EntryProx<T>{prox.shrink, root * prox.hypentropy, root * prox.width}(norm - threshold);
  }
  /// Newton's step from N; not above N where rounding ends the rise, or where squares of tiny entries underflow.
  MONGE_HOST_DEVICE T next(T norm, Sums const& sums) const {
    if (!(sums.rises > 0)) return norm;
    return norm + (std::sqrt(sums.squares) - norm) * (sums.squares / sums.rises);
  }
  /// Whether a step from `norm` to `next` was the last one: Newton's error is about its square.
  static MONGE_HOST_DEVICE bool is_last(T norm, T next) {
    constexpr T kLast = sizeof(T) == 4 ? T(1e-4) : T(1e-8);
    return !(next > norm * (1 + kLast));
  }
  static constexpr int kMostSteps = 60;

  /// N of a group of which sums_of(prox) returns the sums for a prox of its entries.
  template <class SumsOf>
  T solve(T norm, T count, SumsOf&& sums_of) const {
    T root = least(norm, count);
    for (int k = 0; k < kMostSteps; ++k) {
      T const rise = next(root, sums_of(prox.within_group(threshold, root))), before = root;
      if (rise > root) root = rise;
      if (is_last(before, rise)) break;
    }
    return root;
  }
};

/// a or b, and phi or psi, of one point after an iteration.
struct SplittingPoint {
  double sum;        // a_i or b_j
  double potential;  // phi_i or psi_j
};

/// The update of one side, whose points have `other` partners each.
struct SplittingUpdate {
  double shift;  // t
  double other;  // m for rows, n for columns.

  MONGE_HOST_DEVICE SplittingPoint operator()(double sum, double residual) const {
    double const next = sum - residual;
    return {next, (next - residual + shift) / other};
  }
};
MONGE_HOST_DEVICE inline double splitting_shift(double excess, double alpha, double n, double m) {
  return (2 * excess - alpha) / (n + m);
}

/// |f 1^T + 1 g^T|_F for vectors of n and m numbers, which may end in zeros as padding.
inline double norm_of_sums(std::span<double const> f, std::span<double const> g, double n, double m) {
  double squares[2] = {}, means[2] = {};
  auto const look_through = [&](int s, std::span<double const> values, double size) {
    for (double const value : values) {
      squares[s] += value * value;
      means[s] += value / size;
    }
    squares[s] = std::max(squares[s] - size * means[s] * means[s], 0.0);
  };
  look_through(0, f, n);
  look_through(1, g, m);
  double const mean = means[0] + means[1];
  return std::sqrt(m * squares[0] + n * squares[1] + n * m * mean * mean);
}

}  // namespace monge
