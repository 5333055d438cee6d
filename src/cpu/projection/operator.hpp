// Batched projection on the CPU: each thread takes a range of the batch.
#pragma once
#include "seam/projection_operator.hpp"

namespace monge::cpu {

class Projection final : public ProjectionOperator {
 public:
  explicit Projection(int threads) : threads_(threads) {}
  Device device() const override { return {}; }
  void forward(ProjectionProblem const& problem, BatchView const& logits, MutableBatchView const& out) const override;
  void backward(ProjectionProblem const& problem, BatchView const& logits, BatchView const& d_out,
                MutableBatchView const& d_logits, float* d_dustbin_score) const override;
  void mhc_forward(ProjectionProblem const& problem, MhcArrays const& arrays, MhcOutputs const& out) const override;
  void mhc_backward(ProjectionProblem const& problem, MhcArrays const& arrays,
                    MhcGradients const& gradients) const override;

 private:
  int threads_;
};

}  // namespace monge::cpu
