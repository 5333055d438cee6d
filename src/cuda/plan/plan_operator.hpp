// A plan with frozen potentials on a CUDA device.
//
// The shares of a row, 2^(t_ij - lse_i) beta_j, need the log-sum-exp of the row besides the data of sweeps. With it, a
// product with one vector is a pass like a half-step, with given references. Products with many columns write shares to
// memory, as many rows at a time as fit, and multiply them there. If `cache_bytes` allows, the entries of all rows stay
// for the next product.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "cuda/entries/entry_product.hpp"
#include "cuda/entries/point_slopes.hpp"
#include "cuda/geometry/point_costs.hpp"
#include "cuda/plan/plan_tiles.hpp"
#include "cuda/plan/select.hpp"
#include "seam/plan_operator.hpp"

namespace monge::cuda {

/// Makes room for `size` elements; growing discards the contents.
template <class T>
void grow(SharedRuntime const& runtime, DeviceArray<T>& array, std::int64_t size) {
  if (array.size() < size) array = DeviceArray<T>(runtime, size);
}

class PlanOperator final : public monge::PlanOperator, public PlanEntries, public PlanPoints {
 public:
  /// Copies the potentials, as (f + t, g - t).
  PlanOperator(Problem problem, Potentials const& potentials, double eps, double t, double cache_bytes,
               Queue const& queue);

  VectorOperations const& vectors() const override { return vectors_; }
  PlanEntries& entries() override { return *this; }
  void potentials(MutableVectorView f, MutableVectorView g) override;
  void transform(Side side, MutableVectorView out) override;
  /// to = to + factor times the transform.
  void add_transform(Side side, double factor, DeviceVector& to);
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
  void distance_gradients(Side side, Vector const* l, Vector const* r, Vector& out) override;
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
  PlanPoints* points_or_null() override { return problem_.costs->of_points() ? this : nullptr; }
  PointCosts const& of_points() const { return *problem_.costs->of_points(); }

  /// Data for passes over the rows of one side, from one half-step or from a given transform.
  struct Frozen {
    Transform transform;                            // Logits of the other side and sums; no sums if given.
    DeviceArray<unsigned char> references;          // References of this side's points, padded.
    DeviceArray<double> share_factor, plan_factor;  // Factors of the row sums, for either Scaling.
    DeviceVector marginal;
    std::unique_ptr<SumPass> product;               // The product of one vector.
    DeviceArray<unsigned char> factors, partials;   // Arguments of `product`.
    DeviceArray<unsigned long long> scales;         // The two numbers of VectorScale.
    int products = 0;                               // Launched so far; its parity selects the scale.
    bool is_given = false;                          // Whether marginal() has returned the marginal.
    mutable std::optional<double> mean_over_least;  // Ratio for the marginal, once it was needed.
  };
  /// Entries of some rows of one side, and the number of rows that fit.
  struct EntryStore {
    DeviceArray<unsigned char> high, low;
    DeviceArray<double> sums;  // One for each row.
    int rows = 0;
    bool complete = false;  // All rows of this rank are present, and stay.

    Entries entries(DataType scalar, int columns) const { return {scalar, columns, high.data(), low.data()}; }
  };
  /// Memory of products with many columns and of selections. It only grows. Plans of a runtime share it: a call may
  /// overwrite it, and it lives as long as one of the plans that have used it.
  struct Workspace {
    EntryStore passing;  // Entries that are not kept.
    DeviceArray<unsigned char> values_high, values_low, partials, sum_partials, left, right;
    DeviceArray<unsigned char> products;                          // Products of all ranks, if several.
    DeviceArray<unsigned char> log_rows, log_factors, selection;  // Memory of selections,
    DeviceArray<int> log_columns;                                 // and of those from listed tiles.
    DeviceArray<std::uint32_t> log_listed;
    DeviceArray<double> scale, left_divisor, right_divisor;
    DeviceArray<unsigned long long> largest;
  };
  /// The factors L and R of the Hadamard product, packed.
  struct HadamardFactors {
    Operand left, right;
    double factor = 1;  // Scales the products of the fp16 parts to at most 1.
    double const* left_divisor = nullptr;
    double const* right_divisor = nullptr;
  };

