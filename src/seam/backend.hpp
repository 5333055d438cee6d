// A backend makes operators on one device. geometry x backend -> operator; registry.cpp lists the backends of this
// build.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <monge/context.hpp>
#include <monge/entropic.hpp>

#include "core/memory_count.hpp"
#include "ranks/ranks.hpp"
#include "seam/assignment_operator.hpp"
#include "seam/cloud_tree.hpp"
#include "seam/entropic_operator.hpp"
#include "seam/mixture.hpp"
#include "seam/projection_operator.hpp"
#include "seam/quadratic_operator.hpp"
#include "seam/regularized_operator.hpp"

namespace monge {

/// The marginals of a problem, on the host.
struct Marginals {
  std::vector<double> a, b;
};

struct OperatorOptions {
  Precision precision = Precision::float32;
  double cache_bytes = 0;  ///< As SolveOptions::cache_bytes, for the operator and the plans it makes.
  Penalties penalties{};
  /// Passes may leave out pairs that carry up to this fraction of each row and of each column; 0: they take all pairs.
  /// For squared distances of points, without ranks; on a CUDA device with up to 8 dimensions and classes of labels
  /// together.
  double truncation = 0;
};

/// One side of another operator's problem, to be transported to itself.
struct SelfInput {
  EntropicOperator const* of = nullptr;
  Side side = Side::rows;
};

/// The input of an operator, which keeps none of it. `geometry` has been checked for shape (geometry/validation.hpp)
/// but not for values; the marginals are valid. `twin`, if given, is an operator of the same geometry and marginals in
/// any precision, whose findings about them are reused. `self`, if given, makes EntropicOperator::is_self(): geometry
/// and marginals have this side twice, and the points and weights are those that self.of, of the same precision, has
/// packed. The twin of such an operator is_self(), too.
struct OperatorInput {
  Geometry const& geometry;
  Marginals const& marginals;
  OperatorOptions options;
  EntropicOperator const* twin = nullptr;
  SelfInput self{};
};

/// One operator's part of a step that many take together: `count` sweeps, and the errors of the last.
struct SweepStep {
  EntropicOperator* entropic;
  Sweep sweep;
  int count;
  SweepErrors errors{};
};
/// Sweeps many operators of one backend again and again, and keeps its preparations. Each operator stands in one step.
class Sweeper {
 public:
  virtual ~Sweeper() = default;
  /// Waits for the errors.
  virtual void sweep(std::span<SweepStep> steps) = 0;
};

/// The evaluation of the plan at eps, of the potentials of `potentials`: the same operator or another of the same
/// problem, whatever its precision.
struct EvaluationStep {
  EntropicOperator* entropic;
  EntropicOperator const* potentials;
  double eps;
  Evaluation value{};
};

/// The plan of the operator's potentials at eps, which it has as (f + t, g - t).
struct PlanInput {
  EntropicOperator const* entropic;
  double eps;
  double t = 0;
};

/// Makes entropic operators and works on many together. Each operator gets the bits that it would get alone.
class EntropicBackend {
 public:
  virtual ~EntropicBackend() = default;

  /// Packing finds and reports the first point that is not finite. Throws ProblemError, also unsupported for a
  /// precision that the device lacks.
  virtual std::vector<std::unique_ptr<EntropicOperator>> entropic_operators(
      std::span<OperatorInput const> inputs) const = 0;
  std::unique_ptr<EntropicOperator> entropic_operator(Geometry const& geometry, Marginals const& marginals,
                                                      OperatorOptions const& options,
                                                      EntropicOperator const* twin = nullptr) const {
    OperatorInput const input{geometry, marginals, options, twin};
    return std::move(entropic_operators({&input, 1})[0]);
  }
  /// Gives an operator another input, with the same kind of geometry, shape and options. The result is that of a new
  /// operator, but memory that no plan shares is reused. If this throws, the operator may only be renewed again.
  virtual void renew(std::unique_ptr<EntropicOperator>& entropic, OperatorInput const& input) const {
    entropic.reset();
    entropic = entropic_operator(input.geometry, input.marginals, input.options);
  }
  /// The tree of the points of one side of an operator that leaves out pairs, which was made from `input`.
  virtual std::unique_ptr<CloudTree> tree(EntropicOperator const& entropic, OperatorInput const& input,
                                          Side side) const = 0;
  /// Adds factor times the soft c-transform of a plan to the potential of a side, whose points are the same in both
  /// (PlanPoints::at()).
  virtual void add_transform(Side side, double factor, PlanOperator& plan, EntropicOperator& to) const = 0;
  /// sum_ij a_i b_j C_ij / sum_ij a_i b_j of costs whose operators do not know it. One pass in float64; waits.
  virtual double mean_cost(PointCloud const& clouds, Marginals const& marginals) const = 0;
  /// The sweeper lives no longer than the backend.
  virtual std::unique_ptr<Sweeper> sweeper() const = 0;
  /// Waits.
  virtual void evaluate(std::span<EvaluationStep> steps) const = 0;
  virtual std::vector<std::unique_ptr<PlanOperator>> plans(std::span<PlanInput const> inputs) const = 0;
  /// Makes (image_f, image_g) the last image of `mixture` and writes the combination of all its images to f, g and
  /// `mixture.start`. `mixture.images` counts this image already, and `mixture.eps` is that of its sweep. All vectors
  /// are of the operator of `vectors`; f and g may be the image. Does not wait.
  virtual void mix(VectorOperations const& vectors, Vector const& image_f, Vector const& image_g, Mixture& mixture,
                   Vector& f, Vector& g) const = 0;
};

/// The same for regularised plans.
class RegularizedBackend {
 public:
  virtual ~RegularizedBackend() = default;

