#include "cpu/plan/plan_operator.hpp"

#include <hwy/base.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "core/compensated_sum.hpp"
#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "core/strided.hpp"
#include "cpu/geometry/point_labels.hpp"
#include "cpu/second_order/entry_solver.hpp"
#include "plan/concentration.hpp"
#include "plan/weight_term.hpp"

namespace monge::cpu {
namespace {

/// A power of two near `largest`; numbers divided by it fit in float. For 0 the unit is so small that the starting
/// values of sums in the kernels vanish.
double unit_near(double largest) {
  return std::ldexp(1.0, std::clamp(std::ilogb(largest), -1000, 1000));
}

/// Packs the points, each divided by its unit: a power of two near its largest coordinate. `scaled` is scratch.
template <class T>
void pack_in_units(MatrixView points, PackedPoints<T>& packed, std::vector<double>& units,
                   std::vector<double>& scaled) {
  units.resize(to_size(points.rows()));
  scaled.resize(to_size(points.rows() * points.columns()));
  with_data(points, [&](auto const* data) {
    std::size_t e = 0;
    for (std::int64_t i = 0; i < points.rows(); ++i) {
      auto const* const point = data + i * points.row_stride();
      double largest = 0;
      for (std::int64_t k = 0; k < points.columns(); ++k) largest = std::max<double>(largest, std::abs(point[k]));
      double const unit = units[to_size(i)] = unit_near(largest);
      for (std::int64_t k = 0; k < points.columns(); ++k, ++e) scaled[e] = point[k] / unit;
    }
  });
  pack(MatrixView(scaled.data(), points.rows(), points.columns()), {}, 1, packed);
}

/// Concentration::exceeds() from this number on. A share is then held to 2^-65 (float) or 2^-221 (double) of the mean.
template <class T>
inline constexpr double kReach = sizeof(T) == 4 ? 0x1p60 : 0x1p800;

/// row_j = value(number of stripe row r at j, factor_j, scale of j's block), for whole panels.
template <class T, class Scale, class Value>
void read_row(StripeArgs<T> const& args, std::int64_t r, T const* factor, Scale const& scale, T* row,
              Value const& value) {
  for (std::int64_t begin = 0; begin < args.column_count; begin += kPanel<T>) {
    T const* HWY_RESTRICT panel = args.stripe + begin * args.row_count + r * kPanel<T>;
    T const* HWY_RESTRICT factors = factor + begin;
    T* HWY_RESTRICT out = row + begin;
    T const of_block = scale(begin / kColumnBlock);
    for (std::int64_t lane = 0; lane < kPanel<T>; ++lane) out[lane] = value(panel[lane], factors[lane], of_block);
  }
}

}  // namespace

template <class T>
struct PlanOperator<T>::Products {
  Products(PlanData<T> const& data, Side side, double eps, Team const& team, double cache_bytes)
      : stripes(*data.costs, side, team, cache_bytes),
        logits(data.costs->size(opposite(side))),
        lse(data.costs->size(side)),
        share_unit(data.costs->size(side)),
        marginal(data.costs->size(side)),
        bounds(to_size(padded_to_panel<T>(data.costs->size(side)))),
        column_sums(data.costs->size(opposite(side)), team),
        total_weights(to_size(team.size)) {
    logits.set(data, opposite(side), data.potential(opposite(side)), eps);
  }

  /// The factor that turns a sum relative to 2^row_max into one relative to the sum of row i. The power of two is
  /// exact, so a product has the same bits with and without bounds.
  double scale(std::int64_t i, double row_max) const {
    return share_unit[i] * std::exp2(row_max - reference_above(bounds[to_size(i)]));
  }
  /// Marks the data of all rows as complete.
  void finish() {
    double largest = logits.largest;
    for (double const bound : bounds) largest = std::max(largest, std::abs(bound));
    is_bounded = largest < kLargestBound<T>;
    is_measured = true;
  }

