#include "cpu/regularized/cost_lines.hpp"

// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/regularized/cost_lines.cpp"
#include "cpu/pass/simd_targets.hpp"
// foreach_target.h must come first.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/strided.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class S>
HWY_INLINE void ReadStored(S const* HWY_RESTRICT from, CostLines const& costs, std::int64_t count,
                           double* HWY_RESTRICT out) {
  hn::ScalableTag<double> const d;
  const hn::Rebind<S, decltype(d)> ds;
  std::int64_t const lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto const origin = hn::Set(d, costs.origin), factor = hn::Set(d, costs.inverse_range);
  std::int64_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    auto const cost = hn::LoadU(ds, from + j);
    if constexpr (sizeof(S) == 4) {
      hn::StoreU(hn::Mul(hn::Sub(hn::PromoteTo(d, cost), origin), factor), d, out + j);
    } else {
      hn::StoreU(hn::Mul(hn::Sub(cost, origin), factor), d, out + j);
    }
  }
  for (; j < count; ++j) out[j] = (static_cast<double>(from[j]) - costs.origin) * costs.inverse_range;
}

// Of one panel of places, whose coordinates lie kPanel side by side.
HWY_INLINE void ReadPanel(CostLines const& costs, double const* HWY_RESTRICT x, std::int64_t panel,
                          double* HWY_RESTRICT score) {
  ScoreSource<double> const& source = costs.source;
  constexpr std::int64_t kWidth = kPanel<double>;
  double const* HWY_RESTRICT y = source.columns->panel(panel);
  std::int64_t const dimension = source.dimension();
  std::fill_n(score, kWidth, 0.0);
  for (std::int64_t k = 0; k < dimension; ++k, y += kWidth) {
    double const at = x[k];
    for (std::int64_t j = 0; j < kWidth; ++j) {
      double const difference = at - y[j], size = std::abs(difference);
      if (source.form == ScoreForm::products) {
        score[j] += at * y[j];
      } else if (source.form == ScoreForm::differences || source.p == 2) {
        score[j] += difference * difference;
      } else if (source.p == 1) {
        score[j] += size;
      } else if (std::isinf(source.p)) {
        score[j] = std::max(score[j], size);
      } else {
        score[j] += std::pow(size, source.p);
      }
    }
  }
  if (source.form != ScoreForm::distances || source.p == 1 || std::isinf(source.p)) return;
  for (std::int64_t j = 0; j < kWidth; ++j)
    score[j] = source.p == 2 ? std::sqrt(score[j]) : std::pow(score[j], 1 / source.p);
}

HWY_INLINE void ReadPoints(CostLines const& costs, std::int64_t line, std::int64_t first, std::int64_t count,
                           double* HWY_RESTRICT out) {
  constexpr std::int64_t kWidth = kPanel<double>;
  PackedPoints<double> const& points = *costs.source.rows;
  double coordinates[64];
  std::vector<double> many;
  double* x = coordinates;
  if (points.dimension > 64) {
    many.resize(static_cast<std::size_t>(points.dimension));
    x = many.data();
  }
  for (std::int64_t k = 0; k < points.dimension; ++k) x[k] = points.coordinate(line, k);
  double const norm = costs.line_norm[line] - costs.origin;
  for (std::int64_t j = 0; j < count; j += kWidth) {  // Chunks begin with a panel.
    double score[kWidth];
    ReadPanel(costs, x, (first + j) / kWidth, score);
    for (std::int64_t k = 0; k < std::min(kWidth, count - j); ++k)
      out[j + k] = (norm + costs.place_norm[first + j + k] + costs.factor * score[k]) * costs.inverse_range;
  }
}

void ReadCosts(CostLines const& costs, std::int64_t line, std::int64_t first, std::int64_t count, double* out) {
  StoredCosts const& stored = costs.source.stored;
  if (costs.source.form != ScoreForm::stored) {
    ReadPoints(costs, line, first, count, out);
  } else if (stored.type == DataType::float32) {
    ReadStored(static_cast<float const*>(stored.data) + line * stored.row_stride + first, costs, count, out);
  } else {
    ReadStored(static_cast<double const*>(stored.data) + line * stored.row_stride + first, costs, count, out);
  }
  if (costs.mask.rows() == 0) return;
  with_data(costs.mask, [&](auto const* mask) {
    std::int64_t const stride = costs.mask.row_stride();
    for (std::int64_t j = 0; j < count; ++j) {
      auto const allowed = costs.mask_by_places ? mask[(first + j) * stride + line] : mask[line * stride + first + j];
      if (allowed == 0) out[j] = std::numeric_limits<double>::infinity();
    }
  });
}

