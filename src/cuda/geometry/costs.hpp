// The costs of a geometry on a CUDA device, as operators use them.
//
//   C_ij = C'_ij + shift_i + shift_j,   C'_ij = norm_i + norm_j + factor score_ij,
//
// A kernel computes the score of a pair from two operands. A geometry derives from Costs, fills in the two sides and
// provides its points. Everything else is written once, for all geometries.
#pragma once
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include <monge/array.hpp>
#include <monge/entropic.hpp>

#include "cuda/launch/sizes.hpp"
#include "cuda/launch/transfer.hpp"
#include "cuda/pass/pair_times.hpp"
#include "cuda/pass/sum_pass.hpp"
#include "cuda/runtime/device_ranks.hpp"
#include "cuda/sweep/fused_evaluation.hpp"
#include "cuda/sweep/fused_sweep.hpp"
#include "cuda/sweep/tile_evaluation.hpp"
#include "cuda/tiles/listed_pass.hpp"
#include "seam/plan_operator.hpp"

namespace monge::cuda {

/// The matrix as kernels see it: in place on the device, or uploaded into `staging`.
StoredCosts upload_costs(SharedRuntime const& runtime, CostMatrix const& matrix, DeviceArray<unsigned char>& staging);

/// Weights of one side's points, in device memory, and their total; null for ones.
struct PointWeights {
  double const* weight = nullptr;
  double total = 0;
};

/// Coordinates of one side as values of a product. They are centred, so the position of the cloud costs no digits.
struct PointValues {
  StridedView points;
  int dimension = 0;
  double const* centre = nullptr;  // Device memory.
};

class PointCosts;  // cuda/geometry/point_costs.hpp

class Costs {
 public:
  virtual ~Costs() = default;

  int size(Side side) const { return side_[side_index(side)].size; }
  int padded_size(Side side) const { return side_[side_index(side)].operand.padded_size; }
  DataType scalar() const { return scalar_; }
  /// A bound of C' for points with weight. Infinite if the squared distances of any points overflow.
  double bound() const { return bound_; }
  /// The same for points of any weight; in a matrix bound() itself.
  double bound_of_all() const { return std::max(bound_, bound_of_all_); }
  double factor() const { return factor_; }
  /// sum_ij a_i b_j C_ij / sum_ij a_i b_j of the user's cost; NaN for costs that at() made.
  double mean() const { return mean_; }
  /// sum_ij a_i b_j over the forbidden pairs; 0 for costs that at() made.
  double forbidden() const { return forbidden_; }
  double const* norm(Side side) const { return side_[side_index(side)].norm; }
  double const* shift(Side side) const { return side_[side_index(side)].shift; }
  /// The weighted mean of the shift.
  double mean_shift(Side side) const { return side_[side_index(side)].mean_shift; }

  /// Only the arguments of a pass that determine scores; rows are points of `rows`.
  PassArguments scores(Side rows) const;

  /// The ranks that share the passes over all pairs: null for one rank, and where a pass takes hardly longer than a
  /// gather.
  DeviceRanks const* sharing_ranks() const;
  /// The points of a side whose rows this rank computes, in whole blocks of kRowPadding.
  RankPart rows_of_rank(Side rows) const;

  /// A pass whose rows are points of `rows`: its kernel and arguments, without references, logits and outputs. `tf32`:
  /// products of 11 bits suffice.
  struct Launch {
    PassPlan plan;
    PassArguments arguments;
  };
  /// A pass over some of the rows, whose vectors are numbered from 0.
  Launch launch(Side rows, int first_row, int row_count, Pass pass, bool tf32 = false) const;

  /// A pass whose result is sums for all rows: over the listed tiles if there are some; by the ranks that share passes,
  /// each with its own rows, if there are several; else over all pairs by this device. A geometry with kernels of its
  /// own overrides it.
  virtual std::unique_ptr<SumPass> sum_pass(Side rows, Pass pass, ListedTiles const* tiles, bool tf32 = false) const;

  /// A sweep that reads each score once, if these costs have one: its kernel, without logits, potentials and outputs.
  struct FusedSweep {
    Side lines;  // The side that is updated within the pass.
    FusedSweepPlan plan;
    FusedSweepArguments arguments;  // Costs of the rank's lines.
    StoredCosts costs;              // Costs of all lines.
  };
  std::optional<FusedSweep> fused_sweep() const;

  /// Sums that evaluate a plan in double, from one read of each score. For costs in memory alone: the kernel, without
  /// logits and outputs.
  struct FusedEvaluation {
    Side lines;
    FusedEvaluationArguments arguments;  // Costs of the rank's lines.
  };
  std::optional<FusedEvaluation> fused_evaluation() const;
  /// The same for all other costs, from one computation of each score. The points may be in float: the kernel takes
  /// them in double.
  TileEvaluationArguments tile_evaluation() const;

  PairTimes pair_times() const { return cuda::pair_times(form_, scalar_, side_[0].operand.dimension); }
  /// Time of a pass over all pairs.
  double pass_nanoseconds() const;

  /// The same object, if its costs are of points; else null.
  virtual PointCosts const* of_points() const { return nullptr; }
  /// The same costs in another precision. The findings of the survey are shared. Points are packed again from the same
  /// geometry, since packing rounds them. Does not wait for inputs on the device.
  virtual std::shared_ptr<Costs const> twin(Geometry const& geometry, DataType scalar, Queue const& queue) const = 0;
  /// The costs of another geometry of the same kind and shape. They reuse memory that nothing else holds. `unshared`:
  /// only the caller, who drops these costs, holds them. Waits.
  virtual std::shared_ptr<Costs const> renewed(Geometry const& geometry, PointWeights a, PointWeights b,
                                               bool unshared) const = 0;

 protected:
  struct SideCosts {
    int size = 0;
    Operand operand;
    double const* norm = nullptr;
    double const* shift = nullptr;
    double mean_shift = 0;
  };
  explicit Costs(SharedRuntime runtime) : runtime_(std::move(runtime)) {}

  SharedRuntime runtime_;
  DataType scalar_ = DataType::float32;
  ScoreForm form_ = ScoreForm::products;
  double factor_ = 1;   // Factor of scores that are computed; scores in memory are costs.
  double p_ = 2;        // ScoreForm::distances only.
  StoredCosts stored_;  // Costs of the rows; ScoreForm::stored only.
  double bound_ = 0, bound_of_all_ = 0;
  double mean_ = std::numeric_limits<double>::quiet_NaN();
  double forbidden_ = 0;
  SideCosts side_[2];
};

}  // namespace monge::cuda
