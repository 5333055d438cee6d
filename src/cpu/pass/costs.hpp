// A geometry, as operators on the CPU use it:
//
//   C_ij = C'_ij + shift_i + shift_j,   C'_ij = norm_i + norm_j + factor score_ij.
//
// Norms and shifts are float64, one for each point. The n m scores are in T; kernels compute or read them in each pass
// (stripe.hpp). Costs do not change, so an operator and its plans share them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include <monge/geometry.hpp>

#include "cpu/pass/packed_points.hpp"
#include "seam/plan_operator.hpp"

namespace monge::cpu {

/// The source of the scores of a stripe.
enum class ScoreForm {
  products,     // <x'_r, y'_j>
  differences,  // |x'_r - y'_j|^2
  distances,    // (sum_k |x'_rk - y'_jk|^p)^(1/p)
  stored,       // (C_rj - origin) / unit, from the caller's matrix
  kept,         // made by an earlier pass and read from memory
};

/// The caller's cost matrix. A score is rounded once to the wider of its type and T, and once to T.
struct StoredCosts {
  void const* data;
  DataType type;
  std::int64_t row_stride;  // Elements between rows.
  std::int64_t rows;        // Rows of all stripes together.
  bool transposed;          // Rows are columns in memory.
  double origin, unit;      // The unit is a power of two near the range of the costs, so that scores fit in T.
};

/// The type of a label in a vector beside numbers of T.
template <class T>
using LabelIndex = std::conditional_t<std::is_same_v<T, float>, std::int32_t, std::int64_t>;

/// A score of two labelled points has the further term table[label of the row, label of the column].
template <class T>
struct LabelTable {
  T const* table = nullptr;  // Null without labels.
  std::int64_t size = 0;     // Entries of the table.
  std::int64_t row_stride = 0;
  LabelIndex<T> const* rows = nullptr;  // Labels of the points, padded to whole panels, as are `columns`.
  LabelIndex<T> const* columns = nullptr;

  T const* row(std::int64_t i) const { return table + rows[i] * row_stride; }
};

/// The scores of stripes, whose rows are the points of one side and whose columns are those of the other.
template <class T>
struct ScoreSource {
  ScoreForm form;                         // Never `kept`.
  PackedPoints<T> const* rows = nullptr;  // Null for stored scores.
  PackedPoints<T> const* columns = nullptr;
  double p = 2;               // Exponent of distances.
  LabelTable<T> labels = {};  // Labels of points.
  StoredCosts stored = {};

  /// Coordinates of a score.
  std::int64_t dimension() const { return rows == nullptr ? 0 : rows->dimension; }
  /// Values of StripeArgs::row_scratch for each row: its coordinates, or its scores in one panel of columns.
  std::int64_t scratch() const { return rows == nullptr ? kPanel<T> : rows->dimension; }
};

/// Points as values of a product: x_i = centre + x'_i.
template <class T>
struct PointValues {
  PackedPoints<T> const* packed;
  std::span<double const> centre;
};

template <class T>
class PointCosts;  // cpu/geometry/point_costs.hpp

/// The other one of float and double.
template <class T>
using Other = std::conditional_t<std::is_same_v<T, float>, double, float>;

template <class T>
class Costs {
 public:
  Costs(std::int64_t n, std::int64_t m) : n_(n), m_(m) {}
  virtual ~Costs() = default;
  Costs(Costs const&) = delete;
  Costs& operator=(Costs const&) = delete;

  std::int64_t size(Side side) const { return side == Side::rows ? n_ : m_; }

  /// A bound of C', and of the difference of any two C', for points with weight. Infinite if the squared distances of
  /// any points overflow.
  double bound() const { return bound_; }
  /// C' >= -depth(), whatever the weights.
  double depth() const { return depth_; }
  /// As bound(), for points of any weight; in a matrix bound() itself.
  double bound_of_all() const { return std::max(bound_, depth_); }
  virtual double factor() const = 0;
  /// sum_ij a_i b_j C_ij / sum_ij a_i b_j of the user's cost; NaN for costs that at() and part() made.
  double mean() const { return mean_; }
  /// sum_ij a_i b_j over the forbidden pairs; 0 for costs that at() and part() made.
  double forbidden() const { return forbidden_; }
  virtual std::span<double const> norm(Side side) const = 0;
  virtual std::span<double const> shift(Side side) const = 0;
  /// The scores of stripes whose rows are points of `rows`; valid as long as this object.
  virtual ScoreSource<T> scores(Side rows) const = 0;

  /// The same costs in the other precision. The findings of the survey are copied. Points are read from the same
  /// geometry again, because packing has rounded them.
  virtual std::shared_ptr<Costs<Other<T>> const> twin(Geometry const& geometry) const = 0;
  /// The costs of some points of `side`, in the given order.
  virtual std::unique_ptr<Costs const> part(Side side, std::span<std::int64_t const> points) const = 0;
  /// The same object, if its costs are of points; else null.
  virtual PointCosts<T> const* of_points() const { return nullptr; }

 protected:
  double mean_ = std::numeric_limits<double>::quiet_NaN();
  double forbidden_ = 0;
  double bound_ = 0, depth_ = 0;

 private:
  std::int64_t n_, m_;
};

}  // namespace monge::cpu
