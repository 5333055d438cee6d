// Batched projection on one device.
#pragma once
#include <memory>
#include <vector>

#include "cuda/runtime/runtime.hpp"
#include "seam/projection_operator.hpp"

namespace monge::cuda {

struct ProjectionArguments;

class Projection final : public ProjectionOperator {
 public:
  explicit Projection(std::shared_ptr<Runtime const> runtime) : runtime_(std::move(runtime)) {}
  ~Projection() override;
  Device device() const override { return {DeviceType::cuda, runtime_->index()}; }
  void forward(ProjectionProblem const& problem, BatchView const& logits, MutableBatchView const& out) const override;
  void backward(ProjectionProblem const& problem, BatchView const& logits, BatchView const& d_out,
                MutableBatchView const& d_logits, float* d_dustbin_score) const override;
  void mhc_forward(ProjectionProblem const& problem, MhcArrays const& arrays, MhcOutputs const& out) const override;
  void mhc_backward(ProjectionProblem const& problem, MhcArrays const& arrays,
                    MhcGradients const& gradients) const override;

 private:
  /// Memory for large matrices, histories that do not fit on chip and sums over tokens. It is allocated on another
  /// stream than its user's: memory that a stream allocates while it records a graph belongs to the graph.
  float* workspace(std::int64_t floats) const;
  void project_large(ProjectionProblem const& problem, ProjectionArguments const& arguments, bool backward) const;

  std::shared_ptr<Runtime const> runtime_;
  mutable std::vector<DeviceArray<float>> workspaces_;  ///< The last is in use; graphs may use the others.
};

}  // namespace monge::cuda
