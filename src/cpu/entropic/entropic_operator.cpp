#include "cpu/entropic/entropic_operator.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/evaluation.hpp"
#include "core/numbers.hpp"
#include "core/strided.hpp"
#include "cpu/plan/plan_operator.hpp"

namespace monge::cpu {
namespace {

/// The most powers of two between the bounds of a sweep and the logits; float exponents reach 126.
constexpr double kLoosestBound = 32;

}  // namespace

template <class T>
EntropicOperator<T>::EntropicOperator(std::shared_ptr<Costs<T> const> costs, std::shared_ptr<SideWeights const> a,
                                      std::shared_ptr<SideWeights const> b, Penalties const& penalties, bool is_self,
                                      Workers const& workers, double cache_bytes,
                                      std::shared_ptr<Ordering const> ordering)
    : monge::EntropicOperator(costs->size(Side::rows), costs->size(Side::columns), is_self),
      data_{costs,
            {std::move(a), std::move(b)},
            {HostVector(Side::rows, costs->size(Side::rows)),
             HostVector(Side::columns, is_self ? 0 : costs->size(Side::columns))},
            penalties,
            is_self,
            std::move(ordering)},
      vectors_(size(Side::rows), size(Side::columns), orders_of(data_.ordering)),
      workers_(workers),
      cache_bytes_(cache_bytes),
      stripes_(*costs, Side::rows, {workers, size(Side::rows), size(Side::columns)}, cache_bytes,
               data_.ordering ? PassOver::listed
               : is_self      ? PassOver::all_or_upper
                              : PassOver::all),
      logits_(size(Side::columns)),
      column_sums_(size(Side::columns), stripes_.team()),
      log_mass_ratio_(log_mass_ratio(data_.weights[0]->total, data_.weights[1]->total)),
      f_next_(size(Side::rows)),
      g_plus_(logits_.bias.size()),
      bounds_(to_size(padded_to_panel<T>(size(Side::rows)))),
      row_errors_(to_size(stripes_.team().size)),
      total_weights_(to_size(stripes_.team().size)) {
  last_.column_bias.resize(logits_.bias.size());
  last_.row_lse.resize(f_next_.values().size());
}

template <class T>
void EntropicOperator<T>::set_potentials(VectorView f, VectorView g) {
  PointOrders const& orders = vectors_.orders();
  for (Side const side : kSides) {
    VectorView const view = side == Side::rows ? f : g;
    std::span<double const> const shift = data_.costs->shift(side);
    std::vector<double>& potential = data_.potential(side).values();
    double const share = is_self() ? 0.5 : 1;  // Both sides are one vector.
    for (std::size_t i = 0; i < potential.size(); ++i)
      potential[i] = (is_self() && side == Side::columns ? potential[i] : 0) - share * shift[i];
    if (view.empty()) continue;
    with_data(view, [&](auto const* data) {
      for (std::int64_t place = 0; place < view.size(); ++place)
        potential[to_size(place)] += share * data[orders.point(side, place) * view.stride()];
    });
  }
  last_.eps = 0;
  tiles_eps_ = 0;  // The result is that of a new operator.
}

template <class T>
Vector& EntropicOperator<T>::potential(Side side) {
  last_.eps = 0;
  return data_.potential(side);
}

template <class T>
void EntropicOperator<T>::get_potentials(MutableVectorView f, MutableVectorView g) const {
  for (Side const side : kSides) {
    HostVector const potential =
        last_.eps > 0 ? completed_potential(data_, side, last_.eps, workers_) : data_.potential(side);
    std::span<double const> const shift = data_.costs->shift(side);
    write_vector(side == Side::rows ? f : g, [&](std::int64_t i) {
      std::int64_t const place = vectors_.orders().place(side, i);
      return potential[place] + shift[to_size(place)];
    });
  }
}

template <class T>
void EntropicOperator<T>::sweep(Sweep const& sweep, int count) {
  if (data_.ordering && count > 0 && !tiles_serve(sweep)) take_tiles(sweep);
  for (int k = 0; k < count; ++k) {
    // The search took f as this sweep leaves it and g as it is before.
    bool const is_first = has_new_tiles_;
    if (is_first) of_tiles_[1] = data_.potential(Side::columns).values();
    one_sweep(sweep);
    if (is_first) {
      of_tiles_[0] = data_.potential(Side::rows).values();
      tiles_eps_ = sweep.eps;
    }
  }
  sweeps_of_tiles_ += count;
}

/// Whether the tiles of earlier sweeps are still right. A pair is left out where it matters neither to its row nor to
/// its column. If one potential of a pair moves, the other one's test still holds, so what counts is the mean movement
/// of the mass, exp(|f_now - f_then| / eps) - 1. A few points that move far may lack more than the share, for a few
/// sweeps; certificates have tiles of their own.
template <class T>
bool EntropicOperator<T>::tiles_serve(Sweep const& sweep) const {
  if (tiles_eps_ != sweep.eps || sweeps_of_tiles_ >= kServedSweeps) return false;
  for (Side const side : kSides) {
    SideWeights const& weights = *data_.weights[static_cast<int>(side)];
    std::vector<double> const& now = data_.potential(side).values();
    std::vector<double> const& then = of_tiles_[static_cast<int>(side)];
    double movement = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (weights.value[i] > 0)
        movement +=
            weights.value[i] * std::min(std::expm1(std::abs(now[i] - then[i]) / sweep.eps), kServedMovementOfPoint);
    }
    if (!(movement <= kServedMovement * weights.total)) return false;
  }
  return true;
}

