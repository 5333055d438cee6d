#include "cpu/point_cloud_operator.hpp"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <numeric>

#include <monge/error.hpp>

#include "core/evaluation.hpp"
#include "core/points.hpp"
#include "core/strided.hpp"
#include "operators/relaxed_step.hpp"

namespace monge::cpu {
namespace {

constexpr double kHuge = 1e30;  // Potentials of a stray warm start can exceed what float holds.
constexpr double kLog2e = std::numbers::log2e;
constexpr double kLn2 = std::numbers::ln2;
/// Up to this dimension exact differences cost no more than the exponential does and lose no digits to cancellation.
constexpr std::int64_t kLargestDifferenceDimension = 8;
/// From this dimension on, reading a kept score is cheaper than computing it (docs/tuning.md).
constexpr std::int64_t kSmallestCachedDimension = 32;
/// A stripe should stay in L2 with room for the panels that stream past it; more rows mean fewer passes over the
/// panels, which matters where their coordinates outweigh the logits.
constexpr std::int64_t kStripeBytes = 1 << 20;
constexpr std::int64_t kSmallestTallDimension = 32;
constexpr std::int64_t kShortStripe = 16;

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// Below this a column sum may owe its digits to exponentials that should have been smaller than T holds: each of the
/// `rows` terms w E is off by at most the smallest normal number, times w where E was held up at it.
template <class T>
double smallest_trusted_sum(std::int64_t rows, double total_weight) {
  return std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon() * (static_cast<double>(rows) + total_weight);
}

/// How many powers of two the bounds of a sweep may be above what they bound: far from the 126 of float.
constexpr double kLoosestBound = 32;

/// Below this many pairs (some 40 us) a thread has not much more to do than starting and joining a team costs.
constexpr double kPairsPerThread = 1 << 17;

int useful_threads(int threads, std::int64_t n, std::int64_t m) {
  double const pairs = static_cast<double>(n) * static_cast<double>(m);
  return static_cast<int>(std::clamp(pairs / kPairsPerThread, 1.0, static_cast<double>(threads)));
}

AlignedArray<double> zeros(std::int64_t size) {
  AlignedArray<double> array = aligned_array<double>(size);
  std::fill_n(array.get(), size, 0.0);
  return array;
}

}  // namespace

template <class T>
struct PointCloudOperator<T>::Logits {
  AlignedArray<T> h, beta, log2_weight;
  std::vector<double> bias;  // What h and beta hold, and offset, in float64.
  T multiplier;
  double offset;  // Taken from every h before rounding: a constant of the potential must not cost digits.
};

template <class T>
struct PointCloudOperator<T>::Workspace {
  AlignedArray<T> stripe;
  AlignedArray<T> row_scratch;
  std::vector<double> block_scale, row_max, row_sum, row_moment;
  StripeArgs<T> args;  // Of the stripe at hand.

