#include "cpu/pass/stripes.hpp"

#include <bit>
#include <limits>
#include <memory>
#include <numbers>
#include <numeric>

#include "core/numbers.hpp"
#include "entropic/update_rule.hpp"

namespace monge::cpu {
namespace {

/// From this dimension on, or with labels, reading a kept score is cheaper than computing it, in sweeps and in products
/// (docs/tuning.md). Exponentials are not kept, which would save a quarter of a product.
constexpr std::int64_t kSmallestCachedDimension = 32;
/// A stripe should fit in L2 beside the panels that stream past it. Taller stripes need fewer passes over the panels,
/// which matters if their coordinates outweigh the logits.
constexpr std::int64_t kStripeBytes = 1 << 20;
constexpr std::int64_t kSmallestTallDimension = 32;
constexpr std::int64_t kShortStripe = 16;

/// If the rows of stripes are columns in memory, each line also costs a page walk.
template <class T>
bool lie_across(ScoreSource<T> const& source) {
  return source.form == ScoreForm::stored && source.stored.transposed;
}

template <class T>
double bytes_to_keep(ScoreSource<T> const& source, std::int64_t rows, std::int64_t columns, double most) {
  bool const labelled = source.labels.table != nullptr;
  if (source.dimension() < kSmallestCachedDimension && !labelled && !lie_across(source)) return 0;
  double const needed =
      static_cast<double>(padded_to_panel<T>(rows)) * static_cast<double>(padded_to_panel<T>(columns)) * sizeof(T);
  return needed <= most ? needed : 0;
}

template <class T>
std::int64_t stripe_height(ScoreSource<T> const& source, std::int64_t rows, std::int64_t columns, int threads,
                           bool kept) {
  if (source.form == ScoreForm::stored && !lie_across(source)) return kRowGroup;
  if (source.dimension() < kSmallestTallDimension && (kept || !lie_across(source))) return kShortStripe;
  std::int64_t const fitting = kStripeBytes / (padded_to_panel<T>(columns) * static_cast<std::int64_t>(sizeof(T)));
  std::int64_t const fair = (rows + threads - 1) / threads + kRowGroup - 1;
  std::int64_t const rows_at_most = lie_across(source) ? fair : std::min(fitting, fair);
  return std::clamp(rows_at_most / kRowGroup * kRowGroup, kRowGroup, kMaxStripeRows);
}

}  // namespace

template <class T>
Workspace<T>::Workspace(std::int64_t rows, std::int64_t scratch)
    : row_max(to_size(rows)), row_sum(to_size(rows)), row_moment(to_size(rows)) {
  row_scratch.at_least(rows * scratch);
}

template <class T>
void Workspace<T>::reserve(std::int64_t rows, std::int64_t columns) {
  stripe.at_least(rows * padded_to_panel<T>(columns));
  std::size_t const scales = to_size(rows * column_blocks<T>(columns));
  if (scales > block_scale.size()) block_scale.resize(scales);
}

template <class T>
Stripes<T>::Stripes(Costs<T> const& costs, Side rows, Team const& team, double cache_bytes, PassOver over)
    : source_(costs.scores(rows)),
      rows_(costs.size(rows)),
      columns_(costs.size(opposite(rows))),
      team_(team),
      over_(over),
      kept_bytes_(over == PassOver::listed ? 0 : bytes_to_keep(source_, rows_, columns_, cache_bytes)),
      height_(stripe_height(source_, rows_, columns_, team_.size, kept_bytes_ > 0)) {
  if (is_upper())
    height_ = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(height_)));  // Fills groups.
  if (over_ == PassOver::listed) height_ = kTilePoints;
  workspaces_.reserve(to_size(team_.own));
  for (int thread = 0; thread < team_.own; ++thread) {
    workspaces_.emplace_back(height_, source_.scratch());
    if (over_ != PassOver::listed) workspaces_.back().reserve(height_, columns_);
  }
}

template <class T>
void Stripes<T>::use(TileList const& tiles) {
  tiles_ = &tiles;
  std::int64_t const stripes = tiles.tiles();
  std::int64_t longest = 0;
  for (std::int64_t stripe = 0; stripe < stripes; ++stripe) longest = std::max(longest, std::ssize(tiles.of(stripe)));
  for (Workspace<T>& work : workspaces_) work.reserve(height_, longest * kTilePoints);
  // A stripe takes some time even where its list is short.
  constexpr std::int64_t kTilesOfStripe = 4;
  auto const work_before = [&](std::int64_t stripe) { return tiles.begin[to_size(stripe)] + stripe * kTilesOfStripe; };
  edges_.assign(to_size(team_.size) + 1, stripes);
  std::int64_t stripe = 0;
  for (int thread = 0; thread < team_.size; ++thread) {
    double const wanted = static_cast<double>(work_before(stripes)) * thread / team_.size;
    while (stripe < stripes && static_cast<double>(work_before(stripe)) < wanted) ++stripe;
    edges_[to_size(thread)] = stripe;
  }
}

