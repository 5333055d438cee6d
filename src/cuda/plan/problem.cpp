#include "cuda/plan/problem.hpp"

#include <algorithm>
#include <limits>
#include <numbers>
#include <numeric>

#include "core/evaluation.hpp"
#include "core/numbers.hpp"
#include "cuda/geometry/pack.hpp"
#include "cuda/sweep/joined_sums.hpp"

namespace monge::cuda {

double mean_over_least(std::vector<double> const& masses) {
  double total = 0, least = std::numeric_limits<double>::infinity(), count = 0;
  for (double const mass : masses) {
    if (mass <= 0) continue;
    total += mass;
    least = std::min(least, mass);
    count += 1;
  }
  return count > 0 ? total / count / least : 1;
}

Weights::Weights(SharedRuntime const& runtime, std::vector<double> weight, Queue const& queue)
    : device_(runtime, 2 * static_cast<std::int64_t>(weight.size())) {
  set(*runtime, std::move(weight), queue);
}

void Weights::set(Runtime const& runtime, std::vector<double> weight, Queue const& queue) {
  host_ = std::move(weight);
  total_ = std::accumulate(host_.begin(), host_.end(), 0.0);
  has_idle_points_ = std::find(host_.begin(), host_.end(), 0.0) != host_.end();
  mean_over_least_ = cuda::mean_over_least(host_);
  upload(runtime, host_.data(), device_.data(), device_.bytes() / 2, queue);
  log_weights({static_cast<int>(host_.size()), device_.data(), device_.data() + host_.size()}, queue);
}

Logits::Logits(SharedRuntime const& runtime, int padded_size, DataType scalar)
    : values(runtime, padded_size * size_of(scalar)), factors(runtime, scalar == DataType::float32 ? padded_size : 0) {}

PackedSide Problem::side(Side side) const {
  Weights const& weight = *weights[side_index(side)];
  return {costs->size(side),   costs->padded_size(side), costs->scalar(),    weight.weight(),
          weight.log_weight(), costs->norm(side),        costs->shift(side), penalties.of(side)};
}

SweepParameters parameters_for(Potentials const& potentials, double eps, double relaxation) {
  return {eps,
          eps * std::numbers::ln2,
          std::numbers::log2e / eps,
          relaxation,
          {potentials[0].typical, potentials[1].typical}};
}

Transform transform_logits(Problem const& problem, Side side, Potentials const& potentials, double eps) {
  SharedRuntime const& runtime = problem.runtime;
  Side const other = opposite(side);
  PackedSide const columns = problem.side(other);
  Transform result;
  result.parameters = DeviceArray<SweepParameters>(runtime, 1);
  result.logits = Logits(runtime, columns.padded_size, columns.scalar);
  LogitArguments logits{parameters_for(potentials, eps, 1.0), result.parameters.data(), {}};
  logits.side[side_index(other)] = {columns, potentials[side_index(other)].data(), result.logits.arrays()};
  make_logits(logits, runtime->stream());
  return result;
}

Transform transform(Problem const& problem, Side side, Potentials const& potentials, double eps,
                    ListedTiles const* tiles) {
  SharedRuntime const& runtime = problem.runtime;
  cudaStream_t const stream = runtime->stream();
  PackedSide const rows = problem.side(side);
  Transform result = transform_logits(problem, side, potentials, eps);

  std::unique_ptr<SumPass> const pass = problem.costs->sum_pass(side, Pass::softmin, tiles);
  DeviceArray<unsigned char> const partials(runtime, pass->size() * 2 * size_of(rows.scalar));
  pass->arguments.logits = result.logits.values.data();
  pass->arguments.factors = result.logits.factors.data();
  pass->arguments.parameters = result.parameters.data();
  pass->arguments.partials = partials.data();
  if (DeviceRanks const* const ranks = problem.costs->sharing_ranks()) ranks->meet();
  pass->launch(stream, stream);

  for (DeviceArray<double>* array : {&result.plus, &result.reference, &result.sum})
    *array = DeviceArray<double>(runtime, rows.size);
  softmin_values({side_index(side), rows, partials.data(), pass->work(), result.parameters.data()},
                 {result.plus.data(), result.reference.data(), result.sum.data()}, stream);
  return result;
}

namespace {

/// Parameters and logits of both sides in double, for kernels that take each entry once.
struct EntryLogits {
  SweepParameters* parameters = nullptr;
  double* of[2] = {};

