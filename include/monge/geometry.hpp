// Geometries: the source of the costs C_ij.
#pragma once
#include <variant>

#include <monge/array.hpp>

namespace monge {

/// c(x, y), the cost of moving a unit of mass from x to y. All have first and second derivatives by the points; both
/// are set to 0 for a distance of 0. With p = infinity coordinates that tie for the largest difference get equal parts
/// of the first derivative. Second derivatives are those between the kinks of a p-norm: with p < 2 a coordinate in
/// which two points agree has none.
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

/// Classes of the points, and the costs between classes: weight W[l_i, l_j] is added to C_ij, as in OTDD
/// (Alvarez-Melis, Fusi 2020; FlashSinkhorn, eq. 32). On CUDA for costs with inner products (sqeuclidean, cosine, dot)
/// alone: euclidean and p_norm are unsupported there. Throws invalid_argument for labels beyond W and a W that is not
/// finite.
struct Labels {
  IndexView x;          ///< n labels in [0, rows of W). Empty x and y: no labels.
  IndexView y;          ///< m labels in [0, columns of W).
  MatrixView cost;      ///< W. On CUDA W adds min(rows, columns) coordinates to each point: classes should be few.
  double weight = 1.0;  ///< Finite.

  bool empty() const { return x.empty() && y.empty() && cost.rows() == 0 && cost.columns() == 0; }
};

/// Two point clouds, x (n x d) and y (m x d), with C_ij = scale c(x_i, y_j), plus labels.weight W[l_i, l_j] if there
/// are labels. Costs are computed on the fly in O((n + m) d) of memory. The views may be float32 or float64, with
/// strided rows; a solve packs its own centred copy.
struct PointCloud {
  MatrixView x;        ///< n x d source points.
  MatrixView y;        ///< m x d target points.
  double scale = 1.0;  ///< > 0. sqeuclidean with 0.5 is GeomLoss's cost for p = 2.
  CostFunction cost_function = CostFunction::sqeuclidean;
  double p = 2.0;  ///< Exponent of p_norm, >= 1 or infinity.
  Labels labels = {};
};

/// Given costs C (n x m): finite numbers of any sign; +infinity forbids a pair. Each row of positive weight needs a
/// finite cost to a column of positive weight, and vice versa. A row or column of weight 0 without a finite cost gets
/// the potential +infinity and shares of 0. The matrix is float32 or float64, with rows possibly strided. Every pass
/// reads the matrix in place if the context can reach its memory, so the matrix must not change while the solve or its
/// Plan uses it. A CUDA context copies a matrix in host memory to the device once. Throws invalid_argument for NaN,
/// -infinity, and positive weight without a finite cost.
struct CostMatrix {
  MatrixView cost;          ///< n x m; m x n if transposed.
  bool transposed = false;  ///< `cost` holds C^T: element (j, i) is C_ij.
};

/// The source of the costs of a problem, an argument of solve().
using Geometry = std::variant<PointCloud, CostMatrix>;

}  // namespace monge
