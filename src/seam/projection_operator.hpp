// The seam of the batched projection: one call is one pass over the batch. Views have been validated.
#pragma once
#include <monge/projection.hpp>

namespace monge {

struct ProjectionProblem;  // projection/problem.hpp

/// float32, on the operator's device.
struct MhcArrays {
  std::int64_t tokens = 0;
  int streams = 4;
  float const* mixes = nullptr;
  std::int64_t mixes_stride = 0;
  float const* scale = nullptr;
  float const* base = nullptr;
  float pre_epsilon = 0, post_factor = 2;

  int columns() const { return streams * (streams + 2); }  ///< Columns of mixes, and entries of base.
};

struct MhcOutputs {
  float *pre, *post, *res;  ///< Contiguous.
};

struct MhcGradients {
  float const *d_pre, *d_post, *d_res;  ///< Contiguous.
  float* d_mixes;
  std::int64_t d_mixes_stride;
  float *d_scale, *d_base;
};

class ProjectionOperator {
 public:
  virtual ~ProjectionOperator() = default;
  virtual Device device() const = 0;
  virtual void forward(ProjectionProblem const& problem, BatchView const& logits,
                       MutableBatchView const& out) const = 0;
  virtual void backward(ProjectionProblem const& problem, BatchView const& logits, BatchView const& d_out,
                        MutableBatchView const& d_logits, float* d_dustbin_score) const = 0;
  virtual void mhc_forward(ProjectionProblem const& problem, MhcArrays const& arrays, MhcOutputs const& out) const = 0;
  virtual void mhc_backward(ProjectionProblem const& problem, MhcArrays const& arrays,
                            MhcGradients const& gradients) const = 0;
};

}  // namespace monge
