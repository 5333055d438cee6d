// The points of a plan, and derivatives by them.
#include <utility>

#include "core/numbers.hpp"
#include "cuda/entries/point_slopes.hpp"
#include "cuda/plan/frozen.hpp"
#include "cuda/plan/plan_operator.hpp"
#include "cuda/vectors/kernels.hpp"

namespace monge::cuda {

void PlanOperator::multiply_points(Side side, Scaling scaling, MutableMatrixView out) {
  DeviceGuard const guard(problem_.runtime->index());
  PointValues const points = of_points().points(opposite(side));
  Output output(problem_.runtime, out);
  multiply_columns(side, scaling, points.points, points.dimension, points.centre, output.view(), keeps_entries(side));
  output.finish();
}

void PlanOperator::multiply_features(Side side, Vector& out) {
  DeviceGuard const guard(problem_.runtime->index());
  PointValues const features = of_points().features(opposite(side));
  DeviceVector& result = on_device(out);
  multiply_columns(side, Scaling::plan, features.points, features.dimension, nullptr, result.strided(), false);
  result.typical = 0;
}

void PlanOperator::features(Side side, Vector& out) const {
  DeviceGuard const guard(problem_.runtime->index());
  PointValues const features = of_points().features(side);
  DeviceVector& result = on_device(out);
  load_vector(features.points, result.size(), features.dimension, nullptr, result.data(), problem_.runtime->stream());
  result.typical = 0;
}

void PlanOperator::slopes(Side side, Vector& out) const {
  DeviceGuard const guard(problem_.runtime->index());
  PointValues const features = of_points().features(side);
  auto const [product, curvature] = cost().form();
  DeviceVector& result = on_device(out);
  cuda::slopes({features.points, result.size(), features.dimension, features.centre,
                of_points().features(opposite(side)).centre, curvature, product, result.data()},
               problem_.runtime->stream());
  result.typical = 0;
}

void PlanOperator::directions(Side side, Vector& direction, Vector& inverse_length) const {
  DeviceGuard const guard(problem_.runtime->index());
  PointValues const points = of_points().points(side), features = of_points().features(side);
  cuda::directions({.points = points.points,
                    .directions = features.points,
                    .size = problem_.size(side),
                    .dimension = features.dimension,
                    .centre = points.centre,
                    .own_centre = features.centre,
                    .direction = written(&direction),
                    .inverse_length = written(&inverse_length)},
                   problem_.runtime->stream());
}

void PlanOperator::distance_gradients(Side side, Vector const* l, Vector const* r, Vector& out) {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  DeviceVector& to = on_device(out);
  to.typical = 0;
  DeviceArray<double> const one = uploaded(runtime, std::vector<double>{1});
  StridedView const ones{one.data(), 0, DataType::float64};
  if (l == nullptr) return sum_slopes(side, nullptr, nullptr, 0, ones, {}, to.strided());
  StridedView const left = on_device(*l).strided(), right = on_device(*r).strided();
  int const inner = static_cast<int>(l->width());
  std::vector<HostColumn> const concentrated = this->concentrated(side, ones, 1, &right, inner, reach(true));
  if (concentrated.empty()) return sum_slopes(side, &left, &right, inner, ones, {}, to.strided());
  auto const [plan, signs] = scaled(side, concentrated[0].values, &right, inner);
  plan->sum_slopes(side, &left, &right, inner, signs.strided(), {}, to.strided());
}

void PlanOperator::distance_changes(Side side, Vector const& v, Vector const& w, Vector& costs, Vector& gradients) {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  DeviceArray<double> const one = uploaded(runtime, std::vector<double>{1});
  DeviceVector const sums(runtime, size(side), v.width() + 1);
  PointMotion const motion{on_device(v).data(), on_device(w).data(), problem_.size(side), problem_.size(opposite(side)),
                           problem_.costs->factor() / eps_};
  sum_slopes(side, nullptr, nullptr, 0, {one.data(), 0, DataType::float64}, motion, sums.strided());
  int const width = static_cast<int>(v.width());
  load_vector(sums.strided(), motion.rows * width, width, nullptr, written(&gradients), runtime->stream());
  load_vector({sums.data() + width, width + 1}, motion.rows, 1, nullptr, written(&costs), runtime->stream());
}

/// out_i = sum_j P_ij <l_i, r_j> v_j dC_ij/dp_i, without l and r sum_j P_ij v_j dC_ij/dp_i; with a motion the changes
/// of these numbers and, in a last column, of sum_j P_ij v_j C_ij at fixed P.
void PlanOperator::sum_slopes(Side side, StridedView const* l, StridedView const* r, int inner, StridedView const& v,
                              PointMotion const& motion, StridedView const& out) {
  SharedRuntime const& runtime = problem_.runtime;
  HadamardFactors const factors = l ? hadamard_factors(side, *l, *r, inner) : HadamardFactors{};
  PackedValues const values = packed_values(side, v, 1, factors.right_divisor);
  PassArguments const scores = problem_.costs->scores(side);
  int const width = scores.rows.dimension + (motion.own ? 1 : 0);
  auto const sums_of = [&](int first, int rows, Entries const& entries) {
    PointSlopesArguments slopes{.rows = scores.rows.part(first, rows),
                                .columns = scores.columns,
                                .p = scores.rows.dimension == 1 ? 1 : scores.p,  // |x - y| for any p.
                                .factor = problem_.costs->factor(),
                                .entries = entries,
                                .value_high = values.operand.high,
                                .value_low = values.operand.low,
                                .value_scale = values.scale,
                                .motion = motion.from(first, scores.rows.dimension)};
    slopes.parts = point_slopes_parts(slopes, runtime->multiprocessors());
    StoreValuesArguments result{};
    result.width = width;
    result.scalar = DataType::float64;
    result.sum_size = static_cast<std::int64_t>(rows) * result.width;
    result.sum_stride = result.width;
    result.parts = slopes.parts;
    grow(runtime, workspace().partials, slopes.parts * result.sum_size * 8);
    result.sums = slopes.sums = reinterpret_cast<double*>(workspace().partials.data());
    launch_point_slopes(slopes, runtime->stream());
    return result;
  };
  sum_entries(side, Scaling::plan, width, nullptr, out, false, l ? &factors : nullptr, sums_of);
}

std::unique_ptr<monge::PlanOperator> PlanOperator::at(Side side, NewPoints const& given) const {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  Side const other = opposite(side);
  Problem problem = problem_;
  problem.is_self = false;
  Problem const* const of = given.of ? &static_cast<PlanOperator const*>(given.of)->problem_ : nullptr;
  OrderedSide const* const ordered = of && of->ordering ? &of->ordering->of(side) : nullptr;
  bool const is_packed = of && of_points().packs_like(*of->costs->of_points());
  problem.costs =
      is_packed ? of_points().at(side, *of->costs->of_points()) : of_points().at(side, given.points, given.labels);
  if (problem.ordering) problem.ordering = ordering_at(runtime, *problem.ordering, *problem.costs, side, ordered);
  // Shares and transforms of these points do not depend on their weights.
  problem.weights[side_index(side)] =
      of ? of->weights[side_index(side)]
         : std::make_shared<Weights>(runtime, std::vector<double>(to_size(given.points.rows()), 1.0),
                                     runtime->stream());

  // The new plan keeps no entries: a second product at the same points is rare. The user's potential of the kept side
  // is unchanged; the internal one changes with the shift.
  Potentials potentials;
  potentials[side_index(side)] = DeviceVector(runtime, given.points.rows());
  load_vector({}, static_cast<int>(given.points.rows()), 1, problem.costs->shift(side),
              potentials[side_index(side)].data(), runtime->stream());
  potentials[side_index(side)].typical = -problem.costs->mean_shift(side);
  DeviceVector& kept = potentials[side_index(other)];
  DeviceVector const& before = potentials_[side_index(other)];
  kept = DeviceVector(runtime, before.size());
  combine({before.size(),
           3,
           {{1, before.data(), nullptr},
            {1, problem_.costs->shift(other), nullptr},
            {-1, problem.costs->shift(other), nullptr}},
           kept.data()},
          runtime->stream());
  kept.typical = before.typical + problem_.costs->mean_shift(other) - problem.costs->mean_shift(other);
  auto plan = std::make_unique<PlanOperator>(std::move(problem), potentials, eps_, 0, 0, runtime->stream());
  plan->new_side_ = side;
  return plan;
}

}  // namespace monge::cuda
