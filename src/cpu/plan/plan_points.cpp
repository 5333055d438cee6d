// The points of a plan, and derivatives by them.
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "core/numbers.hpp"
#include "core/strided.hpp"
#include "cpu/geometry/ordered_clouds.hpp"
#include "cpu/plan/plan_operator.hpp"
#include "cpu/plan/plan_passes.hpp"

namespace monge::cpu {

template <class T>
void PlanOperator<T>::features(Side side, Vector& out) const {
  PointValues<T> const points = of_points().features(side);
  std::int64_t const dimension = static_cast<std::int64_t>(points.centre.size());
  HostVector& target = on_host(out);
  for (std::int64_t i = 0, e = 0; i < size(side); ++i) {
    for (std::int64_t k = 0; k < dimension; ++k, ++e) target[e] = points.packed->coordinate(i, k);
  }
}

template <class T>
void PlanOperator<T>::slopes(Side side, Vector& out) const {
  PointValues<T> const points = of_points().features(side);
  std::span<double const> const far = of_points().features(opposite(side)).centre;
  auto const [product, curvature] = cost().form();
  HostVector& target = on_host(out);
  for (std::int64_t i = 0, e = 0; i < size(side); ++i) {
    for (std::size_t k = 0; k < far.size(); ++k, ++e) {
      // The difference of the centres first: a common offset of the clouds then costs no digits.
      double const at_centre = curvature * (points.centre[k] - far[k]) + (curvature + product) * far[k];
      target[e] = curvature * points.packed->coordinate(i, static_cast<std::int64_t>(k)) + at_centre;
    }
  }
}

template <class T>
void PlanOperator<T>::directions(Side side, Vector& direction, Vector& inverse_length) const {
  PointValues<T> const points = of_points().points(side), own = of_points().features(side);
  HostVector &u = on_host(direction), &inverse = on_host(inverse_length);
  for (std::int64_t i = 0, e = 0; i < size(side); ++i) {
    double length = 0;
    for (std::size_t k = 0; k < own.centre.size(); ++k, ++e) {
      std::int64_t const p = static_cast<std::int64_t>(k);
      u[e] = own.centre[k] + own.packed->coordinate(i, p);
      length += u[e] * (points.centre[k] + points.packed->coordinate(i, p));
    }
    inverse[i] = 1 / length;
  }
}

/// Averages of derivatives under the softmax of the rows, from entries that the stripe still holds. The rows of R are
/// powers of two times rows of ordinary size; the powers join the weights of the columns. Where these powers are
/// concentrated they move into the potentials.
template <class T>
void PlanOperator<T>::distance_gradients(Side side, Vector const* l, Vector const* r, Vector& result) {
  MutableMatrixView const out = on_host(result).view();
  Side const far = opposite(side);
  bool const tilted = l != nullptr;
  if (tilted) {
    pack_in_units(on_host(*l).view(), hadamard_.left, hadamard_.left_units, hadamard_.scaled);
    pack_in_units(on_host(*r).view(), hadamard_.right, hadamard_.right_units, hadamard_.scaled);
  }
  auto const read = [&](std::int64_t j) { return tilted ? hadamard_.right_units[to_size(j)] : 1.0; };
  if (tilted && is_concentrated(far, read)) {
    HostVector units(size(far)), rest(size(far), r->width());
    for (std::int64_t j = 0, e = 0; j < size(far); ++j) {
      units[j] = read(j);
      for (std::int64_t k = 0; k < r->width(); ++k, ++e) rest[e] = on_host(*r)[e] / units[j];
    }
    return with_weighted_points(far, units).distance_gradients(side, l, &rest, result);
  }
  Products& onto = products(side);
  double const unit = weigh(onto.logits, read) * data_.costs->factor();
  std::int64_t const width = out.columns(), own = onto.stripes.team().own;
  std::int64_t const room = onto.stripes.height() * width, scratch = kSlopeScratch<T> * width;
  double* const sums = sums_.at_least(own * room);
  T* const scratches = values_.at_least(own * scratch);
  if (tilted) onto.stripes.reserve_scratch(std::max(width, hadamard_.left.dimension));
  with_data(out, [&](auto* data) {
    using Out = std::remove_pointer_t<decltype(data)>;
    for_each_stripe(side, nullptr, true,
                    [&](int thread, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
                      if (tilted) multiply_by_products(work.args, hadamard_.left, hadamard_.right);
                      double* const of_thread = sums + thread * room;
                      average_slopes(work.args, weighed_.get(), scratches + thread * scratch, of_thread);
                      for (std::int64_t r0 = 0; r0 < count; ++r0) {
                        std::int64_t const i = first + r0;
                        double const total = onto.marginal[i] * onto.scale(i, work.row_max[to_size(r0)]) * unit *
                                             (tilted ? hadamard_.left_units[to_size(i)] : 1.0);
                        for (std::int64_t k = 0; k < width; ++k)
                          data[i * out.row_stride() + k] = static_cast<Out>(total * of_thread[r0 * width + k]);
                      }
                    })
        .share({of_rows(out)});
  });
}

template <class T>
void PlanOperator<T>::distance_changes(Side side, Vector const& v, Vector const& w, Vector& costs, Vector& gradients) {
  PackedPoints<T>&own = hadamard_.left, &far = hadamard_.right;
  pack(on_host(v).view(), {}, own);
  pack(on_host(w).view(), {}, far);
  Products& onto = products(side);
  std::int64_t const dimension = v.width(), width = dimension + 1, threads = onto.stripes.team().own;
  std::int64_t const room = onto.stripes.height() * width, scratch = kSlopeScratch<T> * width;
  double* const sums = sums_.at_least(threads * room);
  T* const scratches = values_.at_least(threads * scratch);
  double const factor = data_.costs->factor();
  HostVector &of_costs = on_host(costs), &of_gradients = on_host(gradients);
  for_each_stripe(side, nullptr, true,
                  [&](int thread, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
                    double const* of_row = sums + thread * room;
                    average_slope_changes(work.args, onto.logits.beta.get(), own, far, factor / eps_,
                                          scratches + thread * scratch, sums + thread * room);
                    for (std::int64_t i = first; i < first + count; ++i, of_row += width) {
                      double const total = onto.marginal[i] * onto.scale(i, work.row_max[to_size(i - first)]) * factor;
                      of_costs[i] = total * of_row[dimension];
                      for (std::int64_t k = 0; k < dimension; ++k) of_gradients[i * dimension + k] = total * of_row[k];
                    }
                  })
      .share({of_rows(of_costs.view()), of_rows(of_gradients.view())});
}

template <class T>
std::unique_ptr<monge::PlanOperator> PlanOperator<T>::at(Side side, NewPoints const& given) const {
  Side const other = opposite(side);
  PlanData<T> moved = data_;
  MatrixView points = given.points;
  IndexView labels = given.labels;
  std::shared_ptr<PointOrder const> order;
  if (given.of)
    order = static_cast<HostVectorOperations const&>(given.of->vectors()).orders().of[static_cast<int>(side)];
  std::vector<double> ordered;
  std::vector<std::int64_t> ordered_labels;
  if (data_.ordering) {
    if (!order) order = order_of("points", points, labels, workers_.threads);
    ordered = in_order(points, *order, workers_.threads);
    ordered_labels = in_order(labels, *order);
    points = MatrixView(ordered.data(), points.rows(), points.columns());
    labels = {ordered_labels.data(), std::ssize(ordered_labels)};
  }
  std::shared_ptr<PointCosts<T> const> const costs = of_points().at(side, points, labels);
  moved.costs = costs;
  if (data_.ordering) {
    auto ordering = std::make_shared<Ordering>(*data_.ordering);
    ordering->side[static_cast<int>(side)] =
        std::make_shared<OrderedSide>(ordered_side(order, *costs->features(side).packed, costs->labels(side)));
    moved.ordering = std::move(ordering);
  }
  moved.weights[static_cast<int>(side)] =
      std::make_shared<SideWeights>(std::vector<double>(to_size(points.rows()), 1.0));
  moved.potential(side) = HostVector(side, points.rows());
  // The user's potential of the other side is unchanged. The new plan keeps no entries: a second product at the same
  // points is rare.
  std::span<double const> const before = data_.costs->shift(other), after = moved.costs->shift(other);
  for (std::size_t j = 0; j < before.size(); ++j) moved.potential(other).values()[j] += before[j] - after[j];
  auto plan = std::make_unique<PlanOperator>(std::move(moved), eps_, workers_, 0);
  plan->new_side_ = side;
  return plan;
}

#define MONGE_INSTANTIATE(T)                                                                             \
  template void PlanOperator<T>::features(Side, Vector&) const;                                          \
  template void PlanOperator<T>::slopes(Side, Vector&) const;                                            \
  template void PlanOperator<T>::directions(Side, Vector&, Vector&) const;                               \
  template void PlanOperator<T>::distance_gradients(Side, Vector const*, Vector const*, Vector&);        \
  template void PlanOperator<T>::distance_changes(Side, Vector const&, Vector const&, Vector&, Vector&); \
  template std::unique_ptr<monge::PlanOperator> PlanOperator<T>::at(Side, NewPoints const&) const;
MONGE_INSTANTIATE(float)
MONGE_INSTANTIATE(double)
#undef MONGE_INSTANTIATE

}  // namespace monge::cpu
