// The c-transform: for optimal transport without entropy, the best potential of one side given the other's.
#pragma once
#include <monge/array.hpp>
#include <monge/context.hpp>
#include <monge/export.hpp>
#include <monge/geometry.hpp>

namespace monge {

/// Writes f_i = min_j (C_ij - g_j) to f (n), and the minimising j to argmin (n x 1). g (m) is finite and in units of C.
/// Points have no weights here: every j counts. With g = 0 argmin is the nearest neighbour; with any g it is the cell
/// of the Laguerre diagram that contains x_i.
///
/// Runs in float64. Each cloud is centred at its mean, so a common offset costs no digits. The error of f_i, and of
/// C_ij - g_j in the choice of j, is a few float64 roundings of the largest centred cost, the largest shift (at most
/// the squared distance of the means) and the range of g. If the values of two j differ by less than this error, either
/// may be returned. If they are equal, as for copies of a point with the same g, the smallest j is returned. Takes two
/// passes over all pairs and O((n + m) d) of memory. Outputs may be float32 or float64 and lie on the host or on the
/// context's device.
///
/// Throws Error (invalid_argument: shapes, a value that is not finite, a row or column of a cost matrix without a
/// finite cost; unsupported; out_of_memory; device_failure).
MONGE_API void c_transform(Context const& context, Geometry const& geometry, VectorView g, MutableVectorView f,
                           MutableIndexView argmin);

/// Writes g_j = min_i (C_ij - f_i) to g (m), and the minimising i to argmin (m x 1).
MONGE_API void c_transform_transpose(Context const& context, Geometry const& geometry, VectorView f,
                                     MutableVectorView g, MutableIndexView argmin);

/// <a, f> + <b, g>, in compensated float64 sums. If f is the c-transform of g, or g the c-transform of f, this is the
/// semi-dual value: a lower bound of min <C, P> over the plans with marginals a and b, reached at the optimal
/// potential. a and b are as in solve(): non-negative with equal totals, uniform if empty. Throws Error
/// (invalid_argument).
MONGE_API double semi_dual_value(Context const& context, VectorView a, VectorView b, VectorView f, VectorView g);

}  // namespace monge