  Workspace(std::int64_t rows, std::int64_t columns, std::int64_t dimension)
      : stripe(aligned_array<T>(rows * padded_to_panel<T>(columns))),
        row_scratch(aligned_array<T>(rows * dimension)),
        block_scale(index(rows * column_blocks<T>(columns))),
        row_max(index(rows)),
        row_sum(index(rows)),
        row_moment(index(rows)) {}
  /// Base-2 logarithm of the row's sum over all columns, b_j included.
  double lse(std::int64_t r) const { return row_max[index(r)] + std::log2(row_sum[index(r)]); }
};

template <class T>
PointCloudOperator<T>::PointCloudOperator(PointCloud const& geometry, std::vector<double> const& a,
                                          std::vector<double> const& b, int threads, double cache_bytes)
    : EntropicOperator(geometry.x.rows(), geometry.y.rows()),
      scale_(geometry.scale),
      most_threads_(threads),
      threads_(useful_threads(threads, geometry.x.rows(), geometry.y.rows())) {
  cloud(Side::rows).points = std::make_shared<PackedCloud<T>>(pack<T>(geometry.x, centre_of("x", geometry.x, a)));
  cloud(Side::columns).points = std::make_shared<PackedCloud<T>>(pack<T>(geometry.y, centre_of("y", geometry.y, b)));
  set_weight(cloud(Side::rows), a);
  set_weight(cloud(Side::columns), b);
  mass_ = std::accumulate(a.begin(), a.end(), 0.0);
  for (Side side : {Side::rows, Side::columns}) {
    cloud(side).potential.assign(index(size(side)), 0.0);
    cloud(side).shift = shift_of(side, side == Side::rows ? geometry.x : geometry.y);
  }

  std::int64_t const kept = padded_to_panel<T>(size(Side::rows)) * padded_to_panel<T>(size(Side::columns));
  if (geometry.x.columns() >= kSmallestCachedDimension && static_cast<double>(kept) * sizeof(T) <= cache_bytes) {
    scores_ = aligned_array<T>(kept);
  }
}

template <class T>
void PointCloudOperator<T>::set_weight(Cloud& cloud, std::vector<double> weight) {
  cloud.log2_weight.resize(weight.size());
  std::transform(weight.begin(), weight.end(), cloud.log2_weight.begin(), [](double w) { return std::log2(w); });
  cloud.weight = std::move(weight);
}

template <class T>
bool PointCloudOperator<T>::differences() const {
  return cloud(Side::rows).points->dimension <= kLargestDifferenceDimension;
}

/// s |x'_i|^2, the part of the cost that the product form leaves out of its scores.
template <class T>
double PointCloudOperator<T>::norm_term(PackedCloud<T> const& points, std::size_t i) const {
  return differences() ? 0.0 : scale_ * points.squared_norms[i];
}

/// C_ij = C'_ij + s (2 <x'_i, w> + |w|^2) - 2 s <y'_j, w>, w the difference of the centres: the shift of one side.
template <class T>
std::vector<double> PointCloudOperator<T>::shift_of(Side side, MatrixView points) const {
  std::vector<double> const& mu = cloud(Side::rows).points->centre;
  std::vector<double> const& nu = cloud(Side::columns).points->centre;
  std::vector<double> w(mu.size());
  std::transform(mu.begin(), mu.end(), nu.begin(), w.begin(), std::minus<>());
  std::vector<double> shift = centred_products(points, side == Side::rows ? mu : nu, w);
  double const factor = side == Side::rows ? 2 * scale_ : -2 * scale_;
  double const constant = side == Side::rows ? scale_ * std::inner_product(w.begin(), w.end(), w.begin(), 0.0) : 0.0;
  for (double& value : shift) value = factor * value + constant;
  return shift;
}

template <class T>
double PointCloudOperator<T>::largest_cost() const {
  double const reach = std::sqrt(cloud(Side::rows).points->largest_squared_norm) +
                       std::sqrt(cloud(Side::columns).points->largest_squared_norm);
  return scale_ * reach * reach;
}

template <class T>
void PointCloudOperator<T>::set_potentials(VectorView f, VectorView g) {
  last_ = {};
  for (Side side : {Side::rows, Side::columns}) {
    VectorView const view = side == Side::rows ? f : g;
    Cloud& target = cloud(side);
    for (std::size_t i = 0; i < target.potential.size(); ++i) target.potential[i] = -target.shift[i];
    if (view.empty()) continue;
    with_data(view, [&](auto const* data) {
      for (std::int64_t i = 0; i < view.size(); ++i) target.potential[index(i)] += data[i * view.stride()];
    });
  }
}

template <class T>
void PointCloudOperator<T>::get_potentials(MutableVectorView f, MutableVectorView g) const {
  for (Side side : {Side::rows, Side::columns}) {
    Cloud const& source = cloud(side);
    std::vector<double> potential = source.potential;
    // Points of no weight take no part in sweeps; theirs is the soft c-transform of the other side.
    std::vector<std::int64_t> idle;
    for (std::size_t i = 0; i < source.weight.size(); ++i) {
      if (source.weight[i] == 0) idle.push_back(static_cast<std::int64_t>(i));
    }
    if (last_.eps > 0 && !idle.empty()) {
      std::vector<double> const transform =
          softmin_of(gather(*source.points, idle), opposite(side), cloud(opposite(side)).potential, last_.eps);
      for (std::size_t k = 0; k < idle.size(); ++k) potential[index(idle[k])] = transform[k];
    }
    write_vector(side == Side::rows ? f : g,
                 [&](std::int64_t i) { return potential[index(i)] + source.shift[index(i)]; });
  }
}

template <class T>
typename PointCloudOperator<T>::Logits PointCloudOperator<T>::logits_of(Side columns,
                                                                        std::vector<double> const& potential,
                                                                        double eps) const {
  Cloud const& source = cloud(columns);
  std::int64_t const size = source.points->size;
  std::int64_t const padded = padded_to_panel<T>(size);
  Logits logits{aligned_array<T>(padded),
                aligned_array<T>(padded),
                aligned_array<T>(padded),
                std::vector<double>(index(size), -kHuge),
                static_cast<T>((differences() ? -1.0 : 2.0) * scale_ * kLog2e / eps),
                -kHuge};
  std::vector<double>& bias = logits.bias;
  for (std::size_t j = 0; j < bias.size(); ++j) {
    if (source.weight[j] == 0) continue;
    bias[j] = source.log2_weight[j] + (potential[j] - norm_term(*source.points, j)) * (kLog2e / eps);
    bias[j] = std::clamp(bias[j], -kHuge, kHuge);
    logits.offset = std::max(logits.offset, bias[j]);
  }
  for (std::int64_t j = 0; j < padded; ++j) {
    if (j >= size || source.weight[index(j)] == 0) {
      logits.h[j] = kNoWeight<T>;
      logits.beta[j] = 0;
      logits.log2_weight[j] = 0;
      continue;
    }
    double const h = bias[index(j)] - logits.offset;
    logits.h[j] = static_cast<T>(h);
    // Where a unit of T exceeds 2 the logits are noise already; beta must not overflow on top of it.
    double const remainder = std::clamp(h - static_cast<double>(logits.h[j]), -1.0, 1.0);
    logits.beta[j] = std::exp2(static_cast<T>(remainder));
    logits.log2_weight[j] = static_cast<T>(source.log2_weight[index(j)]);
  }
  return logits;
}

template <class T>
std::int64_t PointCloudOperator<T>::stripe_rows(std::int64_t rows, std::int64_t padded_columns) const {
  if (cloud(Side::rows).points->dimension < kSmallestTallDimension) return kShortStripe;
  std::int64_t const fitting = kStripeBytes / (padded_columns * static_cast<std::int64_t>(sizeof(T)));
  std::int64_t const fair = (rows + threads_ - 1) / threads_ + kRowGroup - 1;
  return std::clamp(std::min(fitting, fair) / kRowGroup * kRowGroup, kRowGroup, kMaxStripeRows);
}

/// A number for each row that its logits stay below: none was above the row's sum in the last sweep, and none has risen
/// by more than the bias of its column has. Empty where there was no such sweep, or the bounds would be too loose or
/// the logits too large for it; the pass then finds the maxima itself.
template <class T>
std::vector<double> PointCloudOperator<T>::row_bounds(Logits const& logits, double eps) const {
  if (last_.eps != eps) return {};
  double rise = -kHuge, fall = kHuge, largest = 0;
  for (std::size_t j = 0; j < logits.bias.size(); ++j) {
    if (cloud(Side::columns).weight[j] == 0) continue;
    double const change = logits.bias[j] - last_.column_bias[j];
    rise = std::max(rise, change);
    fall = std::min(fall, change);
    largest = std::max(largest, std::abs(logits.bias[j] - logits.offset));
  }
  if (!(rise - fall <= kLoosestBound)) return {};
  std::vector<double> bounds(index(padded_to_panel<T>(size(Side::rows))));
  for (std::size_t i = 0; i < last_.row_lse.size(); ++i) {
    bounds[i] = last_.row_lse[i] + rise - logits.offset;
    largest = std::max(largest, std::abs(bounds[i]));
  }
  if (!(largest < kLargestBound<T>)) return {};
  return bounds;
}

/// Calls consume(thread, workspace, first_row, row_count) with E in the workspace's stripe, rows in order within a
/// thread, a contiguous share of the rows to each: sums grouped by thread come out the same on every run.
template <class T>
template <class Consume>
void PointCloudOperator<T>::for_each_stripe(PackedCloud<T> const& rows, Side columns, Logits const& logits,
                                            std::vector<double> const& bounds, bool moments, Consume&& consume) const {
  PackedCloud<T> const& other = *cloud(columns).points;
  std::int64_t const padded = padded_to_panel<T>(other.size);
  std::int64_t const height = stripe_rows(rows.size, padded);
  std::int64_t const stripes = (rows.size + height - 1) / height;
  // Only the operator's own rows have kept scores: gathered or new points do not.
  bool const keep = scores_ && &rows == cloud(Side::rows).points.get() && columns == Side::columns;
  std::vector<Workspace> workspaces;  // allocated here: nothing may throw among the threads
  workspaces.reserve(index(threads_));
  for (int thread = 0; thread < threads_; ++thread) workspaces.emplace_back(height, other.size, rows.dimension);

#pragma omp parallel num_threads(threads_)
  {
    int const thread = omp_get_thread_num();
    int const team = omp_get_num_threads();
    Workspace& work = workspaces[index(thread)];
    for (std::int64_t s = stripes * thread / team; s < stripes * (thread + 1) / team; ++s) {
      std::int64_t const first = s * height;
      std::int64_t const count = std::min(height, rows.size - first);
      work.args = {
          .rows = &rows,
          .columns = &other,
          .h = logits.h.get(),
          .beta = logits.beta.get(),
          .log2_weight = logits.log2_weight.get(),
          .multiplier = logits.multiplier,
          .differences = differences(),
          .first_row = first,
          .row_count = (count + kRowGroup - 1) / kRowGroup * kRowGroup,
          .bound = bounds.empty() ? nullptr : bounds.data() + first,
          .scores = keep ? scores_.get() + first * padded : nullptr,
          .scores_ready = scores_ready_,
          .stripe = work.stripe.get(),
          .block_scale = work.block_scale.data(),
          .row_scratch = work.row_scratch.get(),
      };
      exponentiate_rows(work.args, work.row_max.data(), work.row_sum.data(),
                        moments ? work.row_moment.data() : nullptr);
      for (std::int64_t r = 0; r < count; ++r) {
        work.row_max[index(r)] += logits.offset;
        if (moments) work.row_moment[index(r)] += logits.offset * work.row_sum[index(r)];
      }
      consume(thread, work, first, count);
    }
  }
  if (keep) scores_ready_ = true;
}

/// -eps log sum_j weight_j exp((potential_j - C'_ij) / eps) for the rows given, in the centred gauge.
template <class T>
std::vector<double> PointCloudOperator<T>::softmin_of(PackedCloud<T> const& rows, Side columns,
                                                      std::vector<double> const& potential, double eps) const {
  std::vector<double> result(index(rows.size));
  for_each_stripe(rows, columns, logits_of(columns, potential, eps), {}, false,
                  [&](int, Workspace const& work, std::int64_t first, std::int64_t count) {
                    for (std::int64_t r = 0; r < count; ++r) {
                      result[index(first + r)] = norm_term(rows, index(first + r)) - eps * kLn2 * work.lse(r);
                    }
                  });
  return result;
}

template <class T>
void PointCloudOperator<T>::sweep(Sweep const& sweep, int count) {
  for (int k = 0; k < count; ++k) one_sweep(sweep);
}

/// One pass: a stripe's rows give f, and its exponentials, weighted with the new f (alternating) or the old one
/// (symmetric), add to the columns.
template <class T>
void PointCloudOperator<T>::one_sweep(Sweep const& sweep) {
  double const eps = sweep.eps;
  Cloud& rows = cloud(Side::rows);
  std::int64_t const padded = padded_to_panel<T>(size(Side::columns));
  Logits logits = logits_of(Side::columns, cloud(Side::columns).potential, eps);
  std::vector<double> const bounds = row_bounds(logits, eps);
  std::vector<double> f_next(rows.potential.size()), row_lse(rows.potential.size());
  std::vector<double> row_errors(index(threads_), 0.0);
  std::vector<double> total_weights(index(threads_), 0.0);
  AlignedArray<double> column_sums = zeros(threads_ * padded);

  for_each_stripe(*rows.points, Side::columns, logits, bounds, false,
                  [&](int thread, Workspace const& work, std::int64_t first, std::int64_t count) {
                    double weight[kMaxStripeRows];
                    for (std::int64_t r = 0; r < count; ++r) {
                      std::size_t const i = index(first + r);
                      double const norm = norm_term(*rows.points, i);
                      row_lse[i] = work.lse(r);
                      double const plus = norm - eps * kLn2 * row_lse[i];
                      double const u = (plus - rows.potential[i]) / eps;
                      if (rows.weight[i] > 0) row_errors[index(thread)] += rows.weight[i] * std::abs(std::expm1(-u));
                      f_next[i] = sweep.symmetric ? 0.5 * (rows.potential[i] + plus)
                                                  : rows.potential[i] + safe_relaxation(u, sweep.relaxation) *
                                                                            (plus - rows.potential[i]);
                      double const f_used = sweep.symmetric ? rows.potential[i] : f_next[i];
                      // A stray potential must not put an infinity into the sums: with such a row no sum is trusted.
                      double const exponent = work.row_max[index(r)] + (f_used - norm) * (kLog2e / eps);
                      double const factor = rows.weight[i] > 0 ? rows.weight[i] / mass_ * std::exp2(exponent) : 0.0;
                      weight[r] = exponent < 100 ? factor : 0.0;
                      total_weights[index(thread)] += exponent < 100 ? factor : std::numeric_limits<double>::infinity();
                    }
                    add_to_columns(work.args, count, weight, column_sums.get() + thread * padded);
                  });

  for (int thread = 1; thread < threads_; ++thread) {
    for (std::int64_t j = 0; j < padded; ++j) column_sums[j] += column_sums[thread * padded + j];
  }
  errors_.row = std::accumulate(row_errors.begin(), row_errors.end(), 0.0);
  double const total_weight = std::accumulate(total_weights.begin(), total_weights.end(), 0.0);
  update_columns(sweep, logits, sweep.symmetric ? rows.potential : f_next, column_sums.get(),
                 smallest_trusted_sum<T>(size(Side::rows), total_weight));
  rows.potential = std::move(f_next);
  last_ = {eps, std::move(logits.bias), std::move(row_lse)};
}

/// g+ = g - eps log(c_j / b_j) from the column sums of the plan; c_j = mass beta_j column_sums_j.
template <class T>
void PointCloudOperator<T>::update_columns(Sweep const& sweep, Logits const& logits, std::vector<double> const& f_used,
                                           double const* column_sums, double smallest_trusted) {
  double const eps = sweep.eps;
  Cloud& columns = cloud(Side::columns);
  std::vector<double> plus(columns.potential.size());
  std::vector<std::int64_t> lost;
  for (std::size_t j = 0; j < plus.size(); ++j) {
    if (columns.weight[j] == 0) continue;
    if (column_sums[j] > smallest_trusted) {
      double const marginal = mass_ * static_cast<double>(logits.beta[j]) * column_sums[j];
      plus[j] = columns.potential[j] - eps * std::log(marginal / columns.weight[j]);
    } else {
      lost.push_back(static_cast<std::int64_t>(j));
    }
  }
  if (!lost.empty()) {
    std::vector<double> const exact = softmin_of(gather(*columns.points, lost), Side::rows, f_used, eps);
    for (std::size_t k = 0; k < lost.size(); ++k) plus[index(lost[k])] = exact[k];
  }
  errors_.column = 0;
  for (std::size_t j = 0; j < plus.size(); ++j) {
    if (columns.weight[j] == 0) continue;
    double const step = plus[j] - columns.potential[j];
    double const u = step / eps;
    errors_.column += columns.weight[j] * std::abs(std::expm1(-u));
    columns.potential[j] += sweep.symmetric ? 0.5 * step : safe_relaxation(u, sweep.relaxation) * step;
  }
}

template <class T>
typename PointCloudOperator<T>::Marginals PointCloudOperator<T>::marginals_of(double eps) const {
  Cloud const& rows = cloud(Side::rows);
  Cloud const& columns = cloud(Side::columns);
  std::int64_t const padded = padded_to_panel<T>(size(Side::columns));
  Logits const logits = logits_of(Side::columns, columns.potential, eps);
  Marginals result{std::vector<double>(rows.potential.size()), std::vector<double>(columns.potential.size()), 0.0};
  std::vector<double> row_cost(rows.potential.size());
  AlignedArray<double> column_sums = zeros(threads_ * padded);
  for_each_stripe(*rows.points, Side::columns, logits, {}, true,
                  [&](int thread, Workspace const& work, std::int64_t first, std::int64_t count) {
                    double weight[kMaxStripeRows];
                    for (std::int64_t r = 0; r < count; ++r) {
                      std::size_t const i = index(first + r);
                      double const norm = norm_term(*rows.points, i);
                      double const factor = rows.weight[i] * std::exp2(work.row_max[index(r)] +
                                                                       (rows.potential[i] - norm) * (kLog2e / eps));
                      result.row[i] = rows.weight[i] > 0 ? factor * work.row_sum[index(r)] : 0.0;
                      // C'_ij = norm_i + g'_j - eps ln2 (t_ij - log2 b_j); the sum over g'_j follows from the columns
                      row_cost[i] = rows.weight[i] > 0
                                        ? norm * result.row[i] - eps * kLn2 * factor * work.row_moment[index(r)]
                                        : 0.0;
                      weight[r] = factor / mass_;
                    }
                    add_to_columns(work.args, count, weight, column_sums.get() + thread * padded);
                  });
  for (std::int64_t j = 0; j < size(Side::columns); ++j) {
    double sum = 0;
    for (int thread = 0; thread < threads_; ++thread) sum += column_sums[thread * padded + j];
    result.column[index(j)] = mass_ * static_cast<double>(logits.beta[j]) * sum;
    result.weighted_cost += result.column[index(j)] * columns.potential[index(j)];
  }
  result.weighted_cost += std::accumulate(row_cost.begin(), row_cost.end(), 0.0);
  return result;
}

template <class T>
Evaluation PointCloudOperator<T>::evaluate(double eps) {
  Marginals const marginals = marginals_of(eps);
  Cloud const& rows = cloud(Side::rows);
  Cloud const& columns = cloud(Side::columns);
  return evaluate_plan(eps, {rows.weight, marginals.row, rows.potential, rows.shift},
                       {columns.weight, marginals.column, columns.potential, columns.shift}, marginals.weighted_cost);
}

template <class T>
void PointCloudOperator<T>::marginals(double eps, MutableVectorView row, MutableVectorView column) {
  Marginals const marginals = marginals_of(eps);
  write_vector(row, [&](std::int64_t i) { return marginals.row[index(i)]; });
  write_vector(column, [&](std::int64_t j) { return marginals.column[index(j)]; });
}

template <class T>
void PointCloudOperator<T>::softmin(Side side, double eps, MutableVectorView out) {
  Cloud const& target = cloud(side);
  std::vector<double> const result = softmin_of(*target.points, opposite(side), cloud(opposite(side)).potential, eps);
  write_vector(out, [&](std::int64_t i) { return result[index(i)] + target.shift[index(i)]; });
}

template <class T>
void PointCloudOperator<T>::average(Side side, double eps, MatrixView v, MutableMatrixView out, bool normalized) {
  Side const other = opposite(side);
  Cloud const& rows = cloud(side);
  PackedCloud<T> const& points = *cloud(other).points;
  bool const own_points = v.data() == nullptr;
  std::int64_t const width = own_points ? points.dimension : v.columns();
  std::int64_t const padded_width = padded_to_panel<T>(width);
  std::int64_t const padded = padded_to_panel<T>(points.size);
  Logits const logits = logits_of(other, cloud(other).potential, eps);

  // beta_j V_j, padded with zeros. Centred points are averaged and the centre is added afterwards: no digits lost to
  // it.
  AlignedArray<T> values = aligned_array<T>(points.size * padded_width);
  std::fill_n(values.get(), points.size * padded_width, T(0));
  auto const fill = [&](auto&& value) {
    for (std::int64_t j = 0; j < points.size; ++j) {
      for (std::int64_t p = 0; p < width; ++p) {
        values[j * padded_width + p] =
            static_cast<T>(static_cast<double>(logits.beta[j]) * static_cast<double>(value(j, p)));
      }
    }
  };
  if (own_points) {
    fill([&](std::int64_t j, std::int64_t p) { return points.coordinate(j, p); });
  } else {
    with_data(v, [&](auto const* data) {
      fill([&](std::int64_t j, std::int64_t p) { return data[j * v.row_stride() + p]; });
    });
  }
  std::int64_t const height = stripe_rows(rows.points->size, padded);
  std::vector<std::vector<double>> sums(index(threads_), std::vector<double>(index(height * padded_width)));
  for_each_stripe(
      *rows.points, other, logits, {}, false,
      [&](int thread, Workspace const& work, std::int64_t first, std::int64_t count) {
        std::vector<double>& sum = sums[index(thread)];
        average_rows(work.args, values.get(), padded_width, sum.data());
        with_data(out, [&](auto* data) {
          using Out = std::remove_pointer_t<decltype(data)>;
          for (std::int64_t r = 0; r < count; ++r) {
            std::size_t const i = index(first + r);
            // P_ij = marginal_i w_ij, w the softmax; marginal_i = a_i exp((f_i - f+_i) / eps)
            double const marginal =
                normalized ? 1.0
                : rows.weight[i] == 0
                    ? 0.0
                    : rows.weight[i] *
                          std::exp2(work.lse(r) + (rows.potential[i] - norm_term(*rows.points, i)) * (kLog2e / eps));
            for (std::int64_t p = 0; p < width; ++p) {
              double const mean = sum[index(r * padded_width + p)] / work.row_sum[index(r)];
              data[(first + r) * out.row_stride() + p] =
                  static_cast<Out>(marginal * (mean + (own_points ? points.centre[index(p)] : 0.0)));
            }
          }
        });
      });
}

template <class T>
std::unique_ptr<EntropicOperator> PointCloudOperator<T>::with_points(Side side, MatrixView points) const {
  std::int64_t const n = side == Side::rows ? points.rows() : size(Side::rows);
  std::int64_t const m = side == Side::columns ? points.rows() : size(Side::columns);
  std::unique_ptr<PointCloudOperator> result(new PointCloudOperator(n, m));
  result->scale_ = scale_;
  result->mass_ = mass_;
  result->threads_ = useful_threads(most_threads_, n, m);
  result->most_threads_ = most_threads_;
  Cloud& fresh = result->cloud(side);
  fresh.points = std::make_shared<PackedCloud<T>>(pack<T>(points, centre_of("points", points, {})));
  set_weight(fresh, std::vector<double>(index(points.rows()), 1.0));
  fresh.potential.assign(index(points.rows()), 0.0);
  Side const other = opposite(side);
  result->cloud(other) = cloud(other);
  fresh.shift = result->shift_of(side, points);
  for (std::size_t i = 0; i < fresh.potential.size(); ++i) fresh.potential[i] = -fresh.shift[i];

  // The centre of one side has moved, and with it the gauge. The other side keeps the user's potential, and its shift
  // follows the move: from the rows it is -2 s <y'_j, w>, from the columns the centre enters |w|^2 too.
  Cloud& kept = result->cloud(other);
  std::vector<double> const& before = cloud(side).points->centre;
  std::vector<double> const& after = fresh.points->centre;
  std::vector<double> const& own = kept.points->centre;
  double constant = 0;
  for (std::size_t k = 0; k < own.size(); ++k) {
    if (other == Side::rows) constant += (before[k] - after[k]) * (2 * own[k] - before[k] - after[k]);
  }
  for (std::int64_t j = 0; j < kept.points->size; ++j) {
    double product = 0;
    for (std::size_t k = 0; k < own.size(); ++k)
      product += (before[k] - after[k]) * kept.points->coordinate(j, static_cast<std::int64_t>(k));
    double const change = scale_ * (2 * product + constant);
    kept.shift[index(j)] += change;
    kept.potential[index(j)] -= change;
  }
  return result;
}

template class PointCloudOperator<float>;
template class PointCloudOperator<double>;

}  // namespace monge::cpu
