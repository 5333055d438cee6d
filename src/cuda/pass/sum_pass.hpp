// A pass whose result is sums for all rows. Sweeps and products launch it; geometries choose its kernels. Passes of one
// operator with equal arguments launch the same work, so a graph of one serves the other.
#pragma once
#include "cuda/pass/pass.hpp"

namespace monge::cuda {

class SumPass {
 public:
  virtual ~SumPass() = default;

  /// Elements of arguments.partials.
  virtual std::int64_t size() const = 0;
  /// The layout of the sums of a row.
  virtual WorkPlan work() const = 0;
  /// Several ranks that share the pass call DeviceRanks::meet() before it, and `queue` is `stream`, not a batch.
  virtual void launch(Queue const& queue, cudaStream_t stream) const = 0;

  /// Operands of the rank's rows. The caller gives vectors of all columns, and references and sums of all rows.
  PassArguments arguments;

 protected:
  explicit SumPass(PassArguments const& given) : arguments(given) {}
};

}  // namespace monge::cuda
