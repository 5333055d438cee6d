// Conjugate gradients on the vectors of a backend, for any symmetric positive semidefinite linear map of these vectors.
#pragma once
#include <functional>

#include <monge/derivatives.hpp>

#include "seam/vectors.hpp"

namespace monge {

/// out = A in; `out` is not `in`.
using LinearMap = std::function<void(Vector const& in, Vector& out)>;

/// A x = b with a symmetric positive semidefinite A (size n x n, n the size of one side).
struct LinearSystem {
  LinearMap matrix;
  /// out = M in, M symmetric positive definite and close to the inverse of A; none if empty.
  LinearMap preconditioner = {};
  /// Spans the null space of a singular A. It is projected out of b, so that the system is consistent, and out of the
  /// residuals, where rounding would let it grow. x is then determined up to a multiple of it.
  Vector const* null_vector = nullptr;
  /// The vector that these projections subtract, by default the null vector; their product must be positive. With the
  /// diagonal of A the residuals of rows far smaller than others stay in proportion.
  Vector const* correction = nullptr;
  /// The same matrix in less precision, for the steps; `matrix` then evaluates residuals alone. It takes over where
  /// these steps no longer halve them. None if empty.
  LinearMap rough_matrix = {};
};

struct ConjugateGradientOptions {
  double tolerance;  ///< The limit of |b - A x| / |b| (2-norms after projection), >= 0.
  int iterations;    ///< The most steps, each with one product by A, >= 0.
  /// Whether the residual of x is evaluated at the end, which takes one more product by A; else it is that of the
  /// recurrence.
  bool evaluates_residual = true;
};

struct ConjugateGradientResult {
  /// With negative_curvature x is the iterate before the direction; with breakdown the last.
  LinearStatus status;
  int iterations;        ///< Steps taken.
  double residual;       ///< |b - A x| / |b|, evaluated from the returned x if the options say so; 0 if b = 0.
  double curvature = 0;  ///< <p, A p> / <p, p> <= 0 of the last direction p, if negative_curvature.
};

/// Solves A x = b from the given x; b = 0, or so small that its squared length is 0 in float64, gives x = 0. `b` and
/// `x` have one shape. A step costs one product by A, one by M, three passes over vectors and two waits; the end (and a
/// start at x != 0) one more product. Hestenes and Stiefel (1952), section 3; with M as in Saad, Iterative Methods for
/// Sparse Linear Systems (2003), Algorithm 9.1; singular systems after Kaasschieter (1988).
ConjugateGradientResult conjugate_gradient(VectorOperations const& vectors, LinearSystem const& system, Vector const& b,
                                           Vector& x, ConjugateGradientOptions const& options);

}  // namespace monge