/// Finds the tiles that the next sweeps are over.
template <class T>
void EntropicOperator<T>::take_tiles(Sweep const& sweep) {
  UpdateRule const rule = this->rule(Side::rows, sweep);
  std::vector<double> const& weight = data_.weight(Side::rows);
  std::span<double const> const shift = data_.costs->shift(Side::rows);
  tiles_eps_ = 0;  // No tiles serve if memory ends before they are complete.
  tiles_ = {};     // Before the memory of the next ones is taken.
  tiles_ = sweep_tiles(data_, sweep.eps, workers_, [&](std::int64_t i, double old, double plus) {
    if (sweep.symmetric || weight[to_size(i)] == 0) return old;
    return rule.next(old, plus, shift[to_size(i)]);
  });
  if (is_self()) tiles_.rows = CountedList(upper_tiles(*tiles_.rows));
  stripes_.use(*tiles_.rows);
  has_new_tiles_ = true;
  sweeps_of_tiles_ = 0;
}

/// An upper bound of the logits of each row: in the last sweep none exceeded the log-sum-exp of its row, and since then
/// each changed by as much as the bias of its column. Null if the last sweep had another eps, if the bounds would be
/// too loose, or if the logits are too large; the pass then finds the maxima itself.
template <class T>
double const* EntropicOperator<T>::bound_rows(double eps) {
  if (last_.eps != eps || has_new_tiles_) return nullptr;
  std::vector<double> const& weight = data_.weight(Side::columns);
  double rise = -std::numeric_limits<double>::infinity(), fall = -rise, largest = logits_.largest;
  for (std::size_t j = 0; j < weight.size(); ++j) {
    if (weight[j] == 0) continue;
    double const change = logits_.bias[j] - last_.column_bias[j];
    rise = std::max(rise, change);
    fall = std::min(fall, change);
  }
  if (!(rise - fall <= kLoosestBound)) return nullptr;
  for (std::size_t i = 0; i < last_.row_lse.size(); ++i) {
    bounds_[i] = last_.row_lse[i] + rise - logits_.offset;
    largest = std::max(largest, std::abs(bounds_[i]));
  }
  return largest < kLargestBound<T> ? bounds_.data() : nullptr;
}

template <class T>
UpdateRule EntropicOperator<T>::rule(Side side, Sweep const& sweep) const {
  return {sweep.eps, data_.penalties.of(side), sweep.relaxation, sweep.symmetric};
}

/// Translates the potentials to (f + t, g - t) with the t that raises the dual most.
template <class T>
void EntropicOperator<T>::translate() {
  auto const log_mean = [&](Side side) -> LogMean {
    double const penalty = data_.penalties.of(side);
    if (std::isinf(penalty)) return {};
    SideWeights const& weights = *data_.weights[static_cast<int>(side)];
    std::span<double const> const shift = data_.costs->shift(side);
    std::vector<double> const& potential = data_.potential(side).values();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < shift.size(); ++i) {
      if (weights.value[i] > 0) least = std::min(least, potential[i] + shift[i]);
    }
    LogMeanSums sums{least};
    for (std::size_t i = 0; i < shift.size(); ++i) {
      if (weights.value[i] > 0) sums.add(weights.value[i], potential[i] + shift[i], penalty);
    }
    return sums.over(weights.total);
  };
  double const t = best_translation(data_.penalties.a, data_.penalties.b, log_mass_ratio_, log_mean(Side::rows),
                                    log_mean(Side::columns));
  for (double& f : data_.potential(Side::rows).values()) f += t;
  for (double& g : data_.potential(Side::columns).values()) g -= t;
}

