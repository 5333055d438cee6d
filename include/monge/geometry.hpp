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

/// Given costs C (n x m): any finite numbers, negative ones too; +infinity forbids a pair. A row or column of positive
/// weight needs a finite cost to one of positive weight; one of no weight that has none has the potential +infinity and
/// shares of 0. float32 or float64, rows possibly strided, read in place by every pass where the context can reach it:
/// the memory stays as it is as long as the solve and its Plan use it. A matrix in host memory is copied to a CUDA
/// device once, as it is. Throws invalid_argument for NaN, -infinity and weight that has nowhere to go.
struct CostMatrix {
  MatrixView cost;          ///< n x m; m x n if transposed.
  bool transposed = false;  ///< `cost` holds C^T: element (j, i) is C_ij.
};

/// Where the costs of a problem come from: what solve() takes.
using Geometry = std::variant<PointCloud, CostMatrix>;

}  // namespace monge
