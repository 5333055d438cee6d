// The hard minimum is the largest entry in a row of a plan. In the operator's gauge, C_ij = C'_ij + s_i + t_j, take
// f' = 0, g'_j = g_j - t_j - G with G = max_j (g_j - t_j), weights 1 and eps = unit log2(e). Then
//
//   log2 P_ij = (g'_j - C'_ij) / unit      and      C_ij - g_j = s_i - G - unit log2 P_ij.
//
// |C'_ij - g'_j| is at most the bound of C' and the range of g' together, both of points with weight. The unit is 2^-8
// to 2^-7 of that, or 2^-1020 if that is more, so entries stay within 2^-256 and 2^256. The unit is a power of two, so
// dividing costs by it does not round. The order of entries needs no sums of rows: the plan takes its potentials as
// their own transforms, which saves the pass over all pairs that finds these sums.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

#include <monge/c_transform.hpp>

#include "core/compensated_sum.hpp"
#include "core/numbers.hpp"
#include "core/out_of_memory.hpp"
#include "entropic/input.hpp"
#include "exact/hard_transform.hpp"
#include "geometry/point_cost.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"
#include "seam/values.hpp"

namespace monge {
namespace {

/// A search by trees, on the host, pays from this many pairs and up to this many dimensions. If the problem is on a
/// GPU, exact transport searches, and c_transform() takes passes.
constexpr double kManyPairs = 1 << 22, kManyPairsOnDevice = 1.6e9;
constexpr std::int64_t kMostDimensions = 5;

/// The cost of points for which trees serve.
std::optional<SearchCost> search_cost(Backend const& backend, Geometry const& geometry) {
  CostTerms const terms = terms_of(geometry);
  Shape const shape = shape_of(geometry);
  double const many = backend.device().type == DeviceType::cpu ? kManyPairs : kManyPairsOnDevice;
  if (!terms.function || terms.has_labels() || shape.dimension > kMostDimensions ||
      static_cast<double>(shape.rows) * static_cast<double>(shape.columns) < many || backend.ranks() != nullptr)
    return {};
  double const p = clouds_of(geometry).p;
  switch (*terms.function) {
    case CostFunction::sqeuclidean:
      return SearchCost{terms.scale};
    case CostFunction::euclidean:
      return SearchCost{terms.scale, 2};
    case CostFunction::p_norm:
      return p > 1 && std::isfinite(p) ? std::optional(SearchCost{terms.scale, p}) : std::nullopt;
    default:
      return {};
  }
}

double unit_of(double range) {
  require(std::isfinite(range), "costs: are up to {} above the least; must be finite", range);
  constexpr double kLeast = 0x1p-1020;  // Its reciprocal is finite, and so is the product of this and a score.
  return range > 0 ? std::max(std::exp2(std::ceil(std::log2(range)) - 8), kLeast) : 1.0;
}

}  // namespace

HardTransform::HardTransform(Backend const& backend, Geometry const& geometry, Marginals const& weights,
                             bool may_search)
    : entropic_(backend.entropic_operator(geometry, weights, {.precision = Precision::float64})), weights_(weights) {
  // A new operator starts at f' = g' = 0, which is (s, t) for the user.
  shift_of_rows_ = filled(entropic_->size(Side::rows), 0);
  shift_of_columns_ = filled(entropic_->size(Side::columns), 0);
  entropic_->get_potentials(shift_of_rows_, shift_of_columns_);
  std::optional<SearchCost> const cost = search_cost(backend, geometry);
  if (!cost || !may_search) return;
  PointCloud const& clouds = clouds_of(geometry);
  std::vector<std::vector<double>> copies;
  MatrixView const x = on_host(backend, clouds.x, copies), y = on_host(backend, clouds.y, copies);
  std::vector<double> const origin = centre_of("x", x, {});
  points_[0].emplace(x, origin, *cost, host_threads(backend));
  points_[1].emplace(y, origin, *cost, host_threads(backend));
  std::int64_t const d = x.columns();
  std::vector<double> box(to_size(box_size(d)));
  join_boxes(box.data(), points_[0]->box(), points_[1]->box(), d);
  largest_cost_ = (*cost)(d, [&](std::int64_t k) { return 2 * box[to_size(d + k)]; });
}

std::vector<double> HardTransform::nearest(Side side, std::vector<double> potential, MutableIndexView indices) {
  return std::isfinite(largest_cost_) ? nearest_by_tree(side, potential, indices)
                                      : nearest_by_pass(side, std::move(potential), indices);
}

std::vector<double> HardTransform::nearest_by_tree(Side side, std::vector<double> const& potential,
                                                   MutableIndexView indices) {
  bool const by_rows = side == Side::rows;
  std::vector<double> const &own = by_rows ? weights_.a : weights_.b, &others = by_rows ? weights_.b : weights_.a;
  double largest = largest_cost_;
  for (std::size_t j = 0; j < potential.size(); ++j) {
    if (others[j] > 0) largest = std::max(largest, largest_cost_ + std::abs(potential[j]));
  }
  rounding_ = 0x1p-50 * largest;
  std::vector<double> least(own.size());
  points_[by_rows ? 1 : 0]->nearest(*points_[by_rows ? 0 : 1], own, potential, others, indices, least);
  return least;
}

std::vector<double> HardTransform::nearest_by_pass(Side side, std::vector<double> potential, MutableIndexView indices) {
  VectorOperations const& vectors = entropic_->vectors();
  bool const by_rows = side == Side::rows;
  std::vector<double> const& own = by_rows ? shift_of_rows_ : shift_of_columns_;
  std::vector<double> const& others = by_rows ? shift_of_columns_ : shift_of_rows_;
  std::transform(potential.begin(), potential.end(), others.begin(), potential.begin(), std::minus<>());
  // A point without weight takes no part, and its shift may be far above all costs of others.
  std::vector<double> const& weight = by_rows ? weights_.b : weights_.a;
  double lowest = std::numeric_limits<double>::infinity(), top = -lowest;
  for (std::size_t j = 0; j < potential.size(); ++j) {
    if (weight[j] == 0) continue;
    lowest = std::min(lowest, potential[j]);
    top = std::max(top, potential[j]);
  }
  if (lowest > top) lowest = top = 0;  // No point has weight.
  double const range = top - lowest;
  for (double& value : potential) value = std::min(value, top) - top;
  vectors.read(potential, entropic_->potential(opposite(side)));
  vectors.read(filled(entropic_->size(side), 0), entropic_->potential(side));

  double const bound = entropic_->cost_size().centred_bound + range;
  double const unit = unit_of(bound);
  rounding_ = bound > 0 ? 0x1p-50 * std::max(bound, 0x1p7 * unit) : 0;
  std::int64_t const size = entropic_->size(side), k = indices.columns;
  std::vector<double> largest = filled(size * k, 0);
  std::unique_ptr<PlanOperator> const plan = entropic_->plan(unit * std::numbers::log2e);
  plan->set_transforms(entropic_->potential(Side::rows), entropic_->potential(Side::columns));
  plan->entries().top_k(side, indices, {largest.data(), size, k});
  std::vector<double> result(to_size(size));
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = own[i] - top - unit * std::log2(largest[i * to_size(k)]);
  return result;
}

namespace {

/// Onto `side`: out_i = min_j C_ij - given_j.
void transform_onto(Side side, Context const& context, Geometry const& geometry, char const* given_name,
                    VectorView given, char const* out_name, MutableVectorView out, MutableIndexView argmin) {
  auto const inputs = [&](Digests& inputs) {
    inputs.add(geometry);
    inputs.add(given_name, given);
  };
  in_step(context, side == Side::rows ? "c_transform" : "c_transform_transpose", inputs, [&] {
    validate(geometry, context.device());
    Shape const shape = shape_of(geometry);
    bool const by_rows = side == Side::rows;
    std::int64_t const size = by_rows ? shape.rows : shape.columns, others = by_rows ? shape.columns : shape.rows;
    Backend const& backend = backend_of(context);
    std::vector<double> potential = read_values(given_name, backend, given, others, kFinite, "potentials must be");
    validate_vector(out_name, out, size, context.device());
    validate_indices("argmin", argmin, size, 1, context.device());
    HardTransform transform(backend, geometry, {filled(shape.rows, 1), filled(shape.columns, 1)},
                            backend.device().type == DeviceType::cpu);
    std::vector<double> const result = transform.nearest(side, std::move(potential), argmin);
    std::unique_ptr<Vector> const vector = transform.vectors().make(side);
    transform.vectors().read(result, *vector);
    transform.vectors().write(*vector, out);
  });
}

}  // namespace

void c_transform(Context const& context, Geometry const& geometry, VectorView g, MutableVectorView f,
                 MutableIndexView argmin) {
  transform_onto(Side::rows, context, geometry, "g", g, "f", f, argmin);
}

void c_transform_transpose(Context const& context, Geometry const& geometry, VectorView f, MutableVectorView g,
                           MutableIndexView argmin) {
  transform_onto(Side::columns, context, geometry, "f", f, "g", g, argmin);
}

double semi_dual_value(Context const& context, VectorView a, VectorView b, VectorView f, VectorView g) try {
  Backend const& backend = backend_of(context);
  WeightNames const names{.lines = {"entry of f", "entry of g"}};
  ValidMarginals const marginals =
      with_equal_totals(read_marginals(backend, names, a, b, f.size(), g.size()), {.tolerance = 0});
  CompensatedSum sum;
  auto const add = [&](char const* field, VectorView potential, std::vector<double> const& weight) {
    std::vector<double> const values =
        read_values(field, backend, potential, potential.size(), kFinite, "potentials must be");
    for (std::size_t i = 0; i < values.size(); ++i) sum.add(weight[i] * values[i]);
  };
  add("f", f, marginals.a);
  add("g", g, marginals.b);
  return sum.value();
} catch (std::bad_alloc const&) {
  throw_out_of_memory("semi_dual_value");
}

}  // namespace monge