LineSurvey SurveyLine(CostLines const& costs, std::int64_t line, double taken_line, double const* HWY_RESTRICT taken,
                      double* HWY_RESTRICT place_sums, double* HWY_RESTRICT place_counts) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  HWY_ALIGN double cost[kLineChunk];
  LineSurvey result;
  for (std::int64_t first = 0; first < costs.places; first += kLineChunk) {
    std::int64_t const count = std::min(kLineChunk, costs.places - first);
    ReadCosts(costs, line, first, count, cost);
    for (std::int64_t j = 0; j < count; ++j) {
      if (cost[j] == kInfinity) continue;
      result.least = std::min(result.least, cost[j]);
      if (taken_line > 0 && taken[first + j] > 0) result.most = std::max(result.most, cost[j]);
      result.sum += taken[first + j] * cost[j];
      result.count += taken[first + j];
      place_sums[first + j] += taken_line * cost[j];
      place_counts[first + j] += taken_line;
    }
  }
  return result;
}

ActiveLine ScanLine(CostLines const& costs, std::int64_t line, double u, double const* HWY_RESTRICT v,
                    double* HWY_RESTRICT place_sums, std::int32_t* HWY_RESTRICT place_counts,
                    std::int32_t* HWY_RESTRICT active) {
  hn::ScalableTag<double> const d;
  std::int64_t const lanes = static_cast<std::int64_t>(hn::Lanes(d));
  HWY_ALIGN double cost[kLineChunk];
  ActiveLine result;
  for (std::int64_t first = 0; first < costs.places; first += kLineChunk) {
    std::int64_t const count = std::min(kLineChunk, costs.places - first);
    ReadCosts(costs, line, first, count, cost);
    auto const add = [&](std::int64_t j) {
      double const z = (u + v[first + j]) - cost[j];
      if (!(z > 0)) return;
      result.sum += z;
      result.squares += z * z;
      place_sums[first + j] += z;
      place_counts[first + j] += 1;
      active[result.count++] = static_cast<std::int32_t>(first + j);
    };
    auto const own = hn::Set(d, u);
    std::int64_t j = 0;
    for (; j + lanes <= count; j += lanes) {
      auto const score = hn::Add(own, hn::LoadU(d, v + first + j));
      if (HWY_LIKELY(hn::AllFalse(d, hn::Gt(score, hn::Load(d, cost + j))))) continue;
      for (std::int64_t k = j; k < j + lanes; ++k) add(k);
    }
    for (; j < count; ++j) add(j);
  }
  return result;
}

double LineMinimum(CostLines const& costs, std::int64_t line, double const* HWY_RESTRICT v) {
  HWY_ALIGN double cost[kLineChunk];
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t first = 0; first < costs.places; first += kLineChunk) {
    std::int64_t const count = std::min(kLineChunk, costs.places - first);
    ReadCosts(costs, line, first, count, cost);
    for (std::int64_t j = 0; j < count; ++j) least = std::min(least, cost[j] - v[first + j]);
  }
  return least;
}

void LowerMinima(CostLines const& costs, std::int64_t line, double u, double* HWY_RESTRICT minima) {
  HWY_ALIGN double cost[kLineChunk];
  for (std::int64_t first = 0; first < costs.places; first += kLineChunk) {
    std::int64_t const count = std::min(kLineChunk, costs.places - first);
    ReadCosts(costs, line, first, count, cost);
    for (std::int64_t j = 0; j < count; ++j) minima[first + j] = std::min(minima[first + j], cost[j] - u);
  }
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(ReadCosts);
HWY_EXPORT(SurveyLine);
HWY_EXPORT(ScanLine);
HWY_EXPORT(LineMinimum);
HWY_EXPORT(LowerMinima);

void read_costs(CostLines const& costs, std::int64_t line, std::int64_t first, std::int64_t count, double* out) {
  HWY_DYNAMIC_DISPATCH(ReadCosts)(costs, line, first, count, out);
}
LineSurvey survey_line(CostLines const& costs, std::int64_t line, double taken_line, double const* taken,
                       double* place_sums, double* place_counts) {
  return HWY_DYNAMIC_DISPATCH(SurveyLine)(costs, line, taken_line, taken, place_sums, place_counts);
}
ActiveLine scan_line(CostLines const& costs, std::int64_t line, double u, double const* v, double* place_sums,
                     std::int32_t* place_counts, std::int32_t* active) {
  return HWY_DYNAMIC_DISPATCH(ScanLine)(costs, line, u, v, place_sums, place_counts, active);
}
double line_minimum(CostLines const& costs, std::int64_t line, double const* v) {
  return HWY_DYNAMIC_DISPATCH(LineMinimum)(costs, line, v);
}
void lower_minima(CostLines const& costs, std::int64_t line, double u, double* minima) {
  HWY_DYNAMIC_DISPATCH(LowerMinima)(costs, line, u, minima);
}

}  // namespace monge::cpu
#endif
