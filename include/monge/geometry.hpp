// Geometries: where the costs C_ij come from.
#pragma once
#include <variant>

#include <monge/array.hpp>

namespace monge {

/// Two point clouds, x (n x d) and y (m x d), with C_ij = scale |x_i - y_j|^2, computed on the fly: memory O((n + m)
/// d). Views of the caller's memory, float32 or float64, rows possibly strided; a solve packs its own centred copy.
struct PointCloud {
  MatrixView x;        ///< n x d source points.
  MatrixView y;        ///< m x d target points.
  double scale = 1.0;  ///< > 0. 1 is the squared distance; 0.5 is GeomLoss's cost for p = 2.
};

/// Where the costs of a problem come from: what solve() takes.
using Geometry = std::variant<PointCloud>;

}  // namespace monge
