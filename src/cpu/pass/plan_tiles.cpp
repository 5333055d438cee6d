#include "cpu/pass/plan_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/numbers.hpp"
#include "cpu/pass/stripes.hpp"

namespace monge::cpu {
namespace {

/// Tiles whose sum stands for the whole sum of a row before its tiles are known: those around a tile in few dimensions.
std::int64_t tiles_nearby(std::int64_t dimension) {
  constexpr std::int64_t kFewest = 8, kMost = 48, kFewDimensions = 5;
  return dimension <= kFewDimensions ? std::max(kFewest, std::int64_t{1} << dimension) : kMost;
}

/// -eps log sum_j weight_j exp((potential_j - C'_ij) / eps) over the listed tiles, for all points i of `side`. Never
/// below the sum over all.
template <class T>
std::vector<double> softmin_over(TileList const& tiles, PlanData<T> const& data, Side side, HostVector const& potential,
                                 double eps, Workers const& workers) {
  std::int64_t const n = data.costs->size(side), m = data.costs->size(opposite(side));
  Logits<T> logits(m);
  logits.set(data, opposite(side), potential, eps);
  double const pairs = static_cast<double>(tiles.tile.size() * kTilePoints);  // For each row of a tile.
  Team const team(workers, kTilePoints, static_cast<std::int64_t>(pairs));
  Stripes<T> stripes(*data.costs, side, team, 0, PassOver::listed);
  stripes.use(tiles);
  std::vector<double> result(to_size(n));
  stripes.for_each(logits, {}, [&](int, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
    for (std::int64_t r = 0; r < count; ++r)
      result[to_size(first + r)] = data.costs->norm(side)[to_size(first + r)] - eps * kLn2 * work.lse(r);
  });
  stripes.share({of_rows(result.data())});
  return result;
}

/// The models of one side at an eps.
class SideModels {
 public:
  SideModels(Ordering const& ordering, Side side, double eps, int threads)
      : boxes_(ordering.of(side).boxes),
        unit_(std::sqrt(ordering.scale * kLog2e / eps)),
        log_unit_(kLog2e / eps),
        threads_(threads) {}

  double log_unit() const { return log_unit_; }
  TileModels operator()(std::vector<double> const& potential, std::span<double const> weights) const {
    std::vector<double> logits(potential.size());
    std::ranges::transform(potential, logits.begin(), [&](double value) { return value * log_unit_; });
    return TileModels(boxes_, logits, weights, unit_, threads_);
  }

 private:
  TileBoxes const& boxes_;
  double unit_, log_unit_;
  int threads_;
};

/// What the labels of two points add to a logit, as passes read them: `unit` is the logit of a cost of 1.
template <class T>
LabelLogits label_logits(Costs<T> const& costs, Side rows, double unit) {
  LabelTable<T> const table = costs.scores(rows).labels;
  if (table.table == nullptr) return {};
  LabelLogits result{.columns = table.row_stride};
  for (std::int64_t e = 0; e < table.size; ++e) {
    double const logit = -unit * costs.factor() * static_cast<double>(table.table[e]);
    result.add(logit + kModelRounding * std::abs(logit));
  }
  return result;
}

/// The tiles that the sums of one side need: rows are its points.
template <class T>
struct Needed {
  Needed(PlanData<T> const& data, Side side, HostVector const& own, HostVector const& other, double eps,
         Workers const& workers) {
    Ordering const& ordering = *data.ordering;
    SideModels const of_side(ordering, side, eps, workers.threads);
    SideModels const of_other(ordering, opposite(side), eps, workers.threads);
    TileModels const columns = of_other(other.values(), data.weight(opposite(side)));
    std::int64_t const count = tiles_nearby(ordering.of(side).boxes.dimension());
    LabelLogits const labels = label_logits(*data.costs, side, of_side.log_unit());
    TileList const near = nearest({of_side(own.values(), {}), columns, labels}, count, workers.threads);
    transform = softmin_over(near, data, side, other, eps, workers);
    found = reach({of_side(transform, {}), columns, labels}, ordering.truncation, workers.threads);
  }