  void make(Problem const& problem, Potentials const& potentials, double eps, Queue const& queue) const {
    LogitArguments arguments{parameters_for(potentials, eps, 1.0), parameters, {}};
    for (Side const side : kSides) {
      PackedSide points = problem.side(side);
      points.scalar = DataType::float64;
      arguments.side[side_index(side)] = {points, potentials[side_index(side)].data(), {of[side_index(side)]}};
    }
    make_logits(arguments, queue);
  }
};

std::int64_t product(int count, int stride) {
  return static_cast<std::int64_t>(count) * stride;
}

/// Sums of points that several ranks have computed.
class RankSums {
 public:
  RankSums(DeviceRanks const* ranks, cudaStream_t stream) : ranks_(ranks), stream_(stream) {}
  /// The sizes of the arrays of all ranks; 0 where one rank has computed all.
  std::int64_t size_of_own(RankPart const& part) const { return ranks_ ? part.all : 0; }
  std::int64_t size_of_all(int padded) const { return ranks_ ? product(ranks_->size(), padded) : 0; }
  /// Each rank has the parts of its own points: gathers their sums.
  PointParts own(PointParts const& parts, RankPart const& part, double* all) const {
    return gathered(parts, part.count, part.each, all, 1);
  }
  /// Each rank has some parts of all points: gathers their sums, one part a rank.
  PointParts all(PointParts const& parts, int padded, double* all) const {
    return gathered(parts, padded, padded, all, ranks_ ? ranks_->size() : 1);
  }

 private:
  PointParts gathered(PointParts const& parts, int size, int each, double* all, int count) const {
    if (!ranks_) return parts;
    if (size > 0)
      join_parts<double>({parts.data, parts.stride, parts.count, size, all + product(ranks_->rank(), each)}, stream_);
    ranks_->gather(all, product(each, sizeof(double)), stream_);
    return {all, each, count};
  }

