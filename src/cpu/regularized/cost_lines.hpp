// Costs in float64, line by line: from the caller's matrix where it lies, or from points as they are needed.
//
// A line is what lies side by side in memory, a row of the problem or, where the matrix is transposed, a column; its
// places are the points of the other side. Inside, S = (C' - origin) / range with C' = C, or of points what is left of
// C without their shifts (cpu/geometry/costs.hpp); a forbidden pair costs infinity. Chunks of a line meet in L1, so
// that one kernel serves every source.
#pragma once
#include <cstdint>
#include <limits>

#include <monge/array.hpp>

#include "cpu/geometry/costs.hpp"

namespace monge::cpu {

inline constexpr std::int64_t kLineChunk = 512;

struct CostLines {
  std::int64_t lines = 0, places = 0;
  ScoreSource<double> source{};                              // stored: source.stored; its origin and unit are not used.
  double const *line_norm = nullptr, *place_norm = nullptr;  // Of points.
  double factor = 1;                                         // Of the score of points.
  double origin = 0, inverse_range = 1;
  MatrixView mask{};
  bool mask_by_places = false;  // A row of the mask is a place.
};

/// out = S of `count` <= kLineChunk places from `first` on.
void read_costs(CostLines const& costs, std::int64_t line, std::int64_t first, std::int64_t count, double* out);

/// What a line costs, forbidden pairs aside.
struct LineSurvey {
  double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
  double sum = 0, count = 0;  // Of the places where `taken` is 1.
};
/// Adds to place_sums and place_counts, too, times `taken_line`.
LineSurvey survey_line(CostLines const& costs, std::int64_t line, double taken_line, double const* taken,
                       double* place_sums, double* place_counts);

/// Sums of a line's scores z = u + v - S that are positive.
struct ActiveLine {
  double sum = 0, squares = 0;  // sum z, sum z^2
  std::int64_t count = 0;
};
/// Adds z to place_sums and 1 to place_counts where it is positive, and writes these places, ascending, to `active`,
/// which has room for all.
ActiveLine scan_line(CostLines const& costs, std::int64_t line, double u, double const* v, double* place_sums,
                     std::int32_t* place_counts, std::int32_t* active);

/// min over places of S - v.
double line_minimum(CostLines const& costs, std::int64_t line, double const* v);
/// minima_j = min(minima_j, S - u).
void lower_minima(CostLines const& costs, std::int64_t line, double u, double* minima);

}  // namespace monge::cpu