/// One pass. The rows of a stripe give f, and its exponentials, weighted with the new f (alternating) or the old one
/// (symmetric), add to the column sums. The pass of a self problem is over the upper triangle and updates the columns
/// only; the sum of a row is then one more term of its column.
template <class T>
void EntropicOperator<T>::one_sweep(Sweep const& sweep) {
  double const eps = sweep.eps;
  UpdateRule const rule = this->rule(Side::rows, sweep);
  std::vector<double> const& weight = data_.weight(Side::rows);
  std::vector<double>& f = data_.potential(Side::rows).values();
  std::span<double const> const norms = data_.costs->norm(Side::rows), shifts = data_.costs->shift(Side::rows);
  double const mass = data_.mass();
  // A self problem keeps f = g, so t = 0.
  if (sweep.translates && !data_.penalties.balanced() && !is_self()) translate();
  logits_.set(data_, Side::columns, data_.potential(Side::columns), eps);
  double const* const bounds = bound_rows(eps);
  std::fill(row_errors_.begin(), row_errors_.end(), ErrorSums{});
  std::fill(total_weights_.begin(), total_weights_.end(), 0.0);
  column_sums_.clear();
  std::optional<PassParts<T>> parts;  // The first sweep over new tiles measures them.
  if (has_new_tiles_ && !is_self()) parts.emplace(data_, *tiles_.rows, logits_);

  stripes_.for_each(logits_, {.bounds = bounds, .upper = is_self()},
                    [&](int thread_index, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
                      std::size_t const thread = to_size(stripes_.team().first + thread_index);
                      double* const sums = column_sums_.of(thread_index);
                      StripeArgs<T> args = work.args;
                      if (is_self()) args.first_column = stripes_.after_group(args);
                      double column_weight[kMaxStripeRows];
                      for (std::int64_t r = 0; r < count; ++r) {
                        std::size_t const i = to_size(first + r);
                        if (weight[i] == 0) {  // f_i stays. If all its pairs are forbidden, any bound holds.
                          last_.row_lse[i] = work.is_empty(r) ? 0.0 : work.lse(r);
                          f_next_[first + r] = f[i];
                          column_weight[r] = 0;
                          continue;
                        }
                        double const lse = last_.row_lse[i] = work.lse(r);
                        double const plus = norms[i] - eps * kLn2 * lse;
                        row_errors_[thread].add(weight[i] * rule.error(f[i], plus, shifts[i]));
                        double& next = f_next_[first + r];
                        next = rule.next(f[i], plus, shifts[i]);
                        double const f_used = sweep.symmetric ? f[i] : next;
                        // A poor warm start must not put infinity into the sums. An infinite total weight makes all
                        // sums untrusted.
                        double const exponent = work.exponent(r) + (f_used - norms[i]) * (kLog2e / eps);
                        double const factor = weight[i] / mass * std::exp2(exponent);
                        column_weight[r] = exponent < 100 ? factor : 0.0;
                        total_weights_[thread] += exponent < 100 ? factor : std::numeric_limits<double>::infinity();
                        if (is_self())
                          sums[i] += column_weight[r] * work.row_sum[to_size(r)] / static_cast<double>(logits_.beta[i]);
                      }
                      if (parts) return parts->add_to_columns(work, first, count, column_weight, sums);
                      add_to_columns(args, count, column_weight, 1.0, sums);
                    });

  stripes_.share({of_rows(last_.row_lse.data()), of_rows(f_next_.values().data()), of_threads(row_errors_),
                  of_threads(total_weights_), column_sums_.of_ranks()},
                 is_self());
  double const total_weight = std::accumulate(total_weights_.begin(), total_weights_.end(), 0.0);
  if (parts && std::isfinite(total_weight)) {
    tiles_.rows = CountedList(parts->thinned(column_sums_.join()));
    stripes_.use(*tiles_.rows);
  }
  ErrorSums const columns =
      update_columns(sweep, sweep.symmetric ? data_.potential(Side::rows) : f_next_, column_sums_.join(),
                     smallest_trusted_sum<T>(static_cast<double>(size(Side::rows)) + total_weight));
  ErrorSums rows;
  for (ErrorSums const& part : row_errors_) rows.join(part);
  if (is_self()) {
    rows = columns;
  } else {
    std::swap(f, f_next_.values());
  }
  errors_ = {rows.absolute, columns.absolute, std::sqrt(rows.square + columns.square)};
  std::swap(last_.column_bias, logits_.bias);
  last_.eps = eps;
  has_new_tiles_ = false;
}