  DeviceRanks const* ranks_;
  cudaStream_t stream_;
};

/// Sums from one read of a cost matrix.
void sum_plan(Problem const& problem, Costs::FusedEvaluation evaluation, Potentials const& potentials, double eps,
              PlanSumsOutput const& out, Queue const& queue) {
  FusedEvaluationArguments& pass = evaluation.arguments;
  PackedSide const points[2] = {problem.side(Side::rows), problem.side(Side::columns)};
  int const lines = side_index(evaluation.lines), places = 1 - lines;
  RankPart const part = problem.costs->rows_of_rank(evaluation.lines);
  RankSums const ranks(problem.costs->sharing_ranks(), problem.runtime->stream());
  EntryLogits logits;
  double *all_lines = nullptr, *all_sums = nullptr, *all_costs = nullptr;
  DeviceArray<unsigned char> const memory = allocate_parts(
      problem.runtime, Part{logits.parameters, 1}, Part{logits.of[0], points[0].padded_size},
      Part{logits.of[1], points[1].padded_size}, Part{pass.line_sums, product(pass.plan.strips, pass.line_stride)},
      Part{pass.place_sums, product(pass.plan.groups, pass.place_stride)},
      Part{pass.place_costs, product(pass.plan.groups, pass.place_stride)}, Part{all_lines, ranks.size_of_own(part)},
      Part{all_sums, ranks.size_of_all(pass.place_stride)}, Part{all_costs, ranks.size_of_all(pass.place_stride)});
  logits.make(problem, potentials, eps, queue);
  pass.parameters = logits.parameters;
  pass.line_logits = logits.of[lines] + part.first;
  pass.place_logits = logits.of[places];
  if (part.count > 0) launch_fused_evaluation(pass, queue);

  int const groups = part.count > 0 ? pass.plan.groups : 0;
  JoinedSumsArguments sums{{points[0], points[1]}, {}, {}, {potentials[0].data(), potentials[1].data()}, out};
  sums.marginals[lines] = ranks.own({pass.line_sums, pass.line_stride, pass.plan.strips}, part, all_lines);
  sums.marginals[places] = ranks.all({pass.place_sums, pass.place_stride, groups}, pass.place_stride, all_sums);
  sums.costs[places] = ranks.all({pass.place_costs, pass.place_stride, groups}, pass.place_stride, all_costs);
  sum_plan(sums, queue);
}

/// Sums from one computation of the scores of points.
void sum_plan(Problem const& problem, TileEvaluationArguments pass, Potentials const& potentials, double eps,
              PlanSumsOutput const& out, Queue const& queue) {
  PackedSide const points[2] = {problem.side(Side::rows), problem.side(Side::columns)};
  RankPart const part = problem.costs->rows_of_rank(Side::rows);
  RankSums const ranks(problem.costs->sharing_ranks(), problem.runtime->stream());
  int const strides[2] = {part.count, points[1].padded_size};
  int const row_parts = pass.plan.column_groups, column_parts = part.count > 0 ? pass.plan.row_groups : 0;
  Operand* const operands[2] = {&pass.scores.rows, &pass.scores.columns};
  auto const copied = [&](int s) {
    bool const is_double = operands[s]->scalar == DataType::float64;
    return is_double ? 0 : product(operands[s]->padded_size, operands[s]->stride);
  };
  EntryLogits logits;
  double *all_rows = nullptr, *all_costs = nullptr, *all_columns = nullptr;
  double* copies[2] = {};  // Points that passes read in float.
  DeviceArray<unsigned char> const memory = allocate_parts(
      problem.runtime, Part{copies[0], copied(0)}, Part{copies[1], copied(1)}, Part{logits.parameters, 1},
      Part{logits.of[0], points[0].padded_size}, Part{logits.of[1], points[1].padded_size},
      Part{pass.row_sums, product(row_parts, strides[0])}, Part{pass.row_costs, product(row_parts, strides[0])},
      Part{pass.column_sums, product(column_parts, strides[1])}, Part{all_rows, ranks.size_of_own(part)},
      Part{all_costs, ranks.size_of_own(part)}, Part{all_columns, ranks.size_of_all(strides[1])});
  for (int s : {0, 1}) {
    if (!copies[s]) continue;
    Operand& operand = *operands[s];
    convert_matrix({const_cast<void*>(operand.points), operand.stride, operand.scalar}, operand.padded_size,
                   operand.stride, copies[s], operand.padded_size, operand.stride, problem.runtime->stream());
    operand.points = copies[s];
    operand.scalar = DataType::float64;
  }
  logits.make(problem, potentials, eps, queue);
  pass.parameters = logits.parameters;
  pass.row_logits = logits.of[0] + part.first;
  pass.column_logits = logits.of[1];
  if (part.count > 0) launch_tile_evaluation(pass, queue);

  JoinedSumsArguments sums{{points[0], points[1]}, {}, {}, {potentials[0].data(), potentials[1].data()}, out};
  sums.marginals[0] = ranks.own({pass.row_sums, strides[0], row_parts}, part, all_rows);
  // The columns of a self problem have the sums of the rows, to the last bit.
  sums.marginals[1] = problem.is_self
                          ? sums.marginals[0]
                          : ranks.all({pass.column_sums, strides[1], column_parts}, strides[1], all_columns);
  sums.costs[0] = ranks.own({pass.row_costs, strides[0], row_parts}, part, all_costs);
  sum_plan(sums, queue);
}

}  // namespace

void sum_plan(Problem const& problem, Potentials const& potentials, double eps, PlanSumsOutput const& out,
              Queue const& queue) {
  if (DeviceRanks const* const ranks = problem.costs->sharing_ranks()) ranks->meet();
  if (auto const matrix = problem.costs->fused_evaluation())
    return sum_plan(problem, *matrix, potentials, eps, out, queue);
  sum_plan(problem, problem.costs->tile_evaluation(), potentials, eps, out, queue);
}

void sum_plan(Problem const& problem, PlanLists const& lists, Potentials const& potentials, double eps,
              PlanSumsOutput const& out) {
  cudaStream_t const stream = problem.runtime->stream();
  PackedSide const points[2] = {problem.side(Side::rows), problem.side(Side::columns)};
  auto const slots = [&](int s) { return lists.tiles[s].slots(true); };
  auto const size = [&](int s) { return product(slots(s), points[s].padded_size); };
  double *sums[2] = {}, *costs = nullptr;
  EntryLogits logits;
  DeviceArray<unsigned char> const memory =
      allocate_parts(problem.runtime, Part{logits.parameters, 1}, Part{logits.of[0], points[0].padded_size},
                     Part{logits.of[1], points[1].padded_size}, Part{sums[0], size(0)}, Part{costs, size(0)},
                     Part{sums[1], problem.is_self ? 0 : size(1)});
  logits.make(problem, potentials, eps, stream);
  JoinedSumsArguments joined{{points[0], points[1]}, {}, {}, {potentials[0].data(), potentials[1].data()}, out, {}};
  for (int s : {0, 1}) {
    joined.left_out[s] = lists.left_out[s];
    joined.lack[s] = lists.tiles[s].expansion.lack();
    if (problem.is_self && s == 1) {
      joined.marginals[1] = joined.marginals[0];
      continue;
    }
    launch_listed_evaluation(lists.tiles[s],
                             {logits.parameters, problem.costs->scores(Side::rows).factor, logits.of[s],
                              logits.of[1 - s], sums[s], s == 0 ? costs : nullptr},
                             stream);
    joined.marginals[s] = {sums[s], points[s].padded_size, slots(s)};
  }
  joined.costs[0] = {costs, points[0].padded_size, slots(0)};
  sum_plan(joined, stream);
}

std::int64_t plan_sum_count(Problem const& problem) {
  return plan_sum_parts(problem.size(Side::rows)) + plan_sum_parts(problem.size(Side::columns));
}

Evaluation evaluation_of(Problem const& problem, std::span<PlanSums const> parts, double eps) {
  std::size_t const row_parts = to_size(plan_sum_parts(problem.size(Side::rows)));
  PlanSums total[2];
  for (std::size_t k = 0; k < parts.size(); ++k) total[k < row_parts ? 0 : 1].add(parts[k]);
  return evaluate_plan(eps, total[0].side, total[1].side, total[0].costs.value() + total[1].costs.value(),
                       std::min(total[0].left_out.value(), total[1].left_out.value()));
}

Evaluation evaluate(Problem const& problem, Potentials const& potentials, double eps, PlanMarginals const& marginals) {
  DeviceArray<PlanSums> const parts(problem.runtime, plan_sum_count(problem));
  sum_plan(problem, potentials, eps, {parts.data(), marginals}, problem.runtime->stream());
  return evaluation_of(problem, download(*problem.runtime, parts.data(), parts.size()), eps);
}

void store_potential(Problem const& problem, Side side, DeviceVector const& potential, Transform const* idle,
                     MutableVectorView out) {
  cudaStream_t const stream = problem.runtime->stream();
  DeviceArray<double> const chosen(problem.runtime, idle ? potential.size() : 0);
  if (idle)
    choose_idle(problem.side(side), potential.data(), idle->plus.data(), idle->parameters.data(), chosen.data(),
                stream);
  Output output(problem.runtime, out);
  store_vector(output.view(), potential.size(), 1, idle ? chosen.data() : potential.data(), problem.costs->shift(side),
               stream);
  output.finish();
}

}  // namespace monge::cuda
