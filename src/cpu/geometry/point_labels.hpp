// Labels of points, and the costs between their classes (docs/math.md, section 12), for the CPU.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <monge/geometry.hpp>

#include "cpu/pass/costs.hpp"
#include "geometry/point_cost.hpp"

namespace monge::cpu {

/// In float64: label_cost_ij = centred[of_x[i], of_y[j]] + shift_x[of_x[i]] + shift_y[of_y[j]]. The shifts hold the
/// weighted means over the classes of the other side, so a common offset of all costs is no part of the centred ones.
struct PointLabels {
  /// Throws invalid_argument for a label without a class.
  PointLabels(std::shared_ptr<LabelCosts const> costs, Labels const& labels, std::span<double const> a,
              std::span<double const> b);
  /// The same with other points on `side`.
  PointLabels at(Side side, IndexView labels) const;

  std::shared_ptr<LabelCosts const> costs;
  std::vector<std::int64_t> of[2];  // Labels of the points of a side.
  std::vector<double> shift[2];     // Shifts of the classes of a side.
  std::vector<double> centred;      // Row by row, as costs->cost.
  double mean = 0;                  // Weighted mean of label_cost.
};

/// The labels of one side, packed for the kernels.
template <class T>
using PackedLabels = std::vector<LabelIndex<T>>;  // The last label is repeated up to a whole panel.
template <class T>
PackedLabels<T> pack_labels(std::span<std::int64_t const> labels);

/// centred / factor, a row for each class of `rows`.
template <class T>
std::vector<T> label_scores(PointLabels const& labels, Side rows, double factor);

}  // namespace monge::cpu