/// g+ = g - eps log(c_j / b_j) from the column sums, c_j = mass beta_j column_sums_j. Returns the errors of the old g.
template <class T>
ErrorSums EntropicOperator<T>::update_columns(Sweep const& sweep, HostVector const& f_used, double const* column_sums,
                                              double smallest_trusted) {
  double const eps = sweep.eps;
  UpdateRule const rule = this->rule(Side::columns, sweep);
  std::vector<double> const& weight = data_.weight(Side::columns);
  std::vector<double>& g = data_.potential(Side::columns).values();
  std::span<double const> const shifts = data_.costs->shift(Side::columns);
  lost_.clear();
  for (std::size_t j = 0; j < g.size(); ++j) {
    if (weight[j] == 0) continue;
    if (column_sums[j] > smallest_trusted) {
      double const marginal = data_.mass() * static_cast<double>(logits_.beta[j]) * column_sums[j];
      g_plus_[j] = g[j] - eps * std::log(marginal / weight[j]);
    } else {
      lost_.push_back(static_cast<std::int64_t>(j));
    }
  }
  if (!lost_.empty()) {
    std::vector<double> const exact = softmin_at(data_, Side::columns, lost_, f_used, eps, workers_);
    for (std::size_t k = 0; k < lost_.size(); ++k) g_plus_[to_size(lost_[k])] = exact[k];
  }
  ErrorSums errors;
  for (std::size_t j = 0; j < g.size(); ++j) {
    if (weight[j] == 0) continue;
    errors.add(weight[j] * rule.error(g[j], g_plus_[j], shifts[j]));
    g[j] = rule.next(g[j], g_plus_[j], shifts[j]);
  }
  return errors;
}

template <class T>
Evaluation EntropicOperator<T>::evaluate(double eps, Vector* row_marginal, Vector* column_marginal) {
  std::vector<double> left_out[2];
  if (data_.ordering) {
    tiles_ = {};
    tiles_ = plan_tiles(data_, eps, workers_);
    tiles_eps_ = 0;
    stripes_.use(*tiles_.rows);
    for (Side const side : kSides) {
      std::vector<double>& of_side = left_out[static_cast<int>(side)];
      std::ranges::transform(tiles_.left_out[static_cast<int>(side)], data_.weight(side), std::back_inserter(of_side),
                             [](double part, double weight) { return weight > 0 ? weight * part : 0; });
    }
  }
  PlanSums const sums = plan_sums(data_, eps, stripes_, logits_, column_sums_);
  tiles_ = {};
  if (row_marginal != nullptr) on_host(*row_marginal).values() = sums.row;
  if (column_marginal != nullptr) on_host(*column_marginal).values() = sums.column;
  auto const values = [&](Side side, std::vector<double> const& marginal) {
    return SideValues{data_.weight(side),
                      marginal,
                      data_.potential(side).values(),
                      data_.costs->shift(side),
                      data_.penalties.of(side),
                      left_out[static_cast<int>(side)]};
  };
  return evaluate_plan(eps, values(Side::rows, sums.row), values(Side::columns, sums.column), sums.centred_cost);
}

template <class T>
std::unique_ptr<monge::PlanOperator> EntropicOperator<T>::plan(double eps, double t) const {
  PlanData<T> data = data_.with_both_potentials();
  for (double& f : data.potential(Side::rows).values()) f += t;
  for (double& g : data.potential(Side::columns).values()) g -= t;
  return std::make_unique<PlanOperator<T>>(std::move(data), eps, workers_, cache_bytes_);
}

template class EntropicOperator<float>;
template class EntropicOperator<double>;

}  // namespace monge::cpu
