// Passes over all pairs: stripes of rows (stripe.hpp), threads over stripes, and the memory that they need.
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

/// What a thread needs; the results of the stripe at hand.
template <class T>
struct Workspace {
  Workspace(std::int64_t rows, std::int64_t columns, std::int64_t scratch);

  /// What the exponentials of the row, its sum and its moment are relative to, in base-2 logits.
  double exponent(std::int64_t r) const { return row_max[static_cast<std::size_t>(r)] + offset; }
  /// No column has weight and, in this row, a cost. Only a pass without bounds can tell.
  bool is_empty(std::int64_t r) const { return row_max[static_cast<std::size_t>(r)] <= kNoWeight<T>; }
  /// Base-2 logarithm of the row's sum over all columns, b_j included.
  double lse(std::int64_t r) const { return exponent(r) + std::log2(row_sum[static_cast<std::size_t>(r)]); }

  AlignedArray<T> stripe;
  Buffer<T> row_scratch;
  std::vector<double> block_scale, row_max, row_sum, row_moment;
  double offset = 0;  // Of the logits; not in row_max.
  StripeArgs<T> args{};
};

/// What a pass does besides its logits.
template <class T>
struct PassOptions {
  T const* beta = nullptr;         // In the place of the logits' own.
  double const* bounds = nullptr;  // Of each row, padded to whole panels; the offset of the logits taken off.
  bool moments = false;
  bool store = true;
  bool logits = false;  // These alone, in the stripe; without bounds.
  bool upper = false;   // Columns from Stripes::first_column() on; for stripes that were made for it.
};

/// The stripes whose rows are the points of one side.
template <class T>
class Stripes {
 public:
  /// `costs` must outlive this object. From the first pass on, which makes no use of bounds then, scores are kept if
  /// they fit in so many bytes and reading them is cheaper. `upper`: passes may be of the upper triangle, and the
  /// scores that are kept are those of such passes.
  Stripes(Costs<T> const& costs, Side rows, int threads, double cache_bytes, bool upper = false);

  /// Taken for scores.
  double kept_bytes() const { return kept_bytes_; }
  int threads() const { return threads_; }
  std::int64_t height() const { return height_; }
  /// A group of rows meets the columns from its own first on. So in a pass over the upper triangle of a symmetric
  /// matrix each pair of groups is met once, and what a row takes of the groups before it are their sums of its column.
  std::int64_t first_column(std::int64_t row) const { return row / group() * group(); }
  std::int64_t group() const { return std::max(height_, kPanel<T>); }
  /// Room for rows of other points in the workspaces: for multiply_by_products().
  void reserve_scratch(std::int64_t dimension);

  /// Calls consume(thread, workspace, first_row, row_count) after exponentiate_rows(), rows in order within a thread, a
  /// contiguous share of the rows to each: sums grouped by thread come out the same on every run.
  template <class Consume>
  void for_each(Logits<T> const& logits, PassOptions<T> const& options, Consume&& consume) {
    std::int64_t const stripes = (rows_ + height_ - 1) / height_;
    auto const edge = [&](int thread, int team) {
      if (!options.upper) return stripes * thread / team;
      double const share = 1 - std::sqrt(1 - static_cast<double>(thread) / team);  // Of the rows, from above.
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
    return scores_ && options.upper == upper_;
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

/// Sums of the columns over stripes: a row of numbers for each thread, joined in their order.
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

/// Below this a column sum may owe its digits to exponentials that should have been smaller than T holds: each of its
/// terms w E is off by at most the smallest normal number, times w where E was held up at it. `total_weight` is that of
/// all |w| and of what the sums of each stripe start from.
template <class T>
double smallest_trusted_sum(double total_weight) {
  return std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon() * total_weight;
}

/// Marginals of the plan and <C', P>, by a pass over the rows; `logits` are set to those of the columns.
struct PlanSums {
  std::vector<double> row, column;
  double centred_cost;
};
template <class T>
PlanSums plan_sums(PlanData<T> const& data, double eps, Stripes<T>& rows, Logits<T>& logits, ColumnSums<T>& sums);

/// -eps log sum_j weight_j exp((potential_j - C'_ij) / eps) for some points i of `side`, the potential being the other
/// side's: infinity for a point of no weight whose pairs are all forbidden.
template <class T>
std::vector<double> softmin_at(PlanData<T> const& data, Side side, std::span<std::int64_t const> points,
                               HostVector const& potential, double eps, int threads);

/// The potential of `side`, with what an update would give those points of no weight.
template <class T>
HostVector completed_potential(PlanData<T> const& data, Side side, double eps, int threads);

}  // namespace monge::cpu
