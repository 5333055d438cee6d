#include "cuda/geometry/costs.hpp"

#include <algorithm>
#include <utility>

#include <monge/error.hpp>

#include "cuda/sweep/joined_sums.hpp"

namespace monge::cuda {
namespace {

/// The only function that chooses the kernel of a pass.
ScoreKernel kernel_for(PassArguments const& scores, DataType scalar, Pass pass, bool tf32) {
  if (scores.form == ScoreForm::stored || scalar == DataType::float64) return ScoreKernel::tile;
  if (scores.form == ScoreForm::products) return tf32 ? ScoreKernel::one_product : ScoreKernel::three_products;
  bool const few = scores.p == 2 && scores.rows.dimension <= kLargestDifferenceDimension;
  return few && !has_stores(pass) ? ScoreKernel::difference : ScoreKernel::tile;
}

/// The lines of a rank that has some; otherwise all, for a plan that no kernel follows.
StoredCosts lines_of(StoredCosts costs, RankPart const& part) {
  if (part.count == 0) return costs;
  int& lines = costs.transposed ? costs.columns : costs.rows;
  lines = std::min(part.count, lines - part.first);
  costs.data = static_cast<unsigned char const*>(costs.data) + part.first * costs.stride * size_of(costs.scalar);
  return costs;
}

/// All pairs on this device.
class WholePass final : public SumPass {
 public:
  explicit WholePass(Costs::Launch const& launch) : SumPass(launch.arguments), plan_(launch.plan) {}

  std::int64_t size() const override { return std::int64_t{arguments.rows.padded_size} * plan_.work.slots; }
  WorkPlan work() const override { return plan_.work; }
  void launch(Queue const& queue, cudaStream_t) const override { launch_pass(plan_, arguments, queue); }

 private:
  PassPlan plan_;
};

/// All pairs, shared by ranks. Each rank joins the sums of its own rows to one sum a row. Then each rank gathers the
/// sums of the other ranks.
class SharedPass final : public SumPass {
 public:
  SharedPass(Costs::Launch const& launch, RankPart const& part, DeviceRanks const& ranks)
      : SumPass(launch.arguments), plan_(launch.plan), part_(part), ranks_(ranks) {}

  std::int64_t size() const override { return part_.all + std::int64_t{arguments.rows.padded_size} * plan_.work.slots; }
  WorkPlan work() const override { return {}; }
  void launch(Queue const& queue, cudaStream_t stream) const override {
    DataType const scalar = arguments.rows.scalar;
    std::int64_t const bytes = 2 * size_of(scalar);
    auto* const sums = static_cast<unsigned char*>(arguments.partials);
    if (part_.count > 0) {
      PassArguments own = arguments;
      own.partials = sums + part_.all * bytes;
      if (own.references)
        own.references = static_cast<unsigned char const*>(own.references) + part_.first * size_of(scalar);
      launch_pass(plan_, own, queue);
      PackedSide const rows{.size = part_.count, .padded_size = part_.count, .scalar = scalar};
      join_sums({{0, rows, own.partials, plan_.work, nullptr}, sums + part_.first * bytes}, stream);
    }
    ranks_.gather(sums, part_.each * bytes, stream);
  }

 private:
  PassPlan plan_;
  RankPart part_;
  DeviceRanks const& ranks_;
};

/// The pairs of listed tiles.
class ListedPass final : public SumPass {
 public:
  ListedPass(PassArguments const& arguments, Pass pass, ListedTiles const& tiles)
      : SumPass(arguments), pass_(pass), tiles_(tiles), slots_(tiles.slots(pass == Pass::softmin)) {}

  std::int64_t size() const override { return std::int64_t{tiles_.rows.padded_size} * slots_; }
  WorkPlan work() const override { return tiles_.work(slots_); }
  void launch(Queue const&, cudaStream_t stream) const override {
    launch_listed_pass(pass_, tiles_, arguments, stream);
  }

