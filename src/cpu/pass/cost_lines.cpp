#include "cpu/pass/cost_lines.hpp"

// Highway compiles this file once for each instruction set (foreach_target.h) and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/pass/cost_lines.cpp"
#include "core/numbers.hpp"
#include "cpu/pass/simd_targets.hpp"
// foreach_target.h must come first.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cpu/pass/score_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace monge::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <ScoreForm kForm>
void ReadCostsFrom(StripeArgs<double> const& args, CostLines const& costs, std::int64_t first, std::int64_t count,
                   double* HWY_RESTRICT out) {
  Tag<double> const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(Tag<double>());
  auto const factor = hn::Set(d, costs.factor);
  ForEachTile<double, kForm>(
      args, first, first + count, [&](std::int64_t j, std::int64_t, std::int64_t r0, auto const& acc) {
        MONGE_UNROLL_TILE
        for (int r = 0; r < kTileRows<double>; ++r) {
          auto const base = hn::Set(d, costs.line_base[to_size(args.first_row + r0 + r)]);
          double* HWY_RESTRICT row = out + (r0 + r) * kLineChunk + (j - first);
          MONGE_UNROLL_TILE
          for (int v = 0; v < kVectors<double>; ++v) {
            auto const bases = hn::Add(base, hn::LoadU(d, costs.place_base.data() + j + v * kLanes));
            hn::Store(hn::MulAdd(acc[r][v], factor, bases), d, row + v * kLanes);
          }
        }
      });
}

// The same along rows in memory, whose bases are 0: panels would take them through L1 once more.
template <class S>
void ReadRows(StripeArgs<double> const& args, CostLines const& costs, std::int64_t first, std::int64_t count,
              double* HWY_RESTRICT out) {
  using Reader = ScoreReader<double, S>;
  typename Reader::Scores const d;
  StoredCosts const& stored = args.source.stored;
  Reader const read(stored);
  auto const factor = hn::Set(d, costs.factor);
  const std::int64_t rows = std::min(args.row_count, stored.rows - args.first_row);
  for (std::int64_t r = 0; r < rows; ++r, out += kLineChunk) {
    S const* HWY_RESTRICT row = static_cast<S const*>(stored.data) + (args.first_row + r) * stored.row_stride + first;
    std::int64_t k = 0;
    for (; k + Reader::kLanes <= count; k += Reader::kLanes) hn::Store(hn::Mul(read(row + k), factor), d, out + k);
    for (; k < count; ++k) out[k] = read.One(row + k) * costs.factor;
  }
}

void ReadCosts(StripeArgs<double> const& args, CostLines const& costs, std::int64_t first, std::int64_t count,
               double* out) {
  StoredCosts const& stored = args.source.stored;
  switch (args.source.form) {
    case ScoreForm::stored:
      if (!stored.transposed) {
        return stored.type == DataType::float32 ? ReadRows<float>(args, costs, first, count, out)
                                                : ReadRows<double>(args, costs, first, count, out);
      }
      return ReadCostsFrom<ScoreForm::stored>(args, costs, first, count, out);
    case ScoreForm::differences:
      return ReadCostsFrom<ScoreForm::differences>(args, costs, first, count, out);
    case ScoreForm::distances:
      return ReadCostsFrom<ScoreForm::distances>(args, costs, first, count, out);
    default:
      return ReadCostsFrom<ScoreForm::products>(args, costs, first, count, out);
  }
}

void UnpackLines(StripeArgs<double> const& args) {
  UnpackRows(args);
}

void ScanCosts(double const* HWY_RESTRICT costs, std::int64_t first, std::int64_t count, double u,
               double const* HWY_RESTRICT v, ActiveLine& line, double* HWY_RESTRICT place_sums,
               std::int32_t* HWY_RESTRICT place_counts, std::int32_t* HWY_RESTRICT active) {
  hn::ScalableTag<double> const d;
  std::int64_t const lanes = static_cast<std::int64_t>(hn::Lanes(d));
  ActiveLine result = line;
  auto const add = [&](std::int64_t j) {
    double const z = (u + v[first + j]) - costs[j];
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
    auto const sum = hn::Add(own, hn::LoadU(d, v + first + j));
    if (HWY_LIKELY(hn::AllFalse(d, hn::Gt(sum, hn::Load(d, costs + j))))) continue;
    for (std::int64_t k = j; k < j + lanes; ++k) add(k);
  }
  for (; j < count; ++j) add(j);
  line = result;
}

