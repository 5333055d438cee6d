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

void PlanOperator::multiply_points(Side side, Vector& out) {
  DeviceGuard const guard(problem_.runtime->index());
  PointValues const points = of_points().points(opposite(side));
  DeviceVector& result = on_device(out);
  multiply_columns(side, Scaling::plan, points.points, points.dimension, nullptr, result.strided(), false);
  result.typical = 0;
}

void PlanOperator::coordinates(Side side, Vector& out) const {
  DeviceGuard const guard(problem_.runtime->index());
  PointValues const points = of_points().points(side);
  DeviceVector& result = on_device(out);
  load_vector(points.points, result.size(), points.dimension, nullptr, result.data(), problem_.runtime->stream());
  result.typical = 0;
}

void PlanOperator::slopes(Side side, Vector& out) const {
  DeviceGuard const guard(problem_.runtime->index());
  PointValues const points = of_points().points(side);
  auto const [product, curvature] = of_points().point_form();
  DeviceVector& result = on_device(out);
  cuda::slopes({points.points, result.size(), points.dimension, points.centre,
                of_points().points(opposite(side)).centre, curvature, product, result.data()},
               problem_.runtime->stream());
  result.typical = 0;
}

void PlanOperator::cost_gradients(Side side, Vector const* l, Vector const* r, Vector& out) {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  DeviceVector& to = on_device(out);
  to.typical = 0;
  if (problem_.costs->scores(side).form != ScoreForm::distances) return cosine_gradients(side, l, r, to);
  DeviceArray<double> const one = uploaded(runtime, std::vector<double>{1});
  StridedView const ones{one.data(), 0, DataType::float64};
  if (l == nullptr) return distance_gradients(side, nullptr, nullptr, 0, ones, to.strided());
  StridedView const left = on_device(*l).strided(), right = on_device(*r).strided();
  int const inner = static_cast<int>(l->width());
  std::vector<HostColumn> const concentrated = this->concentrated(side, ones, 1, &right, inner, reach(true));
  if (concentrated.empty()) return distance_gradients(side, &left, &right, inner, ones, to.strided());
  auto const [plan, signs] = scaled(side, concentrated[0].values, &right, inner);
  plan->distance_gradients(side, &left, &right, inner, signs.strided(), to.strided());
}

/// out_i = sum_j P_ij <l_i, r_j> v_j dC_ij/dp_i, without l and r sum_j P_ij v_j dC_ij/dp_i.
void PlanOperator::distance_gradients(Side side, StridedView const* l, StridedView const* r, int inner,
                                      StridedView const& v, StridedView const& out) {
  SharedRuntime const& runtime = problem_.runtime;
  HadamardFactors const factors = l ? hadamard_factors(side, *l, *r, inner) : HadamardFactors{};
  PackedValues const values = packed_values(side, v, 1, factors.right_divisor);
  PassArguments const scores = problem_.costs->scores(side);
  auto const sums_of = [&](int first, int rows, Entries const& entries) {
    PointSlopesArguments slopes{.rows = scores.rows.part(first, rows),
                                .columns = scores.columns,
                                .p = scores.p,
                                .factor = problem_.costs->factor(),
                                .entries = entries,
                                .value_high = values.operand.high,
                                .value_low = values.operand.low,
                                .value_scale = values.scale};
    slopes.parts = point_slopes_parts(slopes.rows, slopes.columns, runtime->multiprocessors());
    StoreValuesArguments result{};
    result.width = scores.rows.dimension;
    result.scalar = DataType::float64;
    result.sum_size = static_cast<std::int64_t>(rows) * result.width;
    result.sum_stride = result.width;
    result.parts = slopes.parts;
    grow(runtime, workspace().partials, slopes.parts * result.sum_size * 8);
    result.sums = slopes.sums = reinterpret_cast<double*>(workspace().partials.data());
    launch_point_slopes(slopes, runtime->stream());
    return result;
  };
  sum_entries(side, Scaling::plan, scores.rows.dimension, nullptr, out, false, l ? &factors : nullptr, sums_of);
}

/// With u_i = p_i / |p_i| and the directions v_j of the other side, dC_ij/dp_i = product (v_j - u_i <u_i, v_j>) /
/// |p_i|.
void PlanOperator::cosine_gradients(Side side, Vector const* l, Vector const* r, DeviceVector& out) {
  SharedRuntime const& runtime = problem_.runtime;
  cudaStream_t const stream = runtime->stream();
  Side const far = opposite(side);
  PointValues const points = of_points().points(side), own = of_points().features(side),
                    others = of_points().features(far);
  int const width = own.dimension;
  DeviceVector directions(runtime, size(far), width), ones(runtime, size(far)), values(runtime, size(far), 1 + width),
      sums(runtime, size(side), 1 + width);
  load_vector(others.points, directions.size(), width, nullptr, directions.data(), stream);
  combine({ones.size(), 1, {{1, nullptr, nullptr}}, ones.data()}, stream);
  Term const columns[] = {{1, &ones}, {1, &directions}};
  vectors_.concatenate(columns, values);
  if (l == nullptr) {
    multiply(side, Scaling::plan, values, sums);
  } else {
    multiply_hadamard(side, *l, *r, values, sums);
  }
  direction_slopes({.size = problem_.size(side),
                    .dimension = width,
                    .factor = of_points().product(),
                    .points = points.points,
                    .centre = points.centre,
                    .directions = own.points,
                    .own_centre = own.centre,
                    .far_centre = others.centre,
                    .sums = sums.data(),
                    .out = out.data()},
                   stream);
}

std::unique_ptr<monge::PlanOperator> PlanOperator::at(Side side, MatrixView points,
                                                      std::shared_ptr<PointOrder const> order) const {
  SharedRuntime const& runtime = problem_.runtime;
  DeviceGuard const guard(runtime->index());
  Side const other = opposite(side);
  Problem problem = problem_;
  problem.is_self = false;
  problem.costs = of_points().at(side, points);
  if (problem.ordering) problem.ordering = ordering_at(runtime, *problem.ordering, *problem.costs, side, order.get());
  problem.weights[side_index(side)] =
      std::make_shared<Weights>(runtime, std::vector<double>(to_size(points.rows()), 1.0), runtime->stream());

  // The new plan keeps no entries: a second product at the same points is rare. The user's potential of the kept side
  // is unchanged; the internal one changes with the shift.
  Potentials potentials;
  potentials[side_index(side)] = DeviceVector(runtime, points.rows());
  load_vector({}, static_cast<int>(points.rows()), 1, problem.costs->shift(side), potentials[side_index(side)].data(),
              runtime->stream());
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
