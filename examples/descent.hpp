// What a descent in a few dimensions needs: Adam, the smallest eigenvalue by Lanczos, conjugate gradients. Matrices are
// known by their products only.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

namespace descent {

using Vector = std::vector<double>;
using LinearMap = std::function<Vector(Vector const&)>;

inline double dot(Vector const& x, Vector const& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}
inline double norm(Vector const& x) {
  return std::sqrt(dot(x, x));
}
/// x + factor y.
inline Vector sum(Vector x, double factor, Vector const& y) {
  for (std::size_t k = 0; k < x.size(); ++k) x[k] += factor * y[k];
  return x;
}
inline Vector scaled(double factor, Vector x) {
  for (double& value : x) value *= factor;
  return x;
}
inline Vector normal(std::size_t size, double deviation, std::mt19937& random) {
  std::normal_distribution<double> distribution(0, deviation);
  Vector result(size);
  for (double& value : result) value = distribution(random);
  return result;
}

/// Adam (Kingma and Ba, 2015): the step for one gradient after another.
class Adam {
 public:
  Adam(std::size_t size, double rate) : rate_(rate), mean_(size), square_(size) {}
  Vector step(Vector const& gradient) {
    constexpr double kMean = 0.9, kSquare = 0.999;
    ++count_;
    Vector result(gradient.size());
    for (std::size_t k = 0; k < gradient.size(); ++k) {
      mean_[k] = kMean * mean_[k] + (1 - kMean) * gradient[k];
      square_[k] = kSquare * square_[k] + (1 - kSquare) * gradient[k] * gradient[k];
      double const size = std::sqrt(square_[k] / (1 - std::pow(kSquare, count_)));
      result[k] = -rate_ * mean_[k] / (1 - std::pow(kMean, count_)) / (size + 1e-8);
    }
    return result;
  }

 private:
  double rate_;
  int count_ = 0;
  Vector mean_, square_;
};

/// The least eigenvalue of a symmetric tridiagonal matrix T, by bisection: a pivot of T - t is negative where T has an
/// eigenvalue below t.
inline double smallest_eigenvalue(Vector const& diagonal, Vector const& off_diagonal) {
  double low = diagonal[0], high = diagonal[0];
  for (std::size_t k = 0; k < diagonal.size(); ++k) {
    double const radius = (k > 0 ? off_diagonal[k - 1] : 0) + off_diagonal[k];
    low = std::min(low, diagonal[k] - radius);
    high = std::max(high, diagonal[k] + radius);
  }
  auto const has_one_below = [&](double t) {
    double pivot = 1, square = 0;
    for (std::size_t k = 0; k < diagonal.size(); ++k) {
      pivot = diagonal[k] - t - square / pivot;
      if (pivot <= 0) return true;
      square = off_diagonal[k] * off_diagonal[k];
    }
    return false;
  };
  for (int halving = 0; halving < 60; ++halving) {
    double const middle = (low + high) / 2;
    (has_one_below(middle) ? high : low) = middle;
  }
  return high;
}

/// The smallest eigenvalue of a symmetric map as Lanczos sees it after `steps` products from a random vector: never
/// below the true one.
inline double lanczos(LinearMap const& map, std::size_t size, int steps, std::mt19937& random) {
  std::vector<Vector> basis;
  Vector diagonal, off_diagonal, next = normal(size, 1, random);
  for (int k = 0; k < steps && norm(next) > 1e-10; ++k) {
    basis.push_back(scaled(1 / norm(next), next));
    next = map(basis.back());
    diagonal.push_back(dot(next, basis.back()));
    for (int twice = 0; twice < 2; ++twice) {  // Against all before: the short recurrence loses orthogonality.
      for (Vector const& vector : basis) next = sum(next, -dot(next, vector), vector);
    }
    off_diagonal.push_back(norm(next));
  }
  off_diagonal.back() = 0;  // It leads out of T.
  return smallest_eigenvalue(diagonal, off_diagonal);
}

/// x with H x = right to this residual, relative; short of it where H is not positive along a direction.
inline Vector conjugate_gradient(LinearMap const& map, Vector const& right, double tolerance) {
  Vector solution(right.size()), residual = right, direction = right;
  for (int k = 0; k < 100 && norm(residual) > tolerance * norm(right); ++k) {
    Vector const product = map(direction);
    double const curvature = dot(direction, product), square = dot(residual, residual);
    if (curvature <= 0) break;
    solution = sum(solution, square / curvature, direction);
    residual = sum(residual, -square / curvature, product);
    direction = sum(residual, dot(residual, residual) / square, direction);
  }
  return solution;
}

}  // namespace descent