template <class T>
std::int64_t Stripes<T>::after_group(StripeArgs<T> const& args) const {
  if (args.panels == nullptr) return args.first_column + group();
  std::int64_t const end = first_column(args.first_row) + group();
  std::int64_t column = 0;
  while (column < args.column_count && args.column(column) < end) column += kPanel<T>;
  return column;
}

template <class T>
void Stripes<T>::reserve_scratch(std::int64_t dimension) {
  for (Workspace<T>& work : workspaces_) work.row_scratch.at_least(height_ * dimension);
}

/// The panels of listed tiles.
template <class T>
std::span<std::int32_t const> Stripes<T>::panels_of(std::span<std::int32_t const> tiles, Workspace<T>& work) const {
  constexpr std::int32_t kPanels = kTilePoints / kPanel<T>;
  if constexpr (kPanels == 1) return tiles;
  std::int64_t const end = padded_to_panel<T>(columns_) / kPanel<T>;
  work.panels.clear();
  for (std::int32_t const tile : tiles) {
    for (std::int32_t panel = tile * kPanels; panel < std::min((std::int64_t{tile} + 1) * kPanels, end); ++panel)
      work.panels.push_back(panel);
  }
  return work.panels;
}

template <class T>
void Stripes<T>::exponentiate(Logits<T> const& logits, PassOptions<T> const& options, std::int64_t first,
                              std::int64_t count, Workspace<T>& work) const {
  bool const makes_scores = keeps(options) && !scores_ready_;  // Kernels store scores only in passes without bounds.
  bool const is_listed = tiles_ != nullptr;
  std::span<std::int32_t const> const panels =
      is_listed ? panels_of(tiles_->of(first / height_), work) : std::span<std::int32_t const>();
  work.args = {
      .source = source_,
      .panels = is_listed ? panels.data() : nullptr,
      .column_count = is_listed ? std::ssize(panels) * kPanel<T> : columns_,
      .first_column = options.upper && !is_listed ? first_column(first) : 0,
      .h = logits.h.get(),
      .beta = options.beta == nullptr ? logits.beta.get() : options.beta,
      .multiplier = logits.multiplier,
      .first_row = first,
      .row_count = (count + kRowGroup - 1) / kRowGroup * kRowGroup,
      .bound = options.bounds == nullptr || makes_scores ? nullptr : options.bounds + first,
      .scores = keeps(options) ? scores_.get() + (first - first_kept_) * padded_to_panel<T>(columns_) : nullptr,
      .scores_ready = scores_ready_,
      .stripe = work.stripe.get(),
      .store = options.store,
      .logits = options.logits,
      .block_scale = work.block_scale.data(),
      .row_scratch = work.row_scratch.get(),
  };
  double* const moments = options.moments ? work.row_moment.data() : nullptr;
  exponentiate_rows(work.args, work.row_max.data(), work.row_sum.data(), moments);
  work.offset = logits.offset;
}

template <class T>
std::vector<std::int64_t> Stripes<T>::rows_of_ranks(bool upper) const {
  std::vector<std::int64_t> rows;
  for (int rank = 0; rank <= team_.ranks->size(); ++rank) rows.push_back(first_row(team_.edge(rank), upper));
  return rows;
}

template <class T>
void Stripes<T>::share(std::initializer_list<PassItems> items, bool upper) const {
  if (team_.ranks == nullptr) return;
  std::vector<std::int64_t> edges[3] = {rows_of_ranks(upper)};  // Edges in the order of PassItems::Of.
  for (int rank = 0; rank <= team_.ranks->size(); ++rank) {
    edges[1].push_back(team_.edge(rank));
    edges[2].push_back(rank);
  }
  std::vector<SharedItems> shared;
  for (PassItems const& part : items)
    shared.push_back({part.data, part.stride, part.bytes, edges[static_cast<int>(part.of)]});
  team_.ranks->exchange(shared);
}

template <class T>
ColumnSums<T>::ColumnSums(std::int64_t columns, Team const& team)
    : padded_(padded_to_panel<T>(columns)),
      team_(team),
      sums_(aligned_array<double>(std::max(team.own, 1) * padded_)),  // A rank without threads sends zeros.
      of_ranks_(aligned_array<double>(team.ranks ? team.ranks->size() * padded_ : 0)) {}

template <class T>
void ColumnSums<T>::clear() {
  std::fill_n(sums_.get(), std::max(team_.own, 1) * padded_, 0.0);
}

/// Adds the other rows to the first.
template <class T>
void ColumnSums<T>::join_rows(double* rows, int count, std::int64_t length) {
  for (int row = 1; row < count; ++row) {
    for (std::int64_t j = 0; j < length; ++j) rows[j] += rows[row * length + j];
  }
}

template <class T>
PassItems ColumnSums<T>::of_ranks() {
  join_rows(sums_.get(), team_.own, padded_);
  if (team_.ranks != nullptr) std::copy_n(sums_.get(), padded_, of_ranks_.get() + team_.ranks->rank() * padded_);
  std::size_t const bytes = to_size(padded_) * sizeof(double);
  return {PassItems::Of::ranks, reinterpret_cast<std::byte*>(of_ranks_.get()), bytes, bytes};
}

