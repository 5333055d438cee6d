// The costs of regularised plans as kernels read them: the caller's matrices, or points in their place.
#pragma once
#include <limits>

#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Points in place of a cost matrix: S_ij = base_i + base_j + factor score_ij.
struct RegularizedPoints {
  double* coordinates[2] = {};  // Coordinates of rows and columns, [coordinate][point].
  double* base[2] = {};
  int dimension = 0;
  ScoreForm form = ScoreForm::products;
  double p = 2;  // Exponent of distances.
  double factor = 1;
};

/// The caller's matrices, and the numbers that turn costs into costs inside: S_ij = max((C_ij - least) / range, floor)
/// + l1 W_ij, +infinity for a forbidden pair. Newton's method, where points without mass take no part, knows no floor.
struct RegularizedMatrix {
  int rows = 0, columns = 0;
  StoredCosts cost = {};                   // Null data: points instead. `least` is 0 until the survey.
  RegularizedPoints points = {};           // Used without a cost matrix.
  StridedView l1_weights = {}, mask = {};  // Null data: not given.
  double inverse_range = 1;
  double floor = -std::numeric_limits<double>::infinity();
  double l1 = 0;
};

/// An order of rows: place k holds row row[k] of the problem, or padding if row[k] is negative.
struct RowOrder {
  int size = 0;
  int const* row = nullptr;  // Null: the order of the problem.
};

}  // namespace monge::cuda
