#include "cpu/plan/plan_operator.hpp"

#include <hwy/base.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/compensated_sum.hpp"
#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/strided.hpp"
#include "cpu/geometry/point_labels.hpp"
#include "cpu/plan/plan_passes.hpp"
#include "cpu/second_order/entry_solver.hpp"
#include "plan/concentration.hpp"
#include "plan/weight_term.hpp"

namespace monge::cpu {
namespace {

/// row_j = number of stripe row r at j, times the factor at j and the scale of j's block, for whole panels.
template <class T, class Scale>
void read_row(StripeArgs<T> const& args, std::int64_t r, T const* factor, Scale const& scale, T* row) {
  for (std::int64_t begin = 0; begin < args.column_count; begin += kPanel<T>) {
    T const* HWY_RESTRICT panel = args.stripe + begin * args.row_count + r * kPanel<T>;
    T const* HWY_RESTRICT factors = factor + args.column(begin);
    T* HWY_RESTRICT out = row + begin;
    T const of_block = scale(begin / kColumnBlock);
    for (std::int64_t lane = 0; lane < kPanel<T>; ++lane) out[lane] = panel[lane] * factors[lane] * of_block;
  }
}

}  // namespace

template <class T>
PlanOperator<T>::PlanOperator(PlanData<T> data, double eps, Workers const& workers, double cache_bytes)
    : monge::PlanOperator(data.costs->size(Side::rows), data.costs->size(Side::columns)),
      data_(std::move(data)),
      vectors_(size(Side::rows), size(Side::columns), orders_of(data_.ordering)),
      eps_(eps),
      workers_(workers),
      cache_bytes_(cache_bytes) {}

template <class T>
PlanOperator<T>::~PlanOperator() = default;

/// The tiles of an ordered problem for stripes whose rows are points of `side`.
template <class T>
TileList const& PlanOperator<T>::tiles(Side side) {
  std::optional<CountedList>& own = tiles_[static_cast<int>(side)];
  if (own) return **own;
  Side const first = new_side_.value_or(Side::rows);
  std::optional<CountedList>& found = tiles_[static_cast<int>(first)];
  if (!found)
    found = new_side_ ? transform_tiles(data_, first, eps_, workers_) : plan_tiles(data_, eps_, workers_).rows;
  if (!own) own.emplace(transposed(**found, TileTree(size(opposite(first))).tiles()));
  return **own;
}

template <class T>
auto PlanOperator<T>::products(Side side) -> Products& {
  std::unique_ptr<Products>& products = products_[static_cast<int>(side)];
  if (!products) {
    Team const team(workers_, size(Side::rows), size(Side::columns));
    TileList const* const listed = data_.ordering ? &tiles(side) : nullptr;
    products = std::make_unique<Products>(data_, side, eps_, team, cache_bytes_, listed);
    cache_bytes_ -= products->stripes.kept_bytes();
    if (transforms_[static_cast<int>(side)]) take_transform(side, *products);
  }
  return *products;
}

/// products(side) after its first pass.
template <class T>
auto PlanOperator<T>::measured(Side side) -> Products& {
  Products& onto = products(side);
  if (!onto.is_measured) for_each_stripe(side, nullptr, true, [](auto const&...) {});
  return onto;
}

template <class T>
double PlanOperator<T>::marginal_from(Side side, std::int64_t i, double lse) const {
  std::size_t const k = to_size(i);
  double const weight = data_.weight(side)[k], slope = data_.potential(side)[i] - data_.costs->norm(side)[k];
  return weight > 0 ? weight * std::exp2(lse + slope * (kLog2e / eps_)) : 0;
}

/// Computes the results of record() from the transform: lse_i = (norm_i - f+_i) log2(e) / eps.
template <class T>
void PlanOperator<T>::take_transform(Side side, Products& onto) const {
  HostVector const& plus = *transforms_[static_cast<int>(side)];
  std::vector<double> const& weight = data_.weight(side);
  std::span<double const> const norm = data_.costs->norm(side), others = data_.costs->norm(opposite(side));
  // No logit of row i exceeds norm_i + reach, in units of C.
  double const reach = *std::max_element(others.begin(), others.end()) + data_.costs->depth();
  for (std::int64_t i = 0; i < size(side); ++i) {
    std::size_t const k = to_size(i);
    onto.lse[i] = (norm[k] - plus[i]) * (kLog2e / eps_);
    onto.marginal[i] = marginal_from(side, i, onto.lse[i]);
    if (weight[k] == 0) {  // lse is unknown here, but exponentials must be finite.
      onto.bounds[k] = (norm[k] + reach) * (kLog2e / eps_);
      onto.share_unit[i] = 0;
      continue;
    }
    onto.bounds[k] = onto.lse[i] - onto.logits.offset;
    onto.share_unit[i] = std::exp2(reference_above(onto.bounds[k]) - onto.bounds[k]);
  }
  onto.finish();
}

template <class T>
void PlanOperator<T>::record(Side side, Products& onto, Workspace<T> const& work, std::int64_t first,
                             std::int64_t count) const {
  std::vector<double> const& weight = data_.weight(side);
  for (std::int64_t r = 0; r < count; ++r) {
    std::int64_t const i = first + r;
    std::size_t const k = to_size(i);
    if (weight[k] == 0 && work.is_empty(r)) {  // All its pairs are forbidden: any bound holds, and shares are 0.
      onto.lse[i] = -std::numeric_limits<double>::infinity();
      onto.bounds[k] = onto.share_unit[i] = onto.marginal[i] = 0;
      continue;
    }
    onto.lse[i] = work.lse(r);
    onto.bounds[k] = onto.lse[i] - work.offset;
    std::size_t const row = to_size(r);
    onto.share_unit[i] = std::exp2(reference_above(onto.bounds[k]) - work.row_max[row]) / work.row_sum[row];
    onto.marginal[i] = marginal_from(side, i, onto.lse[i]);
  }
}

template <class T>
Stripes<T> const& PlanOperator<T>::for_each_row(Side side, RowOf what, RowConsumer const& consume) {
  Products& onto = measured(side);
  Side const other = opposite(side);
  std::int64_t const columns = size(other), padded = padded_to_panel<T>(columns);
  bool const logarithms = what == RowOf::logarithms, is_listed = data_.ordering != nullptr;
  PointOrders const& orders = vectors_.orders();
  std::vector<std::vector<std::int64_t>> points(to_size(onto.stripes.team().own));
  // beta_j or its logarithm; then one row for each thread, and the largest numbers of its groups.
  std::int64_t const threads = onto.stripes.team().own, groups = (padded + kLogitGroup - 1) / kLogitGroup;
  T* const factors = values_.at_least((1 + threads) * padded + threads * groups);
  std::copy_n(onto.logits.beta.get(), padded, factors);
  if (logarithms) std::transform(factors, factors + padded, factors, [](T beta) { return std::log2(beta); });
  PassOptions<T> const options{.bounds = onto.is_bounded && !logarithms ? onto.bounds.data() : nullptr,
                               .logits = logarithms};
  onto.stripes.for_each(
      onto.logits, options, [&](int thread, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
        T* const row = factors + (1 + thread) * padded;
        T* const largest = factors + (1 + threads) * padded + thread * groups;
        std::vector<std::int64_t>& of_row = points[to_size(thread)];
        of_row.clear();
        for (std::int64_t j = 0; is_listed && j < work.args.column_count; ++j) {
          std::int64_t const place = work.args.column(j) + j % kPanel<T>;
          if (place < columns) of_row.push_back(orders.point(other, place));
        }
        std::size_t const values = is_listed ? of_row.size() : to_size(columns);
        for (std::int64_t r = 0; r < count; ++r) {
          std::int64_t const i = first + r;
          if (logarithms) {
            read_logits(work.args, r, factors, row, largest);
          } else {
            double const scale = onto.scale(i, work.row_max[to_size(r)]);
            double const* const block_scale = work.args.block_scale + r * column_blocks<T>(work.args.column_count);
            auto const of_block = [&](std::int64_t block) { return static_cast<T>(scale * block_scale[block]); };
            read_row(work.args, r, factors, of_block, row);
          }
          double const reference = logarithms ? onto.bounds[to_size(i)] : 0.0;
          std::size_t const of_groups = logarithms ? (values + kLogitGroup - 1) / kLogitGroup : 0;
          consume(thread, {orders.point(side, i), i, {row, values}, {largest, of_groups}, of_row, reference});
        }
      });
  return onto.stripes;
}

template <class T>
void PlanOperator<T>::potentials(MutableVectorView f, MutableVectorView g) {
  for (Side const side : kSides) {
    MutableVectorView const out = side == Side::rows ? f : g;
    if (out.empty()) continue;
    HostVector const potential = completed_potential(data_, side, eps_, workers_);
    std::span<double const> const shift = data_.costs->shift(side);
    write_vector(out, [&](std::int64_t i) {
      std::int64_t const place = vectors_.orders().place(side, i);
      return potential[place] + shift[to_size(place)];
    });
  }
}

template <class T>
void PlanOperator<T>::transform(Side side, MutableVectorView out) {
  Products const& onto = measured(side);
  std::span<double const> const norm = data_.costs->norm(side), shift = data_.costs->shift(side);
  write_vector(out, [&](std::int64_t i) {
    std::size_t const k = to_size(vectors_.orders().place(side, i));
    return norm[k] - eps_ * kLn2 * onto.lse.values()[k] + shift[k];
  });
}

template <class T>
void PlanOperator<T>::set_transforms(Vector const& f_plus, Vector const& g_plus) {
  for (Side side : {Side::rows, Side::columns}) {
    int const s = static_cast<int>(side);
    transforms_[s] = std::make_unique<HostVector>(on_host(side == Side::rows ? f_plus : g_plus));
    if (products_[s]) take_transform(side, *products_[s]);
  }
}

template <class T>
Vector const& PlanOperator<T>::marginal(Side side) {
  return measured(side).marginal;
}

template <class T>
double PlanOperator<T>::transport_cost() {
  Products& rows = products(Side::rows);
  PlanSums const sums = plan_sums(data_, eps_, rows.stripes, rows.logits, rows.column_sums);
  CompensatedSum cost;
  cost.add(sums.centred_cost);
  for (Side const side : kSides) {
    std::vector<double> const& marginal = side == Side::rows ? sums.row : sums.column;
    for (std::size_t i = 0; i < marginal.size(); ++i) cost.add(data_.costs->shift(side)[i] * marginal[i]);
  }
  return cost.value();
}

/// The marginal of point j of `side` if it is known, else its weight.
template <class T>
double PlanOperator<T>::known_mass(Side side, std::int64_t j) const {
  Products const* const known = products_[static_cast<int>(side)].get();
  return known != nullptr && known->is_measured ? known->marginal[j] : data_.weight(side)[to_size(j)];
}

template <class T>
bool PlanOperator<T>::has_tiny_points(Side side) const {
  return is_concentrated(
      side, [&](std::int64_t j) { return 1 / std::max(known_mass(side, j), std::numeric_limits<double>::min()); });
}

/// The plan P_ij |v_j| of the points j of `side`: v_j moves into their potentials, or for 0 into their weights.
template <class T>
PlanOperator<T> PlanOperator<T>::with_weighted_points(Side side, HostVector const& v) const {
  PlanData<T> data = data_.with_both_potentials();
  std::vector<double> weight = data.weight(side);
  for (std::int64_t j = 0; j < v.size(); ++j) {
    if (v[j] == 0) weight[to_size(j)] = 0;
    if (weight[to_size(j)] > 0) data.potential(side)[j] += eps_ * std::log(std::abs(v[j]));
  }
  data.weights[static_cast<int>(side)] = std::make_shared<SideWeights>(std::move(weight));
  return PlanOperator(std::move(data), eps_, workers_, 0);
}

/// out = P v, shares of it or, with L and R, (P o L R^T) v, for a concentrated v.
template <class T>
void PlanOperator<T>::multiply_concentrated(Side side, Scaling scaling, HostVector const& v, MatrixView l, MatrixView r,
                                            MutableMatrixView out) {
  PlanOperator scaled = with_weighted_points(opposite(side), v);
  HostVector sign(v.size());
  for (std::int64_t j = 0; j < v.size(); ++j) sign[j] = v[j] == 0 ? 0.0 : std::copysign(1.0, v[j]);
  if (l.columns() > 0) {
    for (std::int64_t j = 0; j < v.size(); ++j) sign[j] /= hadamard_.right_units[to_size(j)];
    return scaled.multiply_hadamard_inside(side, l, r, std::as_const(sign).view(), out);
  }
  if (scaling == Scaling::plan) return scaled.multiply_inside(side, Scaling::plan, std::as_const(sign).view(), out);
  HostVector mean(size(side));
  scaled.multiply_inside(side, Scaling::shares, std::as_const(sign).view(), mean.view());
  Products const &before = measured(side), &after = scaled.measured(side);
  write_vector(MutableVectorView(out.data(), out.type(), out.rows(), out.row_stride()), [&](std::int64_t i) {
    return after.lse[i] == -std::numeric_limits<double>::infinity() ? 0.0
                                                                    : mean[i] * std::exp2(after.lse[i] - before.lse[i]);
  });
}

/// out_i = sum_j P_ij read(j), or the same with shares, from the row sums of a pass with columns beta_j v_j.
template <class T>
template <class Read>
void PlanOperator<T>::multiply_vector(Side side, Scaling scaling, Read const& read, MutableMatrixView out) {
  Products& onto = products(side);
  double const unit = weigh(onto.logits, read);
  with_data(out, [&](auto* data) {
    using Out = std::remove_pointer_t<decltype(data)>;
    for_each_stripe(side, weighed_.get(), false,
                    [&](int, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
                      for (std::int64_t r = 0; r < count; ++r) {
                        std::int64_t const i = first + r;
                        double const total = scaling == Scaling::plan ? onto.marginal[i] : 1.0;
                        std::size_t const row = to_size(r);
                        data[i * out.row_stride()] =
                            static_cast<Out>(total * unit * onto.scale(i, work.row_max[row]) * work.row_sum[row]);
                      }
                    })
        .share({of_rows(out)});
  });
}

/// values_ = beta_j V_jp / unit_p with V_jp = read(j, p), and units_ = unit_p. Ignores V at points of zero weight.
template <class T>
template <class Read>
void PlanOperator<T>::weigh_matrix(Products const& onto, ValueLayout<T> layout, Read const& read) {
  T const* const beta = onto.logits.beta.get();
  std::int64_t const size = static_cast<std::int64_t>(onto.logits.bias.size()), width = layout.width;
  T* const values = values_.at_least(layout.size(size));
  std::fill_n(values, layout.size(size), T(0));
  double* const units = units_.at_least(2 * width);
  double* const factors = units + width;
  std::fill_n(units, width, 0.0);
  for (std::int64_t j = 0; j < size; ++j) {
    if (beta[j] == 0) continue;
    for (std::int64_t p = 0; p < width; ++p) units[p] = std::max<double>(units[p], std::abs(read(j, p)));
  }
  for (std::int64_t p = 0; p < width; ++p) {
    units[p] = unit_near(units[p]);
    factors[p] = 1 / units[p];
  }
  parallel_for(onto.stripes.team().own, size, [&](std::int64_t j) {
    if (beta[j] == 0) return;
    double const weight = static_cast<double>(beta[j]);
    for (std::int64_t p = 0; p < width; ++p)
      values[layout.index(j, p)] = static_cast<T>(weight * (read(j, p) * factors[p]));
  });
}

/// out = P V or shares of it, V_jp = read(j, p), as averages of beta_j V_j under the softmax of the rows. Adds `origin`
/// to the averages; with `hadamard`, multiplies the entries of P by those of L R^T.
template <class T>
template <class Read>
void PlanOperator<T>::multiply_matrix(Side side, Scaling scaling, std::int64_t width, Read const& read,
                                      double const* origin, Hadamard const* hadamard, MutableMatrixView out) {
  Products& onto = products(side);
  ValueLayout<T> const layout{width};
  weigh_matrix(onto, layout, read);
  T const* const values = values_.get();
  double const* const units = units_.get();
  std::int64_t const room = onto.stripes.height() * layout.stride();
  double* const sums = sums_.at_least(onto.stripes.team().own * room);
  if (hadamard != nullptr) onto.stripes.reserve_scratch(hadamard->left.dimension);
  for_each_stripe(side, nullptr, true,
                  [&](int thread, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
                    if (hadamard != nullptr) multiply_by_products(work.args, hadamard->left, hadamard->right);
                    average_rows(work.args, layout, values, sums + thread * room);
                    with_data(out, [&](auto* data) {
                      using Out = std::remove_pointer_t<decltype(data)>;
                      for (std::int64_t r = 0; r < count; ++r) {
                        std::int64_t const i = first + r;
                        double const total = scaling == Scaling::plan ? onto.marginal[i] : 1.0;
                        double const scale = onto.scale(i, work.row_max[to_size(r)]) *
                                             (hadamard != nullptr ? hadamard->left_units[to_size(i)] : 1.0);
                        double const* const sum = sums + thread * room + r * layout.stride();
                        for (std::int64_t p = 0; p < width; ++p) {
                          double const mean = scale * units[p] * sum[p] + (origin != nullptr ? origin[p] : 0.0);
                          data[i * out.row_stride() + p] = static_cast<Out>(total * mean);
                        }
                      }
                    });
                  })
      .share({of_rows(out)});
}

/// out = P V, shares of it or, where L has columns, (P o L R^T) V. Concentrated columns of V are multiplied one by one.
template <class T>
void PlanOperator<T>::multiply_any(Side side, Scaling scaling, MatrixView l, MatrixView r, MatrixView v,
                                   MutableMatrixView out) {
  bool const is_hadamard = l.columns() > 0;
  std::vector<double> const& units = hadamard_.right_units;
  with_data(v, [&](auto const* data) {
    auto const read = [&](std::int64_t j, std::int64_t p) -> double {
      double const value = data[j * v.row_stride() + p];
      return is_hadamard ? value * units[to_size(j)] : value;
    };
    std::vector<std::pair<std::int64_t, HostVector>> concentrated;
    for (std::int64_t p = 0; p < v.columns(); ++p) {
      if (!is_concentrated(opposite(side), [&](std::int64_t j) { return read(j, p); })) continue;
      HostVector& column = concentrated.emplace_back(p, v.rows()).second;
      for (std::int64_t j = 0; j < v.rows(); ++j) column[j] = read(j, p);
    }
    if (std::ssize(concentrated) < v.columns()) {
      if (is_hadamard || v.columns() > 1) {
        multiply_matrix(side, scaling, v.columns(), read, nullptr, is_hadamard ? &hadamard_ : nullptr, out);
      } else {
        multiply_vector(
            side, scaling, [&](std::int64_t j) { return read(j, 0); }, out);
      }
    }
    for (auto const& entry : concentrated) {
      with_data(out, [&](auto* to) {
        multiply_concentrated(side, scaling, entry.second, l, r, {to + entry.first, out.rows(), 1, out.row_stride()});
      });
    }
  });
}

template <class T>
std::unique_ptr<HostVector> PlanOperator<T>::inside(Side side, MatrixView view) const {
  auto vector = std::make_unique<HostVector>(side, view.rows(), view.columns());
  vectors_.read(view, *vector);
  return vector;
}

template <class T>
void PlanOperator<T>::multiply_inside(Side side, Scaling scaling, MatrixView v, MutableMatrixView out) {
  multiply_any(side, scaling, {}, {}, v, out);
}

template <class T>
void PlanOperator<T>::multiply(Side side, Scaling scaling, MatrixView v, MutableMatrixView out) {
  if (!data_.ordering) return multiply_inside(side, scaling, v, out);
  HostVector result(side, out.rows(), out.columns());
  multiply(side, scaling, *inside(opposite(side), v), result);
  vectors_.write(result, out);
}

template <class T>
void PlanOperator<T>::multiply_points(Side side, Scaling scaling, MutableMatrixView out) {
  if (!data_.ordering) return multiply_points_inside(side, scaling, out);
  HostVector result(side, out.rows(), out.columns());
  multiply_points_inside(side, scaling, result.view());
  vectors_.write(result, out);
}

template <class T>
void PlanOperator<T>::multiply_points_inside(Side side, Scaling scaling, MutableMatrixView out) {
  PointValues<T> const points = of_points().points(opposite(side));
  multiply_matrix(
      side, scaling, static_cast<std::int64_t>(points.centre.size()),
      [&](std::int64_t j, std::int64_t p) -> double { return points.packed->coordinate(j, p); }, points.centre.data(),
      nullptr, out);
}

template <class T>
void PlanOperator<T>::multiply_features(Side side, Vector& out) {
  PointValues<T> const points = of_points().features(opposite(side));
  multiply_matrix(
      side, Scaling::plan, static_cast<std::int64_t>(points.centre.size()),
      [&](std::int64_t j, std::int64_t p) -> double { return points.packed->coordinate(j, p); }, nullptr, nullptr,
      on_host(out).view());
}

template <class T>
double PlanOperator<T>::label_cost() {
  PointCosts<T> const* const points = data_.costs->of_points();
  PointLabels const* const labels = points ? points->labels() : nullptr;
  if (!labels) return 0;
  std::vector<std::int64_t> const &x = labels->of[0], &y = labels->of[1];
  PointOrders const& orders = vectors_.orders();
  HostVector const& total = on_host(marginal(Side::rows));
  HostVector label_costs(size(Side::rows));
  for_each_row(Side::rows, RowOf::shares, [&](int, Row const& row) {
    double const* const cost = labels->costs->cost.data() + x[to_size(row.place)] * labels->costs->columns;
    double const origin = cost[0];  // A common offset of the costs would make the rounding of the shares count.
    double mean = 0;
    for (std::size_t k = 0; k < row.values.size(); ++k)
      mean += static_cast<double>(row.values[k]) * (cost[y[to_size(orders.place(Side::columns, row.j(k)))]] - origin);
    label_costs[row.place] = total[row.place] * (origin + mean);
  }).share({of_rows(label_costs.values().data())});
  CompensatedSum sum;
  for (double const cost : label_costs.values()) sum.add(cost);
  return sum.value();
}

template <class T>
void PlanOperator<T>::multiply_hadamard(Side side, MatrixView l, MatrixView r, MatrixView v, MutableMatrixView out) {
  if (!data_.ordering) return multiply_hadamard_inside(side, l, r, v, out);
  Side const other = opposite(side);
  HostVector result(side, out.rows(), out.columns());
  multiply_hadamard(side, *inside(side, l), *inside(other, r), *inside(other, v), result);
  vectors_.write(result, out);
}

template <class T>
void PlanOperator<T>::multiply_hadamard_inside(Side side, MatrixView l, MatrixView r, MatrixView v,
                                               MutableMatrixView out) {
  pack_in_units(l, hadamard_.left, hadamard_.left_units, hadamard_.scaled);
  pack_in_units(r, hadamard_.right, hadamard_.right_units, hadamard_.scaled);
  multiply_any(side, Scaling::plan, l, r, v, out);
}

template <class T>
void PlanOperator<T>::multiply_hadamard(Side side, Vector const& l, Vector const& r, Vector const& v, Vector& out) {
  multiply_hadamard_inside(side, on_host(l).view(), on_host(r).view(), on_host(v).view(), on_host(out).view());
}

template <class T>
void PlanOperator<T>::weight_terms(Side side, double penalty, WeightTerms const& out) {
  Products const& onto = measured(side);
  std::vector<double> const& weight = data_.weight(side);
  std::span<double const> const norm = data_.costs->norm(side), shift = data_.costs->shift(side);
  double const other_mass = data_.weights[static_cast<int>(opposite(side))]->total;
  for (std::int64_t i = 0; i < size(side); ++i) {
    std::size_t const k = to_size(i);
    double const transform = norm[k] - eps_ * kLn2 * onto.lse[i] + shift[k];
    WeightTerm const term = weight_term(data_.potential(side)[i] + shift[k], transform, weight[k], onto.marginal[i],
                                        penalty, eps_, other_mass);
    if (out.ratio != nullptr) on_host(*out.ratio)[i] = term.ratio;
    if (out.wanted != nullptr) on_host(*out.wanted)[i] = term.wanted;
    if (out.gradient != nullptr) on_host(*out.gradient)[i] = term.gradient;
  }
}

template <class T>
void PlanOperator<T>::multiply(Side side, Scaling scaling, Vector const& v, Vector& out) {
  multiply_inside(side, scaling, on_host(v).view(), on_host(out).view());
}

/// One pass over the rows of the other side. The stripe that gives (P in)_i still holds the entries P_ij, so out_j =
/// beta_j sum_i w_i (P in)_i r_i E_ij follows from column sums, as in a sweep. If a sum is too small to trust, or `in`
/// is concentrated, two products replace it.
template <class T>
void PlanOperator<T>::multiply_gram(Side side, Vector const& w, Vector const& in, Vector& out) {
  Side const over = opposite(side);
  HostVector const& weight = on_host(w);
  HostVector const& source = on_host(in);
  HostVector& target = on_host(out);
  auto const read = [&](std::int64_t j) { return source[j]; };
  auto const in_two = [&] {
    std::unique_ptr<Vector>& made = between_[static_cast<int>(over)];
    if (!made) made = vectors_.make(over);
    HostVector& between = on_host(*made);
    multiply(over, in, between);
    for (std::int64_t i = 0; i < between.size(); ++i) between[i] *= weight[i];
    multiply(side, between, out);
  };
  if (is_concentrated(side, read)) return in_two();
  Products& onto = measured(over);
  double const unit = weigh(onto.logits, read);
  onto.column_sums.clear();
  std::fill(onto.total_weights.begin(), onto.total_weights.end(), 0.0);
  for_each_stripe(over, weighed_.get(), true,
                  [&](int thread, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
                    double column_weight[kMaxStripeRows] = {}, largest = 0, total = 0;
                    for (std::int64_t r = 0; r < count; ++r) {
                      std::int64_t const i = first + r;
                      std::size_t const row = to_size(r);
                      double const entry = onto.marginal[i] * onto.scale(i, work.row_max[row]);
                      column_weight[r] = entry > 0 ? weight[i] * entry * (entry * work.row_sum[row]) : 0.0;
                      largest = std::max(largest, std::abs(column_weight[r]));
                      total += std::abs(column_weight[r]);
                    }
                    double const size = unit_near(largest);
                    for (std::int64_t r = 0; r < count; ++r) column_weight[r] /= size;
                    add_to_columns(work.args, count, column_weight, size, onto.column_sums.of(thread));
                    onto.total_weights[to_size(onto.stripes.team().first + thread)] += total + (total > 0 ? size : 0);
                  })
      .share({of_threads(onto.total_weights), onto.column_sums.of_ranks()});
  double const* const sums = onto.column_sums.join();
  double const total = std::accumulate(onto.total_weights.begin(), onto.total_weights.end(), 0.0);
  bool lost = false;
  for (std::int64_t j = 0; j < target.size(); ++j) {
    double const beta = static_cast<double>(onto.logits.beta[j]);
    lost |= beta > 0 && std::abs(sums[j]) <= smallest_trusted_sum<T>(total);
  }
  if (lost && total > 0) return in_two();
  for (std::int64_t j = 0; j < target.size(); ++j)
    target[j] = total > 0 ? unit * (static_cast<double>(onto.logits.beta[j]) * sums[j]) : 0.0;
}

template <class T>
std::unique_ptr<monge::EntrySolver> PlanOperator<T>::entry_solver(double per_row) {
  double const pairs = data_.ordering
                           ? static_cast<double>(tiles(Side::rows).tile.size() * kTilePoints * kTilePoints)
                           : static_cast<double>(size(Side::rows)) * static_cast<double>(size(Side::columns));
  return largest_entry_solver(*this, per_row, pairs, vectors_.orders());
}

template <class T>
std::unique_ptr<monge::PlanOperator> PlanOperator<T>::at_eps(double eps) const {
  return std::make_unique<PlanOperator>(data_, eps, workers_, 0);
}

template class PlanOperator<float>;
template class PlanOperator<double>;

}  // namespace monge::cpu
