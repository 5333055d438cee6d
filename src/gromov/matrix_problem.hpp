// A Gromov-Wasserstein problem of matrices (docs/math.md, section 21).
#pragma once
#include <optional>
#include <vector>

#include "gromov/gromov_problem.hpp"

namespace monge {

class MatrixProblem final : public GromovProblem {
 public:
  /// Reads and checks all arguments.
  MatrixProblem(Backend const& backend, GromovMatrices const& matrices, VectorView a, VectorView b,
                GromovOptions const& options);

  GromovBound bound(Context const& context) const override;
  GromovBound descriptor_bound(Context const& context) const override;
  std::vector<StartingPoint> starts(Backend const& backend, GromovOptions const& options,
                                    std::optional<DenseMatrix> const& described) const override;

  // The image of a plan is n x 2 m: the plan, and half of the derivative of <C P D^T, P> by it.
  void linearise(DenseMatrix const& image, DenseMatrix& u, DenseMatrix& v) const override;
  double curvature(DenseMatrix const& image) const override;
  double norm(DenseMatrix const& image) const override { return image.leftCols(b_.size()).norm(); }
  DenseMatrix start_of(DenseMatrix const& image) const override { return image.leftCols(b_.size()); }
  DenseMatrix image_of(Plan const& plan) const override;
  GromovValue value_of(Plan const& plan, DenseVector& row, DenseVector& column) const override;
  GromovValue value_of(ExactPlan const& plan) const override;

  void gradients(Gromov const& result, GromovGradients const& out) const override;
  void source_features(Backend const& backend, Gromov const& result, MatrixView points, MatrixView features,
                       MutableMatrixView out) const override;

 private:
  /// A matrix, less its weighted mean.
  struct Side {
    Side(char const* field, Backend const& backend, MatrixView view, DenseVector const& weights, double total);

    DenseMatrix matrix;
    double mean = 0;
    DenseVector sums;     // sum_k a_k (C_ik + C_ki)
    DenseVector squares;  // sum_k a_k (C_ik^2 + C_ki^2)
    double square = 0;    // sum_ik a_i a_k C_ik^2
    bool symmetric = true;
  };

  bool is_fused() const { return cost_.size() > 0; }
  bool is_symmetric() const { return source_->symmetric && target_->symmetric; }
  DenseMatrix image_of(DenseMatrix const& plan) const;
  GromovValue value_of(DenseMatrix image) const;
  /// Moves rows and columns to the marginals a and b.
  void make_feasible(DenseMatrix& plan) const;

  std::optional<Side> source_, target_;
  DenseMatrix cost_;   // M
  double offset_ = 0;  // The square of the difference of the means, times the square of the total.
  int threads_ = 1;
};

}  // namespace monge
