// Geometries: where the costs C_ij come from.
#pragma once
#include <variant>

#include <monge/array.hpp>

namespace monge {

/// c(x, y), what the distance of two points costs.
enum class CostFunction {
  sqeuclidean,  ///< |x - y|^2
  euclidean,    ///< |x - y|
  cosine,       ///< 1 - <x, y> / (|x| |y|); throws invalid_argument for a point of length 0.
  dot,          ///< -<x, y>
  p_norm,       ///< (sum_k |x_k - y_k|^p)^(1/p); with p = infinity the largest |x_k - y_k|.
};

constexpr auto names_of(CostFunction) {
  using enum CostFunction;
  return std::to_array<Named<CostFunction>>(
      {{sqeuclidean, "sqeuclidean"}, {euclidean, "euclidean"}, {cosine, "cosine"}, {dot, "dot"}, {p_norm, "p-norm"}});
}

/// Whether there are derivatives by the points, with labels or without: those of gradients, and Hessian products.
constexpr bool has_point_derivatives(CostFunction function) {
  return function == CostFunction::sqeuclidean || function == CostFunction::dot;
}

/// Classes of the points, and what it costs to go from one to another: weight W[l_i, l_j] is added to C_ij, as in
/// OTDD (Alvarez-Melis, Fusi 2020; FlashSinkhorn, eq. 32). For costs with inner products (sqeuclidean, cosine, dot);
/// throws unsupported for others. Throws invalid_argument for labels beyond W and a W that is not finite.
struct Labels {
  IndexView x;          ///< n labels, in [0, rows of W); empty, as y then is: none.
  IndexView y;          ///< m labels, in [0, columns of W).
  MatrixView cost;      ///< W, small: it takes min(rows, columns) further coordinates.
  double weight = 1.0;  ///< Finite.

  bool empty() const { return x.empty() && y.empty() && cost.rows() == 0 && cost.columns() == 0; }
};

/// Two point clouds, x (n x d) and y (m x d), with C_ij = scale c(x_i, y_j), plus labels.weight W[l_i, l_j] where there
/// are labels; computed on the fly: memory O((n + m) d). Views of the caller's memory, float32 or float64, rows
/// possibly strided; a solve packs its own centred copy.
struct PointCloud {
  MatrixView x;        ///< n x d source points.
  MatrixView y;        ///< m x d target points.
  double scale = 1.0;  ///< > 0. With sqeuclidean 0.5 is GeomLoss's cost for p = 2.
  CostFunction cost_function = CostFunction::sqeuclidean;
  double p = 2.0;  ///< Of p_norm; at least 1, infinity too.
  Labels labels = {};
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
