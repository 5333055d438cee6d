// Costs in float64, eight lines at a time: read from the caller's matrix in place, or computed from points.
//
// A line of costs is contiguous in memory: a row of the problem or, if the matrix is transposed, a column. Its places
// are the points of the other side. Costs are S_lk = base_l + base_k + factor score_lk, and infinity for a forbidden
// pair. Scores come from the register tile (score_tile-inl.hpp), so the CPU has one formula for a cost.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <monge/array.hpp>

#include "cpu/pass/stripe.hpp"
#include "cpu/runtime/memory.hpp"

namespace monge::cpu {

/// Places whose costs for eight lines fit in L1.
inline constexpr std::int64_t kLineChunk = 256;

struct CostLines {
  std::int64_t lines = 0, places = 0;
  ScoreSource<double> source{};  // Its rows are the lines.
  double factor = 1;
  std::vector<double> line_base, place_base;  // Padded like line_vector() and place_vector().
  std::shared_ptr<CostLines const> mask;      // Pairs with 0 are forbidden; null: none.

  /// Zeros for the lines, padded to whole groups, and for the places, padded to whole panels.
  std::vector<double> line_vector() const;
  std::vector<double> place_vector() const;

  /// The numbers of a matrix; a line is a row or, if `across`, a column.
  static CostLines of_matrix(MatrixView matrix, bool across = false);
};

/// Reads costs for one thread.
class LineReader {
 public:
  /// `costs` must outlive this object.
  explicit LineReader(CostLines const& costs);
  /// The costs of lines [line, line + kRowGroup), with `line` a multiple of kRowGroup, at `count` <= kLineChunk places
  /// from `first` on, a multiple of kPanel. Line after line, kLineChunk numbers each; lines beyond the last are
  /// undefined. Valid until the next call.
  double const* read(std::int64_t line, std::int64_t first, std::int64_t count);

 private:
  CostLines const& costs_;
  std::unique_ptr<LineReader> mask_;
  Buffer<double> scratch_;
  StripeArgs<double> args_{};
  alignas(128) double out_[kRowGroup * kLineChunk] = {};
};

/// The lines of one thread of a team: whole groups of kRowGroup.
struct LineShare {
  std::int64_t begin, end;
};
inline LineShare share_of_lines(CostLines const& costs, int thread, int team) {
  std::int64_t const groups = (costs.lines + kRowGroup - 1) / kRowGroup;
  auto const edge = [&](int t) { return std::min(groups * t / team * kRowGroup, costs.lines); };
  return {edge(thread), edge(thread + 1)};
}

/// Calls visit(line, count, reader) for each group of lines of a thread; count <= kRowGroup.
template <class Visit>
void for_each_group(CostLines const& costs, int thread, int team, Visit&& visit) {
  LineReader reader(costs);
  auto const [begin, end] = share_of_lines(costs, thread, team);
  for (std::int64_t line = begin; line < end; line += kRowGroup) visit(line, std::min(kRowGroup, end - line), reader);
}
/// Calls visit(first, count, costs) for the chunks of places of a group; costs as from LineReader::read().
template <class Visit>
void for_each_chunk(LineReader& reader, std::int64_t places, std::int64_t line, Visit&& visit) {
  for (std::int64_t first = 0; first < places; first += kLineChunk) {
    std::int64_t const count = std::min(kLineChunk, places - first);
    visit(first, count, reader.read(line, first, count));
  }
}

/// Sums over the active pairs of a line, z = u + v - S > 0.
struct ActiveLine {
  double sum = 0, squares = 0;  // sum z, sum z^2
  std::int64_t count = 0;
};
/// Scans `count` places of a line from `first` on. Adds to `line`; adds z and 1 to place_sums and place_counts, which,
/// like v, begin at place 0; and appends places with z > 0 to `active`, at line.count.
void scan_costs(double const* costs, std::int64_t first, std::int64_t count, double u, double const* v,
                ActiveLine& line, double* place_sums, std::int32_t* place_counts, std::int32_t* active);

/// Some places of one line for a survey; null where nothing is given.
struct LineRun {
  double const *costs, *mask, *l1_weights;
  std::int64_t count;
  double l1, line_weight;
  double most;  // Pairs whose cost, with l1 W, is above this count as forbidden.
  double const* place_weight;
  double *place_cost_sum, *place_weight_sum;  // The line adds to these.
};
struct SurveyedLine {
  double least = std::numeric_limits<double>::infinity(), most = -least, least_with_mass = least;
  double cost = 0, weight = 0;  // Sums, as SurveyedPoints has.
  double forbidden = 0;         // sum w over the forbidden pairs.
  bool is_valid = true;
};
/// Adds what these places say of a line to `line`.
void survey_costs(LineRun const& run, SurveyedLine& line);

}  // namespace monge::cpu