void SurveyCosts(LineRun const& run, SurveyedLine& line) {
  using D = hn::CappedTag<double, kPanel<double>>;
  D const d;
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  auto const infinity = hn::Inf(d), largest = hn::Set(d, std::numeric_limits<double>::max()), zero = hn::Zero(d);
  auto const own = hn::Set(d, run.line_weight), l1 = hn::Set(d, run.l1);
  auto const limit = hn::Set(d, run.most);
  auto least = infinity, least_with_mass = infinity, most = hn::Neg(infinity);
  auto cost_sum = zero, weight_sum = zero, forbidden = zero;
  for (std::int64_t j = 0; j < run.count; j += kLanes) {
    auto const inside = hn::FirstN(d, to_size(std::min(kLanes, run.count - j)));
    auto const cost = hn::Load(d, run.costs + j);
    auto valid = hn::Ge(cost, hn::Neg(largest)), allowed = hn::And(inside, hn::And(valid, hn::Le(cost, largest)));
    auto penalised = cost;
    if (run.mask != nullptr) {
      auto const mask = hn::Load(d, run.mask + j);
      valid = hn::And(valid, hn::Le(hn::Abs(mask), largest));
      allowed = hn::AndNot(hn::Eq(mask, zero), allowed);
    }
    if (run.l1_weights != nullptr) {
      auto const weight = hn::Load(d, run.l1_weights + j);
      valid = hn::And(valid, hn::And(hn::Ge(weight, zero), hn::Le(weight, largest)));
      penalised = hn::MulAdd(l1, weight, cost);
    }
    line.is_valid = line.is_valid && hn::AllTrue(d, hn::Or(valid, hn::Not(inside)));
    allowed = hn::And(allowed, hn::Le(penalised, limit));
    auto const other = hn::LoadU(d, run.place_weight + j), weight = hn::IfThenElseZero(allowed, other);
    auto const finite = hn::IfThenElseZero(allowed, cost), share = hn::IfThenElseZero(allowed, own);
    least = hn::Min(least, hn::IfThenElse(allowed, cost, infinity));
    if (run.line_weight > 0) {
      auto const has_mass = hn::Gt(weight, zero);
      least_with_mass = hn::Min(least_with_mass, hn::IfThenElse(has_mass, cost, infinity));
      most = hn::Max(most, hn::IfThenElse(has_mass, penalised, hn::Neg(infinity)));
    }
    cost_sum = hn::MulAdd(weight, finite, cost_sum);
    weight_sum = hn::Add(weight_sum, weight);
    forbidden = hn::Add(forbidden, hn::IfThenZeroElse(allowed, other));  // Padding has no weight.
    hn::StoreU(hn::MulAdd(share, finite, hn::LoadU(d, run.place_cost_sum + j)), d, run.place_cost_sum + j);
    hn::StoreU(hn::Add(share, hn::LoadU(d, run.place_weight_sum + j)), d, run.place_weight_sum + j);
  }
  line.least = std::min(line.least, hn::GetLane(hn::MinOfLanes(d, least)));
  line.least_with_mass = std::min(line.least_with_mass, hn::GetLane(hn::MinOfLanes(d, least_with_mass)));
  line.most = std::max(line.most, hn::GetLane(hn::MaxOfLanes(d, most)));
  line.cost += hn::GetLane(hn::SumOfLanes(d, cost_sum));
  line.weight += hn::GetLane(hn::SumOfLanes(d, weight_sum));
  line.forbidden += hn::GetLane(hn::SumOfLanes(d, forbidden));
}

}  // namespace monge::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace monge::cpu {

HWY_EXPORT(ReadCosts);
HWY_EXPORT(UnpackLines);
HWY_EXPORT(ScanCosts);
HWY_EXPORT(SurveyCosts);

std::vector<double> CostLines::line_vector() const {
  return std::vector<double>(to_size((lines + kRowGroup - 1) / kRowGroup * kRowGroup), 0.0);
}

std::vector<double> CostLines::place_vector() const {
  return std::vector<double>(to_size(padded_to_panel<double>(places)), 0.0);
}

CostLines CostLines::of_matrix(MatrixView matrix, bool across) {
  CostLines result;
  result.lines = matrix.rows();
  result.places = matrix.columns();
  if (across) std::swap(result.lines, result.places);
  result.source = {.form = ScoreForm::stored,
                   .stored = {matrix.data(), matrix.type(), matrix.row_stride(), result.lines, across, 0, 1}};
  result.line_base = result.line_vector();
  result.place_base = result.place_vector();
  return result;
}

LineReader::LineReader(CostLines const& costs) : costs_(costs) {
  args_.source = costs.source;
  args_.column_count = costs.places;
  args_.first_row = -1;
  args_.row_count = kRowGroup;
  args_.row_scratch = scratch_.at_least(kRowGroup * costs.source.scratch());
  if (costs.mask) mask_ = std::make_unique<LineReader>(*costs.mask);
}

double const* LineReader::read(std::int64_t line, std::int64_t first, std::int64_t count) {
  if (args_.first_row != line) {
    args_.first_row = line;
    if (args_.source.form != ScoreForm::stored) HWY_DYNAMIC_DISPATCH(UnpackLines)(args_);
  }
  HWY_DYNAMIC_DISPATCH(ReadCosts)(args_, costs_, first, count, out_);
  if (mask_) {
    double const* const mask = mask_->read(line, first, count);
    for (std::int64_t k = 0; k < kRowGroup * kLineChunk; ++k) {
      if (mask[k] == 0) out_[k] = std::numeric_limits<double>::infinity();
    }
  }
  return out_;
}

void scan_costs(double const* costs, std::int64_t first, std::int64_t count, double u, double const* v,
                ActiveLine& line, double* place_sums, std::int32_t* place_counts, std::int32_t* active) {
  HWY_DYNAMIC_DISPATCH(ScanCosts)(costs, first, count, u, v, line, place_sums, place_counts, active);
}

void survey_costs(LineRun const& run, SurveyedLine& line) {
  HWY_DYNAMIC_DISPATCH(SurveyCosts)(run, line);
}

}  // namespace monge::cpu
#endif
