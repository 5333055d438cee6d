// The entropic operator of two point clouds on the CPU: stripes of the logits, threads over stripes.
#pragma once
#include <memory>
#include <vector>

#include <monge/geometry.hpp>

#include "cpu/packed_cloud.hpp"
#include "cpu/stripe.hpp"
#include "operators/entropic_operator.hpp"

namespace monge::cpu {

template <class T>
class PointCloudOperator final : public EntropicOperator {
 public:
  PointCloudOperator(PointCloud const& geometry, std::vector<double> const& a, std::vector<double> const& b,
                     int threads, double cache_bytes);

  double largest_cost() const override;
  void set_potentials(VectorView f, VectorView g) override;
  void get_potentials(MutableVectorView f, MutableVectorView g) const override;
  void sweep(Sweep const& sweep, int count) override;
  SweepErrors errors() override { return errors_; }
  Evaluation evaluate(double eps) override;
  void marginals(double eps, MutableVectorView row, MutableVectorView column) override;
  void softmin(Side side, double eps, MutableVectorView out) override;
  void average(Side side, double eps, MatrixView v, MutableMatrixView out, bool normalized) override;
  std::unique_ptr<EntropicOperator> with_points(Side side, MatrixView points) const override;

 private:
  /// One cloud with its weights and potential. The user's potential is potential + shift.
  struct Cloud {
    std::shared_ptr<PackedCloud<T> const> points;
    std::vector<double> weight;
    std::vector<double> log2_weight;
    std::vector<double> potential;
    std::vector<double> shift;
  };
  struct Logits;     // what a pass reads of its columns
  struct Workspace;  // what a thread needs
  struct Marginals {
    std::vector<double> row, column;
    double weighted_cost;  // <C', P>
  };

  /// What bounds the logits of the next sweep: see row_bounds().
  struct LastSweep {
    double eps = 0;  // 0: none since the potentials were set
    std::vector<double> column_bias, row_lse;
  };

  PointCloudOperator(std::int64_t n, std::int64_t m) : EntropicOperator(n, m) {}
  static void set_weight(Cloud& cloud, std::vector<double> weight);
  Cloud& cloud(Side side) { return clouds_[static_cast<int>(side)]; }
  Cloud const& cloud(Side side) const { return clouds_[static_cast<int>(side)]; }

  std::vector<double> shift_of(Side side, MatrixView points) const;
  bool differences() const;
  double norm_term(PackedCloud<T> const& points, std::size_t i) const;
  std::int64_t stripe_rows(std::int64_t rows, std::int64_t padded_columns) const;
  Logits logits_of(Side columns, std::vector<double> const& potential, double eps) const;
  std::vector<double> row_bounds(Logits const& logits, double eps) const;
  template <class Consume>
  void for_each_stripe(PackedCloud<T> const& rows, Side columns, Logits const& logits,
                       std::vector<double> const& bounds, bool moments, Consume&& consume) const;
  std::vector<double> softmin_of(PackedCloud<T> const& rows, Side columns, std::vector<double> const& potential,
                                 double eps) const;
  void one_sweep(Sweep const& sweep);
  void update_columns(Sweep const& sweep, Logits const& logits, std::vector<double> const& f_used,
                      double const* column_sums, double smallest_trusted);
  Marginals marginals_of(double eps) const;

  Cloud clouds_[2];
  double scale_ = 1;
  double mass_ = 1;
  int most_threads_ = 1;  // What the context allows,
  int threads_ = 1;       // and what the number of pairs makes worth while.
  SweepErrors errors_{0, 0};
  LastSweep last_;
  /// Scores of all pairs, kept between sweeps where that is allowed and pays; filled by the first pass over rows.
  mutable AlignedArray<T> scores_;
  mutable bool scores_ready_ = false;
};

}  // namespace monge::cpu
