// The node of a tree of tiles as numbers: its box, and an affine model that lies above a potential on it
// (docs/math.md, section 20). Shared by the CPU code and the CUDA kernels.
//
// All numbers are logits: base-2 logarithms. With x and y in units in which a cost of 1 is a logit of 1,
//   t_ij = F_i + G_j - |x_i - y_j|^2,   F = f log2(e) / eps,   G alike.
// On a box with the middle m a model F_i <= top + <slope, x_i - m> makes t concave, separable and linear along
// u = v for u = x - m, v = y - m', so its maximum over two boxes has a closed form in each coordinate.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/host_device.hpp"
#include "core/numbers.hpp"

namespace monge {

/// Numbers of a model: top, and the base-2 logarithm of the mass of the node's points; then for each coordinate the
/// middle and half of the side of the box, and the slope.
inline constexpr int kModelOwn = 2, kModelOfCoordinate = 3;
MONGE_HOST_DEVICE inline constexpr std::int64_t model_size(std::int64_t dimension) {
  return kModelOwn + kModelOfCoordinate * dimension;
}
/// Numbers of a box: the middle and half of the side of each coordinate, middles first.
MONGE_HOST_DEVICE inline constexpr std::int64_t box_size(std::int64_t dimension) {
  return 2 * dimension;
}
/// Numbers of memory that fit_model() uses.
MONGE_HOST_DEVICE inline constexpr std::int64_t fit_scratch(std::int64_t dimension) {
  return (dimension + 1) * (dimension + 3);
}

/// The fraction of a truncation that nodes above the tiles may use up. Their bounds are compared with it one by one, so
/// most of it stays for the tiles.
inline constexpr double kNodeFraction = 0.25;
/// Bins of the histogram of bounds below the truncation, and the bins of a factor of two. Bounds above the truncation
/// have the bin kAboveBins.
inline constexpr int kBoundBins = 128, kBoundBinsOfTwo = 4;
inline constexpr unsigned char kAboveBins = 255;
/// The bin of a bound, given as a logarithm; `top` is the logarithm of the truncation.
MONGE_HOST_DEVICE inline int bin_of_bound(double log_bound, double top) {
  if (!(log_bound <= top)) return kAboveBins;
  return static_cast<int>(std::fmin((top - log_bound) * kBoundBinsOfTwo, kBoundBins - 1.0));
}
/// The members of this bin, and of the bins after it, sum to at most `room`, as each is at most the upper end of its
/// bin. `counts`: the members of each bin.
template <class Count>
MONGE_HOST_DEVICE int first_bin_out(Count const* counts, double top, double room) {
  int first = kBoundBins;
  for (double sum = 0; first > 0; --first) {
    sum += counts[first - 1] * std::exp2(top - static_cast<double>(first - 1) / kBoundBinsOfTwo);
    if (!(sum <= room)) break;
  }
  return first;
}
/// Tiles that were found at some potentials serve for at most this number of sweeps, while the mean over the mass of
/// exp(|f_now - f_then| / eps) - 1 is at most kServedMovement; a point adds at most kServedMovementOfPoint.
inline constexpr int kServedSweeps = 10;
inline constexpr double kServedMovement = 0.5, kServedMovementOfPoint = 10;

/// Rounding of a model, relative to the size of its terms.
inline constexpr double kModelRounding = 0x1p-40;
/// The fraction of its trace that is added to the diagonal of a linear system, which may be singular.
inline constexpr double kModelRidge = 1e-9;

/// Coordinate k of the box from `least` to `most`.
MONGE_HOST_DEVICE inline void set_box(double* box, std::int64_t dimension, std::int64_t k, double least, double most) {
  double const middle = least / 2 + most / 2;
  box[k] = middle;
  // Rounding must not leave the ends of the box out.
  box[dimension + k] = std::max(most - middle, middle - least);
}

/// The box of two boxes; `second` may be `first`.
MONGE_HOST_DEVICE inline void join_boxes(double* box, double const* first, double const* second,
                                         std::int64_t dimension) {
  for (std::int64_t k = 0; k < dimension; ++k)
    set_box(box, dimension, k, std::min(first[k] - first[dimension + k], second[k] - second[dimension + k]),
            std::max(first[k] + first[dimension + k], second[k] + second[dimension + k]));
}

/// The box of a model: `box` times `unit`.
MONGE_HOST_DEVICE inline void set_model_box(double* model, double const* box, std::int64_t dimension, double unit) {
  for (std::int64_t k = 0; k < dimension; ++k) {
    double* const of = model + kModelOwn + kModelOfCoordinate * k;
    double const half = unit * box[dimension + k];
    of[0] = unit * box[k];
    of[1] = half + kModelRounding * (std::fabs(of[0]) + half);  // The products with the unit are rounded.
  }
}

/// Solves the positive definite system of `size` equations, row-major, in place.
MONGE_HOST_DEVICE inline void solve_in_place(double* matrix, double* right, std::int64_t size) {
  for (std::int64_t k = 0; k < size; ++k) {
    double const pivot = 1 / matrix[k * size + k];
    for (std::int64_t r = k + 1; r < size; ++r) {
      double const factor = matrix[r * size + k] * pivot;
      for (std::int64_t c = k; c < size; ++c) matrix[r * size + c] -= factor * matrix[k * size + c];
      right[r] -= factor * right[k];
    }
  }
  for (std::int64_t k = size - 1; k >= 0; --k) {
    for (std::int64_t c = k + 1; c < size; ++c) right[k] -= matrix[k * size + c] * right[c];
    right[k] /= matrix[k * size + k];
  }
}

/// A point of a tile; one of weight 0 is left out.
struct ModelPoint {
  double value, weight;
};

/// The model of a tile whose box is set: least squares, then raised to lie above all values. read(p, coordinates) is
/// point p of `count` and writes its coordinates in units, less the middle. `scratch`: fit_scratch() numbers.
template <class Read>
MONGE_HOST_DEVICE void fit_model(double* model, std::int64_t dimension, std::int64_t count, Read const& read,
                                 double* scratch) {
  std::int64_t const size = dimension + 1;
  double* const matrix = scratch;
  double* const solution = matrix + size * size;
  double* const point = solution + size;
  for (std::int64_t k = 0; k < size * (size + 2); ++k) scratch[k] = 0;
  double mass = 0, origin = -kInfinity;
  for (std::int64_t p = 0; p < count; ++p) {
    ModelPoint const found = read(p, point + 1);
    if (!(found.weight > 0)) continue;
    mass += found.weight;
    if (!(found.value <= origin)) origin = found.value;  // NaN stays.
  }
  model[0] = origin;
  model[1] = std::log2(mass);
  for (std::int64_t k = 0; k < dimension; ++k) model[kModelOwn + kModelOfCoordinate * k + 2] = 0;
  if (mass == 0) return;
  for (std::int64_t p = 0; p < count; ++p) {
    ModelPoint const found = read(p, point + 1);
    if (!(found.weight > 0)) continue;
    point[0] = 1;
    double const value = found.value - origin;
    for (std::int64_t r = 0; r < size; ++r) {
      for (std::int64_t c = 0; c < size; ++c) matrix[r * size + c] += point[r] * point[c];
      solution[r] += point[r] * value;
    }
  }
  double trace = 0;
  for (std::int64_t k = 0; k < size; ++k) trace += matrix[k * size + k];
  for (std::int64_t k = 0; k < size; ++k) matrix[k * size + k] += kModelRidge * trace;
  solve_in_place(matrix, solution, size);
  double rise = -kInfinity, largest = std::fabs(origin);
  for (std::int64_t p = 0; p < count; ++p) {
    ModelPoint const found = read(p, point + 1);
    if (!(found.weight > 0)) continue;
    double slope_part = 0;
    for (std::int64_t k = 0; k < dimension; ++k) slope_part += solution[k + 1] * point[k + 1];
    double const above = found.value - origin - slope_part;
    if (!(above <= rise)) rise = above;
    largest = std::max(largest, std::fabs(slope_part) + std::fabs(found.value));
  }
  model[0] = origin + rise + kModelRounding * largest;
  for (std::int64_t k = 0; k < dimension; ++k) model[kModelOwn + kModelOfCoordinate * k + 2] = solution[k + 1];
}

/// Makes the model of a node from the models of its children. Its slope is the mean of theirs, and its top is raised
/// until it lies above both. The box of the node is already set. `second` may be null.
MONGE_HOST_DEVICE inline void join_models(double* model, double const* first, double const* second,
                                          std::int64_t dimension) {
  double const* const children[2] = {first, second};
  int const count = second == nullptr ? 1 : 2;
  for (std::int64_t k = 0; k < dimension; ++k) model[kModelOwn + kModelOfCoordinate * k + 2] = 0;
  double mass = 0, counted = 0;
  for (int c = 0; c < count; ++c) {
    double const own = std::exp2(children[c][1]);
    mass += own;
    if (own == 0) continue;
    ++counted;
    for (std::int64_t k = 0; k < dimension; ++k) {
      std::int64_t const slope = kModelOwn + kModelOfCoordinate * k + 2;
      model[slope] += (children[c][slope] - model[slope]) / counted;
    }
  }
  model[1] = std::log2(mass);
  model[0] = -kInfinity;
  for (int c = 0; c < count; ++c) {
    if (std::exp2(children[c][1]) == 0) continue;
    double top = children[c][0], size = std::fabs(top);
    for (std::int64_t k = 0; k < dimension; ++k) {
      double const* const own = model + kModelOwn + kModelOfCoordinate * k;
      double const* const child = children[c] + kModelOwn + kModelOfCoordinate * k;
      double const bend = std::fabs(child[2] - own[2]) * child[1], shift = own[2] * (child[0] - own[0]);
      top += bend - shift;
      size += bend + std::fabs(shift);
    }
    top += kModelRounding * size;
    if (!(top <= model[0])) model[0] = top;
  }
}

/// An upper bound of t_ij over the points i of one node and j of another.
MONGE_HOST_DEVICE inline double largest_logit(double const* x, double const* y, std::int64_t dimension) {
  double sum = x[0] + y[0];
  for (std::int64_t k = 0; k < dimension; ++k) {
    std::int64_t const e = kModelOwn + kModelOfCoordinate * k;
    double const w = x[e] - y[e], p = x[e + 2], q = y[e + 2], half_u = x[e + 1], half_v = y[e + 1];
    // Linear along u = v: the maximum lies where u or v is at the end to which p + q points.
    double const sign = p + q < 0 ? -1.0 : 1.0, end_u = sign * half_u, end_v = sign * half_v;
    double const v = std::min(std::max(w + end_u + q / 2, -half_v), half_v), by_v = w + end_u - v;
    double const u = std::min(std::max(end_v - w + p / 2, -half_u), half_u), by_u = w + u - end_v;
    sum += std::max(p * end_u + q * v - by_v * by_v, p * u + q * end_v - by_u * by_u);
  }
  return sum;
}

}  // namespace monge