  Stripes<T> stripes;
  Logits<T> logits;  // Logits of the other side.
  bool is_measured = false;
  HostVector lse, share_unit,
      marginal;  // share_unit_i = 2^M_i / sum_j 2^t_ij, without a rounded logarithm; M_i = reference_above(bounds_i).
  std::vector<double> bounds;  // lse without the offset of the logits, padded.
  bool is_bounded = false;     // Whether the kernels can use the bounds.
  ColumnSums<T> column_sums;
  std::vector<double> total_weights;  // Sums of |column_weight|, one for each thread of the team.
};

template <class T>
PlanOperator<T>::PlanOperator(PlanData<T> data, double eps, Workers const& workers, double cache_bytes)
    : monge::PlanOperator(data.costs->size(Side::rows), data.costs->size(Side::columns)),
      data_(std::move(data)),
      vectors_(size(Side::rows), size(Side::columns)),
      eps_(eps),
      workers_(workers),
      cache_bytes_(cache_bytes) {}

template <class T>
PlanOperator<T>::~PlanOperator() = default;

template <class T>
auto PlanOperator<T>::products(Side side) -> Products& {
  std::unique_ptr<Products>& products = products_[static_cast<int>(side)];
  if (!products) {
    Team const team(workers_, size(Side::rows), size(Side::columns));
    products = std::make_unique<Products>(data_, side, eps_, team, cache_bytes_);
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

/// A pass over the rows of `side` with `beta`, or with the beta of the logits if null. The log-sum-exps are known when
/// `consume` sees a row: the first pass finds them, a separate one if `beta` is given. Scores are kept from the second
/// pass on: a plan that is there for a gradient makes only one. Returns the stripes, to share what `consume` has
/// written.
template <class T>
template <class Consume>
Stripes<T> const& PlanOperator<T>::for_each_stripe(Side side, T const* beta, bool store, Consume&& consume) {
  Products& onto = beta == nullptr ? products(side) : measured(side);
  bool const measure = !onto.is_measured;
  PassOptions<T> const options{
      .beta = beta, .bounds = onto.is_bounded ? onto.bounds.data() : nullptr, .store = store, .keep = !measure};
  onto.stripes.for_each(onto.logits, options,
                        [&](int thread, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
                          if (measure) record(side, onto, work, first, count);
                          consume(thread, work, first, count);
                        });
  if (measure) {
    onto.stripes.share({of_rows(onto.lse.values().data()), of_rows(onto.share_unit.values().data()),
                        of_rows(onto.marginal.values().data()), of_rows(onto.bounds.data())});
    onto.finish();
  }
  return onto.stripes;
}

template <class T>
Stripes<T> const& PlanOperator<T>::for_each_row(Side side, RowOf what, RowConsumer const& consume) {
  Products& onto = measured(side);
  std::int64_t const columns = size(opposite(side)), padded = padded_to_panel<T>(columns);
  bool const logarithms = what == RowOf::logarithms;
  // beta_j or its logarithm; then one row for each thread.
  T* const factors = values_.at_least((1 + onto.stripes.team().own) * padded);
  std::copy_n(onto.logits.beta.get(), padded, factors);
  if (logarithms) std::transform(factors, factors + padded, factors, [](T beta) { return std::log2(beta); });
  PassOptions<T> const options{.bounds = onto.is_bounded && !logarithms ? onto.bounds.data() : nullptr,
                               .logits = logarithms};
  onto.stripes.for_each(
      onto.logits, options, [&](int thread, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
        T* const row = factors + (1 + thread) * padded;
        for (std::int64_t r = 0; r < count; ++r) {
          std::int64_t const i = first + r;
          if (logarithms) {
            auto const none = [](std::int64_t) { return T(0); };
            read_row(work.args, r, factors, none, row, [](T t, T log_beta, T) {
              return t + log_beta + (t > kNoWeight<T> / 2 ? T(0) : -std::numeric_limits<T>::infinity());
            });
          } else {
            double const scale = onto.scale(i, work.row_max[to_size(r)]);
            double const* const block_scale = work.args.block_scale + r * column_blocks<T>(columns);
            auto const of_block = [&](std::int64_t block) { return static_cast<T>(scale * block_scale[block]); };
            read_row(work.args, r, factors, of_block, row, [](T e, T beta, T factor) { return e * beta * factor; });
          }
          double const reference = logarithms ? onto.bounds[to_size(i)] : 0.0;
          consume(thread, i, {row, to_size(columns)}, reference);
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
    write_vector(out, [&](std::int64_t i) { return potential[i] + shift[to_size(i)]; });
  }
}

template <class T>
void PlanOperator<T>::transform(Side side, MutableVectorView out) {
  Products const& onto = measured(side);
  std::span<double const> const norm = data_.costs->norm(side), shift = data_.costs->shift(side);
  write_vector(out, [&](std::int64_t i) {
    std::size_t const k = to_size(i);
    return norm[k] - eps_ * kLn2 * onto.lse[i] + shift[k];
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

/// Whether v_j = read(j), of the points j of `side`, is concentrated. Only an unbalanced plan's answer depends on
/// whether its marginal is known.
template <class T>
template <class Read>
bool PlanOperator<T>::is_concentrated(Side side, Read const& read) const {
  std::vector<double> const& weight = data_.weight(side);
  Products const* const known = products_[static_cast<int>(side)].get();
  Concentration concentration;
  for (std::int64_t j = 0; j < size(side); ++j) {
    if (weight[to_size(j)] > 0) concentration.add(known_mass(side, j), std::abs(read(j)));
  }
  return concentration.exceeds(kReach<T>, known != nullptr && known->is_measured);
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
    return scaled.multiply_hadamard(side, l, r, std::as_const(sign).view(), out);
  }
  if (scaling == Scaling::plan) return scaled.multiply(side, Scaling::plan, std::as_const(sign).view(), out);
  HostVector mean(size(side));
  scaled.multiply(side, Scaling::shares, std::as_const(sign).view(), mean.view());
  Products const &before = measured(side), &after = scaled.measured(side);
  write_vector(MutableVectorView(out.data(), out.type(), out.rows(), out.row_stride()), [&](std::int64_t i) {
    return after.lse[i] == -std::numeric_limits<double>::infinity() ? 0.0
                                                                    : mean[i] * std::exp2(after.lse[i] - before.lse[i]);
  });
}

/// weighed_j = beta_j v_j / unit; returns the unit. Values of v at points of zero weight are ignored.
template <class T>
template <class Read>
double PlanOperator<T>::weigh(Logits<T> const& logits, Read const& read) {
  std::int64_t const size = static_cast<std::int64_t>(logits.bias.size());
  double largest = 0;
  for (std::int64_t j = 0; j < size; ++j) {
    if (logits.beta[j] > 0) largest = std::max<double>(largest, std::abs(read(j)));
  }
  double const unit = unit_near(largest);
  T* const weighed = weighed_.at_least(padded_to_panel<T>(size));
  for (std::int64_t j = 0; j < padded_to_panel<T>(size); ++j) {
    weighed[j] =
        j < size && logits.beta[j] > 0 ? static_cast<T>(static_cast<double>(logits.beta[j]) * (read(j) / unit)) : T(0);
  }
  return unit;
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
void PlanOperator<T>::multiply(Side side, Scaling scaling, MatrixView v, MutableMatrixView out) {
  multiply_any(side, scaling, {}, {}, v, out);
}

template <class T>
void PlanOperator<T>::multiply_points(Side side, Scaling scaling, MutableMatrixView out) {
  PointValues<T> const points = of_points().points(opposite(side));
  multiply_matrix(
      side, scaling, static_cast<std::int64_t>(points.centre.size()),
      [&](std::int64_t j, std::int64_t p) -> double { return points.packed->coordinate(j, p); }, points.centre.data(),
      nullptr, out);
}

template <class T>
void PlanOperator<T>::multiply_points(Side side, Vector& out) {
  PointValues<T> const points = of_points().points(opposite(side));
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
  HostVector const& total = on_host(marginal(Side::rows));
  HostVector label_costs(size(Side::rows));
  for_each_row(Side::rows, RowOf::shares, [&](int, std::int64_t i, std::span<T const> row, double) {
    double const* const cost = labels->costs->cost.data() + x[to_size(i)] * labels->costs->columns;
    double const origin = cost[0];  // A common offset of the costs would make the rounding of the shares count.
    double mean = 0;
    for (std::size_t j = 0; j < row.size(); ++j) mean += static_cast<double>(row[j]) * (cost[y[j]] - origin);
    label_costs[i] = total[i] * (origin + mean);
  }).share({of_rows(label_costs.values().data())});
  CompensatedSum sum;
  for (double const cost : label_costs.values()) sum.add(cost);
  return sum.value();
}

template <class T>
void PlanOperator<T>::multiply_hadamard(Side side, MatrixView l, MatrixView r, MatrixView v, MutableMatrixView out) {
  pack_in_units(l, hadamard_.left, hadamard_.left_units, hadamard_.scaled);
  pack_in_units(r, hadamard_.right, hadamard_.right_units, hadamard_.scaled);
  multiply_any(side, Scaling::plan, l, r, v, out);
}

template <class T>
void PlanOperator<T>::multiply_hadamard(Side side, Vector const& l, Vector const& r, Vector const& v, Vector& out) {
  multiply_hadamard(side, on_host(l).view(), on_host(r).view(), on_host(v).view(), on_host(out).view());
}

template <class T>
void PlanOperator<T>::coordinates(Side side, Vector& out) const {
  PointValues<T> const points = of_points().points(side);
  std::int64_t const dimension = static_cast<std::int64_t>(points.centre.size());
  HostVector& target = on_host(out);
  for (std::int64_t i = 0, e = 0; i < size(side); ++i) {
    for (std::int64_t k = 0; k < dimension; ++k, ++e) target[e] = points.packed->coordinate(i, k);
  }
}

template <class T>
void PlanOperator<T>::slopes(Side side, Vector& out) const {
  PointValues<T> const points = of_points().points(side);
  std::span<double const> const far = of_points().points(opposite(side)).centre;
  auto const [product, curvature] = of_points().point_form();
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
void PlanOperator<T>::cost_gradients(Side side, Vector const* l, Vector const* r, Vector& out) {
  MutableMatrixView const to = on_host(out).view();
  if (data_.costs->scores(side).form == ScoreForm::distances) return distance_gradients(side, l, r, to);
  cosine_gradients(side, l, r, to);
}

/// Averages of derivatives under the softmax of the rows, from entries that the stripe still holds. The rows of R are
/// powers of two times rows of ordinary size; the powers join the weights of the columns. Where these powers are
/// concentrated they move into the potentials.
template <class T>
void PlanOperator<T>::distance_gradients(Side side, Vector const* l, Vector const* r, MutableMatrixView out) {
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
    return with_weighted_points(far, units).distance_gradients(side, l, &rest, out);
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

/// With u_i = p_i / |p_i| and the directions v_j of the other side, dC_ij/dp_i = product (v_j - u_i <u_i, v_j>) /
/// |p_i|. The sum of P_ij <l_i, r_j> (v_j - u_i), less its part along u_i, has the same value and loses no digits where
/// all directions are alike.
template <class T>
void PlanOperator<T>::cosine_gradients(Side side, Vector const* l, Vector const* r, MutableMatrixView out) {
  PointValues<T> const points = of_points().points(side), own = of_points().features(side),
                       far = of_points().features(opposite(side));
  std::int64_t const width = out.columns(), others = size(opposite(side));
  HostVector values(others, width + 1), sums(size(side), width + 1);
  for (std::int64_t j = 0, e = 0; j < others; ++j) {
    values[e++] = 1;
    for (std::int64_t k = 0; k < width; ++k) values[e++] = far.packed->coordinate(j, k);
  }
  if (l == nullptr) {
    multiply(side, Scaling::plan, std::as_const(values).view(), sums.view());
  } else {
    multiply_hadamard(side, *l, *r, values, sums);
  }
  double const factor = data_.costs->factor();
  double const product = data_.costs->scores(side).form == ScoreForm::differences ? -2 * factor : factor;
  std::vector<double> direction(to_size(width)), sum(to_size(width));
  with_data(out, [&](auto* data) {
    using Out = std::remove_pointer_t<decltype(data)>;
    for (std::int64_t i = 0; i < size(side); ++i) {
      double square = 0, along = 0;
      double const* const of_row = sums.values().data() + i * (width + 1);
      for (std::int64_t k = 0; k < width; ++k) {
        std::size_t const q = to_size(k);
        double const coordinate = points.packed->coordinate(i, k) + points.centre[q];
        square += coordinate * coordinate;
        double const apart = own.packed->coordinate(i, k);
        direction[q] = own.centre[q] + apart;
        sum[q] = of_row[k + 1] + of_row[0] * (far.centre[q] - own.centre[q] - apart);
        along += sum[q] * direction[q];
      }
      for (std::int64_t k = 0; k < width; ++k) {
        std::size_t const q = to_size(k);
        data[i * out.row_stride() + k] =
            static_cast<Out>(product * (sum[q] - along * direction[q]) / std::sqrt(square));
      }
    }
  });
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
  multiply(side, scaling, on_host(v).view(), on_host(out).view());
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
  return largest_entry_solver(*this, per_row);
}

template <class T>
std::unique_ptr<monge::PlanOperator> PlanOperator<T>::at_eps(double eps) const {
  return std::make_unique<PlanOperator>(data_, eps, workers_, 0);
}

template <class T>
std::unique_ptr<monge::PlanOperator> PlanOperator<T>::at(Side side, MatrixView points) const {
  Side const other = opposite(side);
  PlanData<T> moved = data_;
  moved.costs = of_points().at(side, points);
  moved.weights[static_cast<int>(side)] =
      std::make_shared<SideWeights>(std::vector<double>(to_size(points.rows()), 1.0));
  moved.potential(side) = HostVector(points.rows());
  // The user's potential of the other side is unchanged. The new plan keeps no entries: a second product at the same
  // points is rare.
  std::span<double const> const before = data_.costs->shift(other), after = moved.costs->shift(other);
  for (std::size_t j = 0; j < before.size(); ++j) moved.potential(other).values()[j] += before[j] - after[j];
  return std::make_unique<PlanOperator>(std::move(moved), eps_, workers_, 0);
}

template class PlanOperator<float>;
template class PlanOperator<double>;

}  // namespace monge::cpu
