// Passes over all pairs: stripes of rows (stripe.hpp), the threads that share them, and their memory.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "cpu/pass/plan_data.hpp"
#include "cpu/pass/stripe.hpp"
#include "cpu/runtime/threads.hpp"
#include "geometry/tile_bounds.hpp"

namespace monge::cpu {

/// The memory of a thread, with the results of the present stripe.
template <class T>
struct Workspace {
  Workspace(std::int64_t rows, std::int64_t scratch);
  /// Makes room for stripes of this size.
  void reserve(std::int64_t rows, std::int64_t columns);

  /// The exponent, in base-2 logits, that exponentials, sum and moment of the row are relative to.
  double exponent(std::int64_t r) const { return row_max[to_size(r)] + offset; }
  /// Whether the row has no allowed pair with a column of positive weight. Known only after a pass without bounds.
  bool is_empty(std::int64_t r) const { return row_max[to_size(r)] <= kNoWeight<T>; }
  /// Base-2 logarithm of the row's sum over all columns, b_j included.
  double lse(std::int64_t r) const { return exponent(r) + std::log2(row_sum[to_size(r)]); }

  Buffer<T> stripe, row_scratch;
  std::vector<double> block_scale, row_max, row_sum, row_moment;
  std::vector<std::int32_t> panels;  // The panels of the stripe, where a tile has several.
  double offset = 0;                 // Offset of the logits; not part of row_max.
  StripeArgs<T> args{};
};

/// Options of a pass.
template <class T>
struct PassOptions {
  T const* beta = nullptr;         // Replaces the beta of the logits, unless null.
  double const* bounds = nullptr;  // A bound for each row, padded to whole panels, without the offset of the logits.
  bool moments = false;
  bool store = true;
  bool logits = false;  // Whether the stripe gets logits alone; without bounds.
  bool upper = false;   // Whether columns begin at Stripes::first_column(); for stripes made for it.
  bool keep = true;     // Scores, if the stripes keep any.
};

/// An array with one item for each row, for each thread of the team or for each rank. After a pass each rank holds the
/// items of its own rows, of its own threads or of itself.
struct PassItems {
  enum class Of { rows, threads, ranks } of;
  std::byte* data;
  std::size_t stride, bytes;
};
template <class V>
PassItems of_rows(V* data, std::int64_t stride = 1, std::int64_t width = 1) {
  return {PassItems::Of::rows, reinterpret_cast<std::byte*>(data), to_size(stride) * sizeof(V),
          to_size(width) * sizeof(V)};
}
inline PassItems of_rows(MutableMatrixView rows) {
  std::size_t const element = to_size(size_of(rows.type()));
  return {PassItems::Of::rows, static_cast<std::byte*>(rows.data()), to_size(rows.row_stride()) * element,
          to_size(rows.columns()) * element};
}
template <class V>
PassItems of_threads(std::vector<V>& items) {
  return {PassItems::Of::threads, reinterpret_cast<std::byte*>(items.data()), sizeof(V), sizeof(V)};
}

/// The pairs that passes of stripes are over.
enum class PassOver { all, all_or_upper, listed };

/// The stripes whose rows are the points of one side.
template <class T>
class Stripes {
 public:
  /// `costs` must outlive this object. If the scores fit in `cache_bytes` and reading them is cheaper, the first pass
  /// with PassOptions::keep, which then ignores bounds, stores them. With `all_or_upper`, passes may be over the
  /// upper triangle, and scores are kept for these passes only. With `listed`, passes are over the tiles that use()
  /// has given, and no scores are kept.
  Stripes(Costs<T> const& costs, Side rows, Team const& team, double cache_bytes, PassOver over = PassOver::all);

  /// The tiles of the columns for each tile of rows, which must outlive the passes. The threads share them equally.
  void use(TileList const& tiles);

  /// Bytes of kept scores, stored or not yet.
  double kept_bytes() const { return kept_bytes_; }
  Team const& team() const { return team_; }
  std::int64_t height() const { return height_; }
  /// A group of rows meets the columns from its own first one on. A pass over the upper triangle of a symmetric matrix
  /// meets each pair of groups once; the column sums give a row its sums over earlier groups.
  std::int64_t first_column(std::int64_t row) const { return row / group() * group(); }
  std::int64_t group() const { return std::max(height_, kPanel<T>); }
  /// The first column of a stripe behind the group of its own rows, in a pass over the upper triangle.
  std::int64_t after_group(StripeArgs<T> const& args) const;
  /// Makes room in the workspaces for rows of points of another dimension, for multiply_by_products().
  void reserve_scratch(std::int64_t dimension);