 private:
  Pass pass_;
  ListedTiles const& tiles_;
  int slots_;
};

}  // namespace

Operand Operand::part(int first, int count) const {
  auto const moved = [&](void const* from, std::int64_t row_bytes) {
    return from ? static_cast<unsigned char const*>(from) + first * row_bytes : nullptr;
  };
  Operand result = *this;
  result.padded_size = count;
  result.points = moved(points, static_cast<std::int64_t>(stride) * size_of(scalar));
  result.high = moved(high, static_cast<std::int64_t>(half_stride) * 2);
  result.low = moved(low, static_cast<std::int64_t>(half_stride) * 2);
  return result;
}

StoredCosts upload_costs(SharedRuntime const& runtime, CostMatrix const& matrix, DeviceArray<unsigned char>& staging) {
  StridedView const view = upload(runtime, matrix.cost, staging);
  StoredCosts const result{
      .data = view.data,
      .scalar = view.scalar,
      .stride = view.stride,
      .aligned = reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.stride * size_of(view.scalar) % 16 == 0,
      .rows = checked_size("cost", matrix.cost.rows()),
      .columns = checked_size("cost", matrix.cost.columns())};
  return matrix.transposed ? result.flipped() : result;
}

StoredCosts StoredCosts::flipped() const {
  StoredCosts result = *this;
  std::swap(result.rows, result.columns);
  result.transposed = !transposed;
  return result;
}

StoredCosts StoredCosts::from(int first_row) const {
  StoredCosts result = *this;
  result.data = static_cast<unsigned char const*>(data) + first_row * (transposed ? 1 : stride) * size_of(scalar);
  result.rows -= first_row;
  return result;
}

PassArguments Costs::scores(Side rows) const {
  PassArguments result;
  result.form = form_;
  result.rows = side_[side_index(rows)].operand;
  result.columns = side_[side_index(opposite(rows))].operand;
  if (form_ == ScoreForm::stored) result.stored = rows == Side::rows ? stored_ : stored_.flipped();
  result.p = p_;
  result.factor = form_ == ScoreForm::stored ? -1 : -factor_;
  return result;
}

Costs::Launch Costs::launch(Side rows, int first_row, int row_count, Pass pass, bool tf32) const {
  Launch result{{}, scores(rows)};
  ScoreKernel const kernel = kernel_for(result.arguments, scalar_, pass, tf32);
  PassArguments& arguments = result.arguments;
  arguments.rows = arguments.rows.part(first_row, row_count);
  if (form_ == ScoreForm::stored) arguments.stored = arguments.stored.from(first_row);
  bool const halves = kernel == ScoreKernel::one_product || kernel == ScoreKernel::three_products;
  if (halves) arguments.factor /= arguments.rows.half_scale * arguments.columns.half_scale;
  result.plan = plan_pass({pass, kernel, form_, runtime_->multiprocessors()}, arguments.rows, arguments.columns);
  arguments.work = result.plan.work;
  return result;
}

DeviceRanks const* Costs::sharing_ranks() const {
  // A gather of short arrays by NCCL, with the kernel before it, takes 15 us.
  constexpr double kLeastNanoseconds = 4e4;
  return pass_nanoseconds() > kLeastNanoseconds ? runtime_->ranks() : nullptr;
}

RankPart Costs::rows_of_rank(Side rows) const {
  int const padded = padded_size(rows);
  DeviceRanks const* const ranks = sharing_ranks();
  return ranks ? ranks->part_of(padded, kRowPadding) : RankPart{0, padded, padded, padded};
}

std::unique_ptr<SumPass> Costs::sum_pass(Side rows, Pass pass, ListedTiles const* tiles, bool tf32) const {
  RankPart const part = rows_of_rank(rows);
  // A rank without rows does not launch; any plan serves.
  Launch const launch = part.count > 0 ? this->launch(rows, part.first, part.count, pass, tf32)
                                       : this->launch(rows, 0, kRowPadding, pass, tf32);
  if (tiles) return std::make_unique<ListedPass>(launch.arguments, pass, *tiles);
  if (DeviceRanks const* const ranks = sharing_ranks()) return std::make_unique<SharedPass>(launch, part, *ranks);
  return std::make_unique<WholePass>(launch);
}

/// Only for scores in memory. Scores of points would be computed together with exponentials, which a half-step on
/// tensor cores does not keep. In float64 two passes are as fast (docs/tuning.md).
std::optional<Costs::FusedSweep> Costs::fused_sweep() const {
  if (form_ != ScoreForm::stored || scalar_ != DataType::float32) return std::nullopt;
  FusedSweep result;
  result.lines = stored_.transposed ? Side::columns : Side::rows;
  result.costs = stored_;
  result.arguments.costs = lines_of(stored_, rows_of_rank(result.lines));
  FusedSweepPlan const plan = plan_fused_sweep(result.arguments.costs, runtime_->multiprocessors());
  if (plan.clusters == 0) return std::nullopt;
  result.plan = plan;
  result.arguments.factor = -1;
  result.arguments.side = side_index(result.lines);
  result.arguments.across_stride = padded_size(opposite(result.lines));
  result.arguments.clusters = plan.clusters;
  return result;
}

std::optional<Costs::FusedEvaluation> Costs::fused_evaluation() const {
  if (form_ != ScoreForm::stored) return std::nullopt;
  FusedEvaluation result;
  result.lines = stored_.transposed ? Side::columns : Side::rows;
  RankPart const part = rows_of_rank(result.lines);
  result.arguments.costs = lines_of(stored_, part);
  result.arguments.factor = -1;
  result.arguments.line_stride = part.count;
  result.arguments.place_stride = padded_size(opposite(result.lines));
  result.arguments.plan = plan_fused_evaluation(result.arguments.costs, runtime_->multiprocessors());
  return result;
}

TileEvaluationArguments Costs::tile_evaluation() const {
  TileEvaluationArguments result;
  result.scores = scores(Side::rows);
  RankPart const part = rows_of_rank(Side::rows);
  if (part.count > 0) result.scores.rows = result.scores.rows.part(part.first, part.count);
  result.plan = plan_tile_evaluation(result.scores, runtime_->multiprocessors());
  return result;
}

double Costs::pass_nanoseconds() const {
  return 1e-3 * pair_times().pass * static_cast<double>(padded_size(Side::rows)) * padded_size(Side::columns);
}

}  // namespace monge::cuda
