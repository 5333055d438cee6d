// A Gromov-Wasserstein problem of matrices with open marginals (docs/math.md, section 21).
#pragma once
#include "gromov/matrix_problem.hpp"

namespace monge {

class OpenMatrixProblem final : public MatrixProblem, public OpenObjective {
 public:
  OpenMatrixProblem(Backend const& backend, GromovMatrices const& matrices, VectorView a, VectorView b,
                    GromovOptions const& options);

  GromovBound bound(Context const&, ExactOptions const&) const override { return {least_, {}}; }
  GromovBound descriptor_bound(Context const& context, ExactOptions const& watched) const override {
    return {least_, MatrixProblem::descriptor_bound(context, watched).start};
  }
  void linearise(DenseMatrix const& image, DenseMatrix& u, DenseMatrix& v) const override;
  double curvature(DenseMatrix const& image) const override { return -alpha_ * energy(image); }
  OpenObjective const* open() const override { return this; }
  UnbalancedTerms terms_of(DenseMatrix const& image) const override;
  DenseMatrix scaled(DenseMatrix const& image, double factor) const override { return factor * image; }
  void add_terms(DenseVector const& r, DenseVector const& c, DenseMatrix& u, DenseMatrix&) const override {
    u.colwise() += r;
    u.rowwise() += c.transpose();
  }
  void gradients(Gromov const& result, GromovGradients const& out) const override;

 private:
  double energy(DenseMatrix const& image) const;  // E
  GromovValue value_of(DenseMatrix image) const override;
  void make_feasible(DenseMatrix& plan) const override;
};

}  // namespace monge
