// Passes over all pairs: stripes of rows (stripe.hpp), the threads that share them, and their memory.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cpu/pass/stripe.hpp"
#include "cpu/plan/plan_data.hpp"
#include "cpu/threads.hpp"

namespace monge::cpu {

/// The memory of a thread, with the results of the present stripe.
template <class T>
struct Workspace {
  Workspace(std::int64_t rows, std::int64_t columns, std::int64_t scratch);

  /// The exponent, in base-2 logits, that exponentials, sum and moment of the row are relative to.
  double exponent(std::int64_t r) const { return row_max[static_cast<std::size_t>(r)] + offset; }
  /// Whether the row has no allowed pair with a column of positive weight. Known only after a pass without bounds.
  bool is_empty(std::int64_t r) const { return row_max[static_cast<std::size_t>(r)] <= kNoWeight<T>; }
  /// Base-2 logarithm of the row's sum over all columns, b_j included.
  double lse(std::int64_t r) const { return exponent(r) + std::log2(row_sum[static_cast<std::size_t>(r)]); }

  AlignedArray<T> stripe;
  Buffer<T> row_scratch;
  std::vector<double> block_scale, row_max, row_sum, row_moment;
  double offset = 0;  // Of the logits; not part of row_max.
  StripeArgs<T> args{};
};

/// Options of a pass.
template <class T>
struct PassOptions {
  T const* beta = nullptr;         // Replaces the beta of the logits, unless null.
  double const* bounds = nullptr;  // For each row, padded to whole panels, without the offset of the logits.
  bool moments = false;
  bool store = true;
  bool logits = false;  // Only logits, in the stripe; without bounds.
  bool upper = false;   // Only columns from Stripes::first_column() on; the stripes must be made for it.
  bool keep = true;     // Scores, if the stripes keep any.
};

/// The stripes whose rows are the points of one side.
template <class T>
class Stripes {
 public:
  /// `costs` must outlive this object. If the scores fit in `cache_bytes` and reading them is cheaper, the first pass
  /// with PassOptions::keep, which then ignores bounds, stores them. With `upper`, passes may be over the upper
  /// triangle, and scores are kept for these passes only.
  Stripes(Costs<T> const& costs, Side rows, int threads, double cache_bytes, bool upper = false);

  /// Bytes of kept scores, stored or not yet.
  double kept_bytes() const { return kept_bytes_; }
  int threads() const { return threads_; }
  std::int64_t height() const { return height_; }
  /// A group of rows meets the columns from its own first one on. A pass over the upper triangle of a symmetric matrix
  /// meets each pair of groups once; the column sums give a row its sums over earlier groups.
  std::int64_t first_column(std::int64_t row) const { return row / group() * group(); }
  std::int64_t group() const { return std::max(height_, kPanel<T>); }
  /// Makes room in the workspaces for rows of points of another dimension, for multiply_by_products().
  void reserve_scratch(std::int64_t dimension);

  /// Calls consume(thread, workspace, first_row, row_count) after exponentiate_rows(). Each thread takes a contiguous
  /// share of the rows, in order, so sums grouped by thread are the same in every run.
  template <class Consume>
  void for_each(Logits<T> const& logits, PassOptions<T> const& options, Consume&& consume) {
    if (keeps(options) && !scores_)
      scores_ = aligned_array<T>(padded_to_panel<T>(rows_) * padded_to_panel<T>(columns_));
    std::int64_t const stripes = (rows_ + height_ - 1) / height_;
    auto const edge = [&](int thread, int team) {
      if (!options.upper) return stripes * thread / team;
      double const share = 1 - std::sqrt(1 - static_cast<double>(thread) / team);  // Of rows, for equal work.
      return static_cast<std::int64_t>(share * static_cast<double>(stripes));
    };
#pragma omp parallel num_threads(threads_)
    {
      int const thread = omp_get_thread_num();
      int const team = omp_get_num_threads();
      Workspace<T>& work = workspaces_[static_cast<std::size_t>(thread)];
      for (std::int64_t s = edge(thread, team); s < edge(thread + 1, team); ++s) {
        std::int64_t const first = s * height_;
        std::int64_t const count = std::min(height_, rows_ - first);
        exponentiate(logits, options, first, count, work);
        consume(thread, work, first, count);
      }
    }
    scores_ready_ = scores_ready_ || keeps(options);
  }

 private:
  bool keeps(PassOptions<T> const& options) const {
    return kept_bytes_ > 0 && options.keep && options.upper == upper_;
  }
  void exponentiate(Logits<T> const& logits, PassOptions<T> const& options, std::int64_t first, std::int64_t count,
                    Workspace<T>& work) const;

  ScoreSource<T> source_;
  std::int64_t rows_, columns_;
  int threads_;
  bool upper_;
  double kept_bytes_;
  std::int64_t height_;
  std::vector<Workspace<T>> workspaces_;
  AlignedArray<T> scores_;
  bool scores_ready_ = false;
};

/// Sums of columns over stripes: a row of sums for each thread, joined in order.
template <class T>
class ColumnSums {
 public:
  ColumnSums(std::int64_t columns, int threads);
  void clear();
  double* of(int thread) { return sums_.get() + thread * padded_; }
  double const* join();

 private:
  std::int64_t padded_;
  int threads_;
  AlignedArray<double> sums_;
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
                               HostVector const& potential, double eps, int threads);

/// The potential of `side`; points of zero weight get the value that an update would give them.
template <class T>
HostVector completed_potential(PlanData<T> const& data, Side side, double eps, int threads);

}  // namespace monge::cpu