  Frozen& frozen(Side side);
  /// The tiles of passes whose rows are the points of a side; null where passes take all pairs.
  ListedTiles const* tiles(Side side);
  Workspace& workspace();
  EntryStore& entry_store(Side side, bool keep);
  /// Whether the cache has room for the entries of a side.
  bool keeps_entries(Side side) const;
  /// Whether a product with `width` columns goes through entries in memory, which are kept or not.
  bool by_entries(int width, bool keep) const;
  double reach(bool of_entries) const;
  double mean_over_least(Side side) const;
  /// The columns of V, on the host, that are concentrated.
  struct HostColumn {
    int column;
    std::vector<double> values;
  };
  std::vector<HostColumn> concentrated(Side side, StridedView const& v, int width, StridedView const* r, int inner,
                                       double reach);
  /// Another plan, and a vector of signs: the product of that plan and the signs is the product of this plan and a
  /// concentrated vector.
  struct Scaled {
    std::unique_ptr<PlanOperator> plan;
    DeviceVector signs;
  };
  Scaled scaled(Side side, std::vector<double> const& v, StridedView const* r, int inner) const;
  void multiply_concentrated(Side side, Scaling scaling, std::vector<double> const& v, StridedView const* l,
                             StridedView const* r, int inner, StridedView const& out);
  void multiply_any(Side side, Scaling scaling, StridedView const& v, int width, StridedView const& out, double reach);
  void multiply_one(Side side, Scaling scaling, StridedView const& v, double const* origin, StridedView const& out);
  void multiply_columns(Side side, Scaling scaling, StridedView const& v, int width, double const* origin,
                        StridedView const& out, bool keep);
  void multiply_hadamard(Side side, StridedView const& l, StridedView const& r, int inner, StridedView const& v,
                         int width, StridedView const& out);
  HadamardFactors hadamard_factors(Side side, StridedView const& l, StridedView const& r, int inner);
  PackedValues packed_values(Side side, StridedView const& v, int width, double const* divisor);
  Operand entry_operand(int rows, void const* high, void const* low, int columns) const;
  void write_entries(Side side, int first, int rows, EntryStore& store);
  void weight_entries(HadamardFactors const& hadamard, int first, int rows, Entries const& entries);
  StoreValuesArguments multiply_entries(Operand const& rows, PackedValues const& values);
  void multiply_many(Side side, Scaling scaling, StridedView const& v, int width, double const* origin,
                     StridedView const& out, bool keep, HadamardFactors const* hadamard);
  using EntrySums = std::function<StoreValuesArguments(int first, int rows, Entries const& entries)>;
  void sum_entries(Side side, Scaling scaling, int width, double const* origin, StridedView const& out, bool keep,
                   HadamardFactors const* hadamard, EntrySums const& sums_of);
  void sum_slopes(Side side, StridedView const* l, StridedView const* r, int inner, StridedView const& v,
                  PointMotion const& motion, StridedView const& out);
  /// Bytes that a selection needs for each row of logarithms, and for each group of its columns.
  struct RowScratch {
    std::int64_t row = 0, group = 0;
    std::int64_t bytes(std::int64_t columns) const { return row + columns / kLogitGroup * group; }
  };
  /// Calls visit(rows) for all rows of `side`, as many at a time as fit with `scratch` beside them. Rows of listed
  /// tiles have at least the first `fill` columns.
  template <class Visit>
  void for_log_rows(Side side, RowScratch const& scratch, int fill, Visit const& visit);
  Operand pack_rows(StridedView const& from, int rows, int padded_rows, int columns, DeviceArray<unsigned char>& memory,
                    DeviceArray<double>& divisor);

  Problem problem_;
  DeviceVectorOperations vectors_;
  Potentials potentials_;
  double eps_;
  double cache_bytes_;
  std::optional<PlanTiles> tiles_;  // Null unless products of one column leave out pairs, until the first of them.
  std::optional<Side> new_side_;    // The side whose points at() has replaced.
  std::optional<Frozen> frozen_[2];
  double known_mean_over_least_[2];    // Ratio for the weights, or for the marginals at another eps.
  DeviceArray<double> transforms_[2];  // Arguments of set_transforms(), until a side is frozen.
  EntryStore kept_[2];
  std::shared_ptr<Workspace> workspace_;
  DeviceVector between_[2];  // Vectors between the two halves of Gram products.
};

}  // namespace monge::cuda
