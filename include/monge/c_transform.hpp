// The c-transform: optimal transport without entropy, seen from one potential.
#pragma once
#include <monge/array.hpp>
#include <monge/context.hpp>
#include <monge/geometry.hpp>

namespace monge {

/// f_i = min_j C_ij - g_j, and argmin (n x 1), the j where it is. g (m) is finite and in units of C, and every j
/// counts, whatever weight its point has elsewhere. With g = 0 this is the nearest neighbour, with any g the cell of
/// the Laguerre diagram that x_i lies in.
///
/// Runs in float64 from the clouds centred each at its mean, so a common offset costs no digits. f_i, and C_ij - g_j
/// for the choice of j, are off by a few roundings of float64 of the largest centred cost, the largest shift (the
/// square of the distance of the means, at most) and the range of g. Of two j that differ by less either may win; of
/// equal ones, such as copies of a point with one g, the smallest does. Takes two passes over all pairs and memory
/// O((n + m) d). Outputs may be float32 or float64 and lie on the host or on the context's device.
///
/// Throws Error (invalid_argument: shapes, a value that is not finite, a row or column of a cost matrix without a
/// finite cost; unsupported; out_of_memory; device_failure).
void c_transform(Context const& context, Geometry const& geometry, VectorView g, MutableVectorView f,
                 MutableIndexView argmin);

/// g_j = min_i C_ij - f_i, and argmin (m x 1), the i where it is.
void c_transform_transpose(Context const& context, Geometry const& geometry, VectorView f, MutableVectorView g,
                           MutableIndexView argmin);

/// <a, f> + <b, g>, in compensated float64 sums. Where f is the c-transform of g or g that of f, this is the semi-dual
/// value: a lower bound of min <C, P> over the plans with marginals a and b, reached at the optimal potential. a and b
/// as in solve(): non-negative with equal totals, uniform where empty. Throws Error (invalid_argument).
double semi_dual_value(Context const& context, VectorView a, VectorView b, VectorView f, VectorView g);

}  // namespace monge
