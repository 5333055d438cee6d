// A Gromov-Wasserstein problem of matrices (docs/math.md, section 21).
#pragma once
#include <optional>
#include <vector>

#include "gromov/gromov_problem.hpp"

namespace monge {

class MatrixProblem : public GromovProblem {
 public:
  /// Reads and checks all arguments.
  MatrixProblem(Backend const& backend, GromovMatrices const& matrices, VectorView a, VectorView b,
                GromovOptions const& options);

  GromovBound bound(Context const& context, ExactOptions const& watched) const override;
  GromovBound descriptor_bound(Context const& context, ExactOptions const& watched) const override;
  std::vector<StartingPoint> starts(Context const& context, GromovOptions const& options,
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

 protected:
  /// A matrix as the products B(P) read it. The loss of two entries is f + f' - 2 c d for their values c and d in
  /// `matrix` and f and f' in `own`, whatever the plan.
  struct Side {
    Side(char const* field, Backend const& backend, MatrixView view, DenseVector const& weights, GromovLoss loss,
         bool is_target);
    DenseMatrix entries() const;
    /// sum_k p_k (f_ik + f_ki)
    DenseVector slopes(DenseVector const& marginal) const { return own * marginal + own.transpose() * marginal; }

    DenseMatrix matrix;  // Less the weighted mean; for the target of the loss kl half of the logarithm.
    DenseMatrix own;
    double mean = 0;      // The mean of the entries; for the target of kl the geometric one.
    bool is_log = false;  // Whether this is the target of kl.
    bool symmetric = true;
  };

  bool is_fused() const { return cost_.size() > 0; }
  bool is_symmetric() const { return source_->symmetric && target_->symmetric; }
  DenseMatrix image_of(DenseMatrix const& plan) const;
  virtual GromovValue value_of(DenseMatrix image) const;
  /// Moves rows and columns to the marginals a and b.
  virtual void make_feasible(DenseMatrix& plan) const;

  GromovLoss loss_ = GromovLoss::square;
  std::optional<Side> source_, target_;
  DenseMatrix cost_, s_, t_;  // M and the features that it is of, if it is.
  double of_product_ = 0;     // E(a b^T / T)
  int threads_ = 1;
};

}  // namespace monge