template <class T>
double const* ColumnSums<T>::join() {
  if (team_.ranks == nullptr) return sums_.get();
  join_rows(of_ranks_.get(), team_.ranks->size(), padded_);
  return of_ranks_.get();
}

template <class T>
PlanSums plan_sums(PlanData<T> const& data, double eps, Stripes<T>& rows, Logits<T>& logits, ColumnSums<T>& sums) {
  std::vector<double> const& weight = data.weight(Side::rows);
  HostVector const& f = data.potential(Side::rows);
  HostVector const& g = data.potential(Side::columns);
  double const mass = data.mass();
  PlanSums result{std::vector<double>(weight.size()), std::vector<double>(data.weight(Side::columns).size()), 0.0};
  std::vector<double> row_cost(weight.size());
  logits.set(data, Side::columns, g, eps);
  sums.clear();
  rows.for_each(
      logits, {.moments = true}, [&](int thread, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
        double column_weight[kMaxStripeRows];
        for (std::int64_t k = 0; k < count; ++k) {
          std::size_t const i = to_size(first + k), r = to_size(k);
          double const norm = data.costs->norm(Side::rows)[i];
          double const factor =
              weight[i] > 0 ? weight[i] * std::exp2(work.exponent(k) + (f.values()[i] - norm) * (kLog2e / eps)) : 0.0;
          result.row[i] = factor * work.row_sum[r];
          // C'_ij = norm_i + norm_j - eps ln2 multiplier score_ij
          row_cost[i] = norm * result.row[i] - eps * kLn2 * factor * work.row_moment[r];
          column_weight[r] = factor / mass;
        }
        if (!data.is_self) add_to_columns(work.args, count, column_weight, 1.0, sums.of(thread));
      });
  rows.share({of_rows(result.row.data()), of_rows(row_cost.data()), sums.of_ranks()});
  double const* const column_sums = sums.join();
  for (std::size_t j = 0; j < result.column.size(); ++j) {
    result.column[j] = data.is_self ? result.row[j] : mass * static_cast<double>(logits.beta[j]) * column_sums[j];
    result.centred_cost += result.column[j] * data.costs->norm(Side::columns)[j];
  }
  result.centred_cost += std::accumulate(row_cost.begin(), row_cost.end(), 0.0);
  return result;
}

template <class T>
std::vector<double> softmin_at(PlanData<T> const& data, Side side, std::span<std::int64_t const> points,
                               HostVector const& potential, double eps, Workers const& workers) {
  Logits<T> logits(data.costs->size(opposite(side)));
  logits.set(data, opposite(side), potential, eps);
  std::vector<double> result(points.size());
  // A copy of some of the points takes no more memory than the stripes of the threads.
  std::size_t const most = to_size(kMaxStripeRows * workers.total());
  for (std::size_t begin = 0; begin < points.size(); begin += most) {
    std::span<std::int64_t const> const some = points.subspan(begin, std::min(most, points.size() - begin));
    std::unique_ptr<Costs<T> const> const part = data.costs->part(side, some);
    Stripes<T> stripes(*part, side, {workers, part->size(Side::rows), part->size(Side::columns)}, 0);
    stripes.for_each(logits, {}, [&](int, Workspace<T> const& work, std::int64_t first, std::int64_t count) {
      for (std::int64_t r = 0; r < count; ++r) {
        std::size_t const i = to_size(first + r);
        bool const is_lonely = data.weight(side)[to_size(some[i])] == 0 && work.is_empty(r);
        result[begin + i] = is_lonely ? std::numeric_limits<double>::infinity()
                                      : part->norm(side)[i] - eps * std::numbers::ln2 * work.lse(r);
      }
    });
    stripes.share({of_rows(result.data() + begin)});
  }
  return result;
}

template <class T>
HostVector completed_potential(PlanData<T> const& data, Side side, double eps, Workers const& workers) {
  HostVector result = data.potential(side);
  std::vector<std::int64_t> const idle = idle_points(data.weight(side));
  if (idle.empty()) return result;
  UpdateRule const rule{eps, data.penalties.of(side)};
  std::vector<double> const plus = softmin_at(data, side, idle, data.potential(opposite(side)), eps, workers);
  for (std::size_t k = 0; k < idle.size(); ++k)
    result[idle[k]] = rule.best(plus[k], data.costs->shift(side)[to_size(idle[k])]);
  return result;
}

#define MONGE_INSTANTIATE(T)                                                                                          \
  template struct Workspace<T>;                                                                                       \
  template class Stripes<T>;                                                                                          \
  template class ColumnSums<T>;                                                                                       \
  template PlanSums plan_sums(PlanData<T> const&, double, Stripes<T>&, Logits<T>&, ColumnSums<T>&);                   \
  template std::vector<double> softmin_at(PlanData<T> const&, Side, std::span<std::int64_t const>, HostVector const&, \
                                          double, Workers const&);                                                    \
  template HostVector completed_potential(PlanData<T> const&, Side, double, Workers const&);
MONGE_INSTANTIATE(float)
MONGE_INSTANTIATE(double)
#undef MONGE_INSTANTIATE

}  // namespace monge::cpu
