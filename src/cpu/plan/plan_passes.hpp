// Data of products onto one side, and the passes that plan_operator.cpp and plan_points.cpp share.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/numbers.hpp"
#include "core/strided.hpp"
#include "cpu/plan/plan_operator.hpp"
#include "plan/concentration.hpp"

namespace monge::cpu {

/// A power of two near `largest`; numbers divided by it fit in float. For 0 the unit is so small that the starting
/// values of sums in the kernels vanish.
inline double unit_near(double largest) {
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
  pack(MatrixView(scaled.data(), points.rows(), points.columns()), {}, packed);
}

/// Concentration::exceeds() from this number on. A share is then held to 2^-65 (float) or 2^-221 (double) of the mean.
template <class T>
inline constexpr double kReach = sizeof(T) == 4 ? 0x1p60 : 0x1p800;

template <class T>
struct PlanOperator<T>::Products {
  /// `tiles`: the tiles that passes of an ordered problem take; null: all.
  Products(PlanData<T> const& data, Side side, double eps, Team const& team, double cache_bytes, TileList const* tiles)
      : stripes(*data.costs, side, team, cache_bytes, tiles != nullptr ? PassOver::listed : PassOver::all),
        logits(data.costs->size(opposite(side))),
        lse(side, data.costs->size(side)),
        share_unit(side, data.costs->size(side)),
        marginal(side, data.costs->size(side)),
        bounds(to_size(padded_to_panel<T>(data.costs->size(side)))),
        column_sums(data.costs->size(opposite(side)), team),
        total_weights(to_size(team.size)) {
    logits.set(data, opposite(side), data.potential(opposite(side)), eps);
    if (tiles != nullptr) stripes.use(*tiles);
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

}  // namespace monge::cpu