  std::vector<double> transform;  // An upper bound of that of `other`.
  TileReach found;
};

}  // namespace

template <class T>
OrderedSide ordered_side(std::shared_ptr<PointOrder const> order, PackedPoints<T> const& points,
                         std::span<std::int64_t const> labels) {
  auto const coordinate = [&points](std::int64_t place, std::int64_t k) -> double {
    return points.coordinate(place, k);
  };
  return {std::move(order), TileBoxes(points.size, points.dimension, coordinate, labels)};
}

namespace {

/// The tiles that either side needs, for the rows.
CountedList joint_tiles(TileList of_rows, TileList of_columns) {
  CountedList const rows(std::move(of_rows));
  CountedList columns(std::move(of_columns));
  columns = CountedList(transposed(*columns, (*rows).tiles()));
  return CountedList(joined(*rows, *columns));
}

}  // namespace

template <class T>
PlanTiles plan_tiles(PlanData<T> const& data, double eps, Workers const& workers) {
  HostVector const &f = data.potential(Side::rows), &g = data.potential(Side::columns);
  Needed<T> rows(data, Side::rows, f, g, eps, workers), columns(data, Side::columns, g, f, eps, workers);
  std::vector<double> left_out[2];
  for (Side const side : kSides) {
    Needed<T> const& needed = side == Side::rows ? rows : columns;
    std::vector<double> const& potential = data.potential(side).values();
    for (std::size_t i = 0; i < potential.size(); ++i)
      left_out[static_cast<int>(side)].push_back(needed.found.left_out[i / to_size(kTilePoints)] *
                                                 std::exp((potential[i] - needed.transform[i]) / eps));
  }
  return {joint_tiles(std::move(rows.found.list), std::move(columns.found.list)),
          {std::move(left_out[0]), std::move(left_out[1])}};
}

template <class T>
PlanTiles sweep_tiles(PlanData<T> const& data, double eps, Workers const& workers, NextPotential const& next) {
  HostVector const &f = data.potential(Side::rows), &g = data.potential(Side::columns);
  Needed<T> rows(data, Side::rows, f, g, eps, workers);
  HostVector used = f;
  for (std::int64_t i = 0; i < used.size(); ++i) used[i] = next(i, f[i], rows.transform[to_size(i)]);
  Needed<T> columns(data, Side::columns, g, used, eps, workers);
  return {joint_tiles(std::move(rows.found.list), std::move(columns.found.list)), {}};
}

template <class T>
CountedList transform_tiles(PlanData<T> const& data, Side side, double eps, Workers const& workers) {
  Needed<T> rows(data, side, data.potential(side), data.potential(opposite(side)), eps, workers);
  return CountedList(std::move(rows.found.list));
}

template <class T>
PassParts<T>::PassParts(PlanData<T> const& data, TileList const& tiles, Logits<T> const& logits)
    : tiles_(tiles),
      row_weight_(data.weight(Side::rows)),
      column_weight_(data.weight(Side::columns)),
      factor_(to_size(padded_to_panel<T>(std::ssize(column_weight_)))),
      share_(data.ordering->truncation),
      bytes_(memory(), 2 * std::ssize(tiles.tile)) {
  for (std::size_t j = 0; j < column_weight_.size(); ++j) {
    if (column_weight_[j] > 0) factor_[j] = data.mass() * static_cast<double>(logits.beta[j]) / column_weight_[j];
  }
  parts_.of_rows.resize(tiles.tile.size());
  parts_.of_columns.resize(tiles.tile.size());
}

template <class T>
void PassParts<T>::add_to_columns(Workspace<T> const& work, std::int64_t first, std::int64_t count,
                                  double const* column_weight, double* sums) {
  std::size_t const tile = to_size(first / kTilePoints), begin = to_size(tiles_.begin[tile]);
  std::size_t const tiles = to_size(tiles_.begin[tile + 1]) - begin;
  double factor[kMaxStripeRows];
  for (std::int64_t r = 0; r < count; ++r)
    factor[r] = row_weight_[to_size(first + r)] > 0 ? 1 / work.row_sum[to_size(r)] : 0;
  std::vector<double> of_rows(tiles), of_columns(tiles);
  TileMeasure const measure{factor, factor_.data(), of_rows.data(), of_columns.data()};
  cpu::add_to_columns(work.args, count, column_weight, 1.0, sums, &measure);
  double const top = std::log2(share_);
  for (std::size_t k = 0; k < tiles; ++k) {
    parts_.of_rows[begin + k] = static_cast<unsigned char>(bin_of_bound(std::log2(of_rows[k]), top));
    parts_.of_columns[begin + k] = static_cast<unsigned char>(bin_of_bound(std::log2(of_columns[k]), top));
  }
}

template <class T>
TileList PassParts<T>::thinned(double const* column_sums) const {
  TileTree const columns(std::ssize(column_weight_));
  std::vector<double> room(to_size(columns.tiles()));
  for (std::int64_t tile = 0; tile < columns.tiles(); ++tile) {
    double least = kInfinity;
    for (std::int64_t j = columns.first_point(0, tile); j < columns.first_point(0, tile + 1); ++j) {
      if (column_weight_[to_size(j)] > 0) least = std::min(least, factor_[to_size(j)] * column_sums[j]);
    }
    room[to_size(tile)] = share_ * least;
  }
  return monge::thinned(tiles_, parts_, share_, room);
}

TileList upper_tiles(TileList const& tiles) {
  TileList upper;
  for (std::int64_t row = 0; row < tiles.tiles(); ++row) {
    std::span<std::int32_t const> const all = tiles.of(row);
    auto const first = std::ranges::lower_bound(all, row);
    upper.tile.insert(upper.tile.end(), first, all.end());
    upper.begin.push_back(static_cast<std::int64_t>(upper.tile.size()));
  }
  return upper;
}

#define MONGE_INSTANTIATE(T)                                                                        \
  template class PassParts<T>;                                                                      \
  template OrderedSide ordered_side(std::shared_ptr<PointOrder const>, PackedPoints<T> const&,      \
                                    std::span<std::int64_t const>);                                 \
  template PlanTiles plan_tiles(PlanData<T> const&, double, Workers const&);                        \
  template PlanTiles sweep_tiles(PlanData<T> const&, double, Workers const&, NextPotential const&); \
  template CountedList transform_tiles(PlanData<T> const&, Side, double, Workers const&);
MONGE_INSTANTIATE(float)
MONGE_INSTANTIATE(double)
#undef MONGE_INSTANTIATE

}  // namespace monge::cpu
