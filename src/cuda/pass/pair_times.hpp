// Times of passes and of entries, for each pair of points.
#pragma once
#include <algorithm>

#include <monge/array.hpp>

#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Nanoseconds for 1000 pairs on an H200 (docs/tuning.md). Only their ratios matter: they choose between passes and
/// entries. They hold for long passes; for short ones the choice matters little.
struct PairTimes {
  double pass;     // One column, nothing in memory.
  double entries;  // Writing entries, over a pass.
  double read;     // Multiplying entries in memory with up to 64 columns.
};

/// Fitted to bench/notes/plan_products.md.
inline PairTimes pair_times(ScoreForm form, DataType scalar, int dimension) {
  if (form == ScoreForm::stored)
    return scalar == DataType::float64 ? PairTimes{2.4, 2.0, 18} : PairTimes{1.3, 1.8, 1.3};
  if (scalar == DataType::float64) return {1.9 + 0.05 * dimension, 2.0, 18};
  if (form != ScoreForm::products) return {0.4 + 0.065 * dimension, 1.9, 1.3};
  return {std::max(0.5, 0.15 + 0.0125 * dimension), 1.0, 1.3};
}

}  // namespace monge::cuda