  /// Calls consume(thread, workspace, first_row, row_count) after exponentiate_rows(). Each thread of the team takes a
  /// contiguous share of the rows, in order, so sums grouped by thread are the same in every run. This rank has the
  /// rows of its own threads, which are numbered from 0; share() gives it the others.
  template <class Consume>
  void for_each(Logits<T> const& logits, PassOptions<T> const& options, Consume&& consume) {
    if (keeps(options) && !scores_) {
      first_kept_ = first_row(team_.first, options.upper);
      std::int64_t const kept = first_row(team_.first + team_.own, options.upper) - first_kept_;
      scores_ = aligned_array<T>(padded_to_panel<T>(kept) * padded_to_panel<T>(columns_));
    }
    on_threads(team_.own, [&](int thread) {
      Workspace<T>& work = workspaces_[to_size(thread)];
      std::int64_t const end = first_row(team_.first + thread + 1, options.upper);
      for (std::int64_t first = first_row(team_.first + thread, options.upper); first < end; first += height_) {
        std::int64_t const count = std::min(height_, rows_ - first);
        exponentiate(logits, options, first, count, work);
        consume(thread, work, first, count);
      }
    });
    scores_ready_ = scores_ready_ || keeps(options);
  }
  /// The first row of each rank of the team, and the number of rows.
  std::vector<std::int64_t> rows_of_ranks(bool upper = false) const;
  /// Completes these arrays on all ranks after a pass.
  void share(std::initializer_list<PassItems> items, bool upper = false) const;

 private:
  /// The first row of a thread of the team, and the number of rows for the index after the last thread.
  std::int64_t first_row(int thread, bool upper) const {
    if (tiles_ != nullptr) return std::min(edges_[to_size(thread)] * height_, rows_);
    std::int64_t const stripes = (rows_ + height_ - 1) / height_;
    std::int64_t edge = stripes * thread / team_.size;
    if (upper) {
      // Fraction of the rows, for equal work.
      double const share = 1 - std::sqrt(1 - static_cast<double>(thread) / team_.size);
      edge = static_cast<std::int64_t>(share * static_cast<double>(stripes));
    }
    return std::min(edge * height_, rows_);
  }
  bool keeps(PassOptions<T> const& options) const {
    return kept_bytes_ > 0 && options.keep && options.upper == is_upper();
  }
  bool is_upper() const { return over_ == PassOver::all_or_upper; }
  std::span<std::int32_t const> panels_of(std::span<std::int32_t const> tiles, Workspace<T>& work) const;
  void exponentiate(Logits<T> const& logits, PassOptions<T> const& options, std::int64_t first, std::int64_t count,
                    Workspace<T>& work) const;

  ScoreSource<T> source_;
  std::int64_t rows_, columns_;
  Team team_;
  PassOver over_;
  TileList const* tiles_ = nullptr;  // Null unless passes are over listed tiles.
  std::vector<std::int64_t> edges_;  // The first stripe of each thread, for equal work, and the number of stripes.
  double kept_bytes_;
  std::int64_t height_;
  std::vector<Workspace<T>> workspaces_;
  AlignedArray<T> scores_;  // Kept scores of this rank's rows.
  std::int64_t first_kept_ = 0;
  bool scores_ready_ = false;
};

/// Sums of columns over stripes. Each thread has a row of sums, and the rows are added in the order of the threads.
/// With several ranks, each rank adds the rows of its threads; the resulting row of each rank is shared and added in
/// order.
template <class T>
class ColumnSums {
 public:
  ColumnSums(std::int64_t columns, Team const& team);
  void clear();
  double* of(int thread) { return sums_.get() + thread * padded_; }
  /// Adds the rows of the threads. Every pass calls it once, for Stripes::share(), before join().
  PassItems of_ranks();
  double const* join();

 private:
  static void join_rows(double* rows, int count, std::int64_t length);

  std::int64_t padded_;
  Team team_;
  AlignedArray<double> sums_, of_ranks_;
};

/// A column sum below this may be wrong because of exponentials that T cannot hold: each term w E has an error of at
/// most w times the smallest normal number. `total_weight` is the sum of all |w| and of the sums' starts.
template <class T>
double smallest_trusted_sum(double total_weight) {
  return std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon() * total_weight;
}

/// Marginals of the plan and <C', P> from a pass over the rows. `logits` become the logits of the columns.
struct PlanSums {
  std::vector<double> row, column;
  double centred_cost;
};
template <class T>
PlanSums plan_sums(PlanData<T> const& data, double eps, Stripes<T>& rows, Logits<T>& logits, ColumnSums<T>& sums);

/// -eps log sum_j weight_j exp((potential_j - C'_ij) / eps) for some points i of `side`, with the potential of the
/// other side. Infinity for a point whose pairs are all forbidden.
template <class T>
std::vector<double> softmin_at(PlanData<T> const& data, Side side, std::span<std::int64_t const> points,
                               HostVector const& potential, double eps, Workers const& workers);

/// The potential of `side`; points of zero weight get the value that an update would give them.
template <class T>
HostVector completed_potential(PlanData<T> const& data, Side side, double eps, Workers const& workers);

}  // namespace monge::cpu