  /// Reads the costs once; keeps only the matrices of the inputs. Throws ProblemError.
  virtual std::vector<std::shared_ptr<RegularizedCosts const>> regularized_costs(
      std::span<RegularizedInput const> inputs) const = 0;
  virtual std::vector<std::unique_ptr<SplittingOperator>> splitting_operators(
      std::span<SplittingInput const> inputs) const = 0;
  /// Enqueues the iterations, then waits for the residuals.
  virtual void iterate(std::span<SplittingStep> steps) const = 0;
  /// The operator of a problem with a quadratic term alone, or with no term.
  virtual std::unique_ptr<QuadraticOperator> quadratic_operator(
      std::shared_ptr<RegularizedCosts const> costs) const = 0;
};

/// Approximate times of passes over all pairs of one problem, in units of a float32 sweep.
struct PassTimes {
  double float64 = 1;  ///< A float64 sweep.
  double newton = 1;   ///< A pass of Newton's method, the work between passes included.
  double check = 0;    ///< A wait of the host between sweeps.
  /// Up to this largest cost, in units of eps, a solve is expected to be no slower in float64 throughout than with
  /// float64 certificates of float32 sweeps.
  double float64_up_to = 0;
  /// Whether Newton's method is faster on the processor of the host. Gauges of both backends are then the same: a
  /// potential of one is one of the other.
  bool newton_on_host = false;
  bool mixes = false;  ///< Whether sweeps are mixed (entropic/policy/anderson.hpp).
  double mixing = 0;   ///< The combination before a mixed sweep and the wait after it.
};

/// The points of each side of a problem.
struct ProblemSize {
  std::int64_t rows, columns;
};

class Backend : public EntropicBackend, public RegularizedBackend {
 public:
  virtual Device device() const = 0;
  /// Null unless several ranks share the work.
  virtual Ranks* ranks() const = 0;
  virtual DeviceInfo info() const = 0;
  virtual PassTimes pass_times(Geometry const& geometry, double cache_bytes) const = 0;
  /// Bytes of the arrays in the memory of the device.
  virtual MemoryCount& memory() const = 0;
  /// Calls work(k) for each of the problems again and again until it returns false, and show(k) between two calls: on
  /// the caller's thread if `watched`. Calls for different problems share no data that changes. On the CPU problems
  /// of sizes that keep one thread busy run in parallel, one thread each; all others run in turn.
  virtual void run_each(std::span<ProblemSize const> sizes, bool /*watched*/,
                        std::function<bool(std::size_t)> const& work,
                        std::function<void(std::size_t)> const& show) const {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      while (work(k)) show(k);
    }
  }
  /// Calls work(k) once for each of the problems, as run_each() does.
  void for_each_step(std::span<ProblemSize const> sizes, std::function<void(std::size_t)> const& work) const {
    auto const once = [&](std::size_t k) {
      work(k);
      return false;
    };
    run_each(sizes, false, once, [](std::size_t) {});
  }

  /// The caller's matrix as float64 on the host, row by row; waits for the device if it lies there.
  virtual std::vector<double> read(MatrixView view) const = 0;
  std::vector<double> read(VectorView view) const { return read(as_column(view)); }

  /// Batches of small matrices; lives as long as the backend.
  virtual ProjectionOperator const& projection() const = 0;
  /// Linear sum assignments; lives as long as the backend.
  virtual AssignmentOperator const& assignment() const = 0;
};

Backend const& backend_of(Context const& context);

/// The threads of the host: those of the context on the CPU, all where another device has the host to itself.
int host_threads(Backend const& backend);

}  // namespace monge
