// A plan with frozen potentials on the CPU. With t_ij the logits of row i and lse_i their log-sum-exp, base 2,
//   w_ij = 2^(t_ij - lse_i),   r_i = a_i 2^(lse_i + (f'_i - norm_i) log2(e) / eps),   P_ij = r_i w_ij.
// lse_i also bounds the logits of the row, so a product turns scores into exponentials in registers.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cpu/geometry/point_costs.hpp"
#include "cpu/pass/plan_tiles.hpp"
#include "cpu/pass/stripes.hpp"
#include "seam/plan_operator.hpp"

namespace monge::cpu {

template <class T>
class PlanOperator final : public monge::PlanOperator, public PlanEntries, public PlanPoints {
 public:
  PlanOperator(PlanData<T> data, double eps, Workers const& workers, double cache_bytes);
  ~PlanOperator() override;

  VectorOperations const& vectors() const override { return vectors_; }
  PlanEntries& entries() override { return *this; }
  void potentials(MutableVectorView f, MutableVectorView g) override;
  void transform(Side side, MutableVectorView out) override;
  void set_transforms(Vector const& f_plus, Vector const& g_plus) override;
  Vector const& marginal(Side side) override;
  double transport_cost() override;
  double label_cost() override;
  using PlanProducts::multiply;
  void multiply(Side side, Scaling scaling, Vector const& v, Vector& out) override;
  void multiply(Side side, Scaling scaling, MatrixView v, MutableMatrixView out) override;
  void multiply_points(Side side, Scaling scaling, MutableMatrixView out) override;
  void multiply_features(Side side, Vector& out) override;
  void multiply_hadamard(Side side, Vector const& l, Vector const& r, Vector const& v, Vector& out) override;
  void multiply_hadamard(Side side, MatrixView l, MatrixView r, MatrixView v, MutableMatrixView out) override;
  PointCost const& cost() const override { return of_points().cost(); }
  void features(Side side, Vector& out) const override;
  void slopes(Side side, Vector& out) const override;
  void directions(Side side, Vector& direction, Vector& inverse_length) const override;
  void distance_gradients(Side side, Vector const* l, Vector const* r, Vector& result) override;
  void distance_changes(Side side, Vector const& v, Vector const& w, Vector& costs, Vector& gradients) override;
  void weight_terms(Side side, double penalty, WeightTerms const& out) override;
  void multiply_gram(Side side, Vector const& w, Vector const& in, Vector& out) override;
  void all(Side side, MutableMatrixView out) override;
  void top_k(Side side, MutableIndexView indices, MutableMatrixView values) override;
  std::int64_t count_above(double threshold, MutableIndexView row_begin) override;
  std::int64_t entries_above(double threshold, MutableIndexView row_begin, MutableIndexView columns,
                             MutableVectorView values) override;
  void sample(std::uint64_t seed, MutableIndexView pairs) override;
  void entries_at(IndexView rows, IndexView columns, MutableVectorView values) override;
  std::unique_ptr<monge::EntrySolver> entry_solver(double per_row) override;
  std::unique_ptr<monge::PlanOperator> at_eps(double eps) const override;
  using PlanPoints::at;
  std::unique_ptr<monge::PlanOperator> at(Side side, NewPoints const& given) const override;

 private:
  PlanPoints* points_or_null() override { return data_.costs->of_points() ? this : nullptr; }
  PointCosts<T> const& of_points() const { return *data_.costs->of_points(); }

  struct Products;   // data for products onto one side
  struct Hadamard {  // L and R of (P o L R^T) V, each row divided by a power of two
    PackedPoints<T> left, right;
    std::vector<double> left_units, right_units, scaled;
  };

  TileList const& tiles(Side side);
  Products& products(Side side);
  Products& measured(Side side);
  void take_transform(Side side, Products& onto) const;
  double marginal_from(Side side, std::int64_t i, double lse) const;
  void record(Side side, Products& onto, Workspace<T> const& work, std::int64_t first, std::int64_t count) const;
  template <class Consume>
  Stripes<T> const& for_each_stripe(Side side, T const* beta, bool store, Consume&& consume);
  /// A row holds w_ij; or log2 w_ij + reference, with minus infinity at forbidden pairs.
  enum class RowOf { shares, logarithms };
  struct Row {
    std::int64_t i;      // The caller's point,
    std::int64_t place;  // and its place in vectors.
    std::span<T const> values;
    std::span<T const> largest;            // The largest of each kLogitGroup logarithms, which are never NaN.
    std::span<std::int64_t const> points;  // The caller's points j, in any order; empty: all, ascending.
    double reference;

    std::int64_t j(std::size_t k) const { return points.empty() ? static_cast<std::int64_t>(k) : points[k]; }
  };
  /// Each thread calls it with its rows in order. A row is valid during the call only. This rank sees its own rows.
  using RowConsumer = std::function<void(int thread, Row const& row)>;
  Stripes<T> const& for_each_row(Side side, RowOf what, RowConsumer const& consume);
  /// multiply() and its like with views in the order of the vectors.
  void multiply_inside(Side side, Scaling scaling, MatrixView v, MutableMatrixView out);
  void multiply_points_inside(Side side, Scaling scaling, MutableMatrixView out);
  void multiply_hadamard_inside(Side side, MatrixView l, MatrixView r, MatrixView v, MutableMatrixView out);
  std::unique_ptr<HostVector> inside(Side side, MatrixView view) const;
  double known_mass(Side side, std::int64_t j) const;
  template <class Read>
  bool is_concentrated(Side side, Read const& read) const;
  /// Whether the reciprocals of the masses are concentrated.
  bool has_tiny_points(Side side) const;
  void multiply_concentrated(Side side, Scaling scaling, HostVector const& v, MatrixView l, MatrixView r,
                             MutableMatrixView out);
  template <class Read>
  double weigh(Logits<T> const& logits, Read const& read);
  template <class Read>
  void weigh_matrix(Products const& onto, ValueLayout<T> layout, Read const& read);
  template <class Read>
  void multiply_vector(Side side, Scaling scaling, Read const& read, MutableMatrixView out);
  template <class Read>
  void multiply_matrix(Side side, Scaling scaling, std::int64_t width, Read const& read, double const* origin,
                       Hadamard const* hadamard, MutableMatrixView out);
  void multiply_any(Side side, Scaling scaling, MatrixView l, MatrixView r, MatrixView v, MutableMatrixView out);
  PlanOperator with_weighted_points(Side side, HostVector const& v) const;

  PlanData<T> data_;
  HostVectorOperations vectors_;
  double eps_;
  Workers workers_;
  double cache_bytes_;                   // The part of the cache that no side has taken.
  std::optional<CountedList> tiles_[2];  // The result of tiles(), once a pass needs it.
  std::optional<Side> new_side_;         // The side of new points, made by at().
  std::unique_ptr<Products> products_[2];
  std::unique_ptr<HostVector> transforms_[2];  // Arguments of set_transforms().
  /// Kept between products.
  Buffer<T> weighed_, values_;
  Buffer<double> units_, sums_;
  Hadamard hadamard_;
  std::unique_ptr<Vector> between_[2];  // Vectors between the passes of a Gram product.
};

}  // namespace monge::cpu
