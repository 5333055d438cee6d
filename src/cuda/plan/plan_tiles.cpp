#include "cuda/plan/plan_tiles.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "core/numbers.hpp"
#include "geometry/tile_model.hpp"

namespace monge::cuda {

namespace {

constexpr std::int64_t kSquareWords = 32;
/// A list that takes at most this memory with all squares gets it. The squares of larger ones are counted first.
constexpr std::int64_t kMostUncounted = std::int64_t{8} << 20;
/// Lists with more bins than this are not measured.
constexpr std::int64_t kMostBins = std::int64_t{1} << 30;

/// Whether blocks of both sides exist, in few enough coordinates.
bool can_expand(Problem const& problem) {
  for (Side const side : kSides) {
    OrderedSide const& points = problem.ordering->of(side);
    if (points.points().dimension > Expansion::kMostDimensions || points.levels().heights <= kWordHeight) return false;
  }
  return true;
}

/// Half of the truncation is for the pairs left out, half for the expansion.
Expansion expansion_of(Problem const& problem, Side side) {
  constexpr int kBlockHeight = std::countr_zero(unsigned{Expansion::kBlockTiles});
  OrderedSide const &rows = problem.ordering->of(side), &columns = problem.ordering->of(opposite(side));
  std::int64_t const size = box_size(rows.points().dimension);
  return Expansion::of(rows.boxes() + size * rows.levels().first[kBlockHeight],
                       columns.boxes() + size * columns.levels().first[kWordHeight], problem.ordering->truncation / 2);
}

}  // namespace

PlanTiles::PlanTiles(Problem const& problem, Sums sums) : problem_(problem) {
  SharedRuntime const& runtime = problem.runtime;
  Ordering const& ordering = *problem.ordering;
  std::int64_t tiles[2] = {}, models[2] = {}, bytes[2] = {};
  for (Side const side : kSides) {
    OrderedSide const &rows = ordering.of(side), &columns = ordering.of(opposite(side));
    int const s = side_index(side);
    listed_[s].rows = rows.points();
    listed_[s].columns = columns.points();
    listed_[s].bits.mark_words = divided_up(columns.levels().words(), 32);
    listed_[s].parts = parts_of(rows.points().tiles(), runtime->multiprocessors());
    if (sums == Sums::expanded && can_expand(problem)) listed_[s].expansion = expansion_of(problem, side);
    if (is_self() && s == 1) continue;
    tiles[s] = rows.points().tiles();
    models[s] = (std::int64_t{rows.levels().all()} + columns.levels().all()) * model_size(rows.points().dimension);
    marks_[s] = std::int64_t{rows.levels().words()} * listed_[s].bits.mark_words;
    bytes[s] = std::int64_t{columns.points().padded_size} * size_of(DataType::float64);
  }
  unsigned char *logits[2] = {}, *factors[2] = {};
  std::uint32_t* marks = nullptr;
  memory_ = allocate_parts(
      runtime, Part{models_[0], models[0]}, Part{models_[1], models[1]}, Part{of_tiles_[0], tiles[0]},
      Part{of_tiles_[1], tiles[1]}, Part{near_, std::max(tiles[0], tiles[1]) * kNearWords}, Part{far_[0], marks_[0]},
      Part{far_[1], marks_[1]}, Part{marks, marks_[0] + marks_[1]}, Part{listed_[0].bits.first, marks_[0] + 1},
      Part{listed_[1].bits.first, marks_[1] + 1}, Part{logits[0], bytes[0]}, Part{logits[1], bytes[1]},
      Part{factors[0], bytes[0]}, Part{factors[1], bytes[1]});
  for (int s : {0, 1}) {
    listed_[s].bits.marks = marks + s * marks_[0];
    listed_[s].logits = logits[s];
    listed_[s].factors = factors[s];
  }
}

SearchArguments PlanTiles::search(Side side) const {
  OrderedSide const &rows = problem_.ordering->of(side), &columns = problem_.ordering->of(opposite(side));
  int const s = side_index(side);
  double* const models = models_[s];
  return {{rows.levels(), models},
          {columns.levels(), models + rows.levels().all() * model_size(rows.points().dimension)},
          rows.points().dimension,
          problem_.ordering->truncation - listed_[s].expansion.lack(),
          problem_.weights[1 - s]->total(),
          near_,
          listed_[s].bits,
          of(opposite(side)).bits,
          far_[s],
          of_tiles_[s]};
}

/// What pairs a row needs does not depend on its potential: a bound of the transform of the other potential, over a few
/// tiles, stands for it.
void PlanTiles::mark(Side side, double const* own, Potentials const& potentials, double eps) {
  cudaStream_t const stream = problem_.runtime->stream();
  int const s = side_index(side), other = 1 - s;
  double const log_unit = kLog2e / eps, unit = std::sqrt(problem_.costs->factor() * log_unit);
  auto const make_models = [&](SearchSide const& to, Side of, double const* potential, double const* weight) {
    OrderedSide const& points = problem_.ordering->of(of);
    find_models({points.points(), points.levels(), points.boxes(), potential, problem_.costs->norm(of), weight, unit,
                 log_unit, to.models},
                stream);
  };
  SearchArguments const search = this->search(side);
  make_models(search.rows, side, own, nullptr);
  make_models(search.columns, opposite(side), potentials[other].data(), problem_.weights[other]->weight());
  find_near_tiles(search, stream);
  ListedTiles near = listed_[s];
  near.near = near_;
  near.expansion = {};
  plus_[s] = std::move(transform(problem_, side, potentials, eps, &near).plus);
  make_models(search.rows, side, plus_[s].data(), nullptr);
  mark_squares(search, stream);
}

bool PlanTiles::expands(Problem const& problem, double eps) {
  return eps <= problem.costs->bound() && can_expand(problem);
}

void PlanTiles::start(double eps) {
  for (ListedTiles& listed : listed_) {
    listed.expansion.is_on = expands(problem_, eps);
    listed.measure = {};
  }
  MONGE_CUDA_TRY(cudaMemsetAsync(listed_[0].bits.marks, 0, to_size(marks_[0] + marks_[1]) * sizeof(std::uint32_t),
                                 problem_.runtime->stream()));
}

void PlanTiles::collect(std::span<Side const> marked) {
  SharedRuntime const& runtime = problem_.runtime;
  int const lists = is_self() ? 1 : 2;
  count_squares({{listed_[0].bits, listed_[1].bits}, {marks_[0], marks_[1]}}, lists, runtime->stream());
  std::int64_t squares = std::int64_t{problem_.ordering->of(Side::rows).levels().words()} *
                         problem_.ordering->of(Side::columns).levels().words();
  if (squares * kSquareWords * std::int64_t{sizeof(std::uint32_t)} > kMostUncounted)
    squares = std::max<std::int64_t>(download(*runtime, listed_[0].bits.first + marks_[0], 1).front(), 1);
  std::int64_t const words = squares * kSquareWords;
  if (squares_.size() < lists * words) {
    squares_ = {};  // Before the new memory, not beside it.
    squares_ = DeviceArray<std::uint32_t>(runtime, lists * words);
  }
  MONGE_CUDA_TRY(
      cudaMemsetAsync(squares_.data(), 0, to_size(lists * words) * sizeof(std::uint32_t), runtime->stream()));
  for (int s = 0; s < lists; ++s) listed_[s].bits.squares = squares_.data() + s * words;
  for (Side const side : marked) find_reached_tiles(search(side), runtime->stream());
}

/// A tile that no pass measures has the bin kAboveBins, so it stays.
void PlanTiles::start_measure() {
  std::int64_t const bins = squares_.size() * 32;
  if (bins > kMostBins) return;
  SharedRuntime const& runtime = problem_.runtime;
  if (kept_squares_.size() < squares_.size()) {
    kept_squares_ = {};
    kept_squares_ = DeviceArray<std::uint32_t>(runtime, squares_.size());
  }
  if (bins_.size() < bins) {
    bins_ = {};
    bins_ = DeviceArray<unsigned char>(runtime, bins);
  }
  MONGE_CUDA_TRY(cudaMemsetAsync(bins_.data(), kAboveBins, to_size(bins), runtime->stream()));
  for (Side const side : sides()) {
    int const s = side_index(side);
    listed_[s].measure = {bins_.data() + (listed_[s].bits.squares - squares_.data()) * 32, plus_[s].data(),
                          problem_.costs->norm(side), 1 - s, std::log2(problem_.ordering->truncation)};
  }
}

void PlanTiles::thin(std::array<double const*, 2> const& softmins, double eps) {
  if (!listed_[0].measure.bins) return;
  cudaStream_t const stream = problem_.runtime->stream();
  MONGE_CUDA_TRY(cudaMemsetAsync(kept_squares_.data(), 0, to_size(squares_.size()) * sizeof(std::uint32_t), stream));
  auto const kept = [&](TileBits const& bits) { return kept_squares_.data() + (bits.squares - squares_.data()); };
  for (Side const side : sides()) {
    ListedTiles const& listed = listed_[side_index(side)];
    TileBits const& across = of(opposite(side)).bits;
    thin_tiles({listed.rows, listed.bits, across, listed.measure, softmins[to_size(side_index(side))],
                kept(listed.bits), kept(across), problem_.ordering->truncation, eps},
               stream);
  }
  for (Side const side : sides()) {
    ListedTiles& listed = listed_[side_index(side)];
    listed.bits.squares = kept(listed.bits);
    listed.measure = {};
  }
}

std::span<Side const> PlanTiles::sides() const {
  return std::span(kSides).first(is_self() ? 1 : 2);
}

void PlanTiles::find(Potentials const& potentials, double eps) {
  start(eps);
  for (Side const side : sides()) mark(side, potentials[side_index(side)].data(), potentials, eps);
  collect(sides());
}

void PlanTiles::find(Side side, Potentials const& potentials, double eps) {
  start(eps);
  mark(side, potentials[side_index(side)].data(), potentials, eps);
  collect({&side, 1});
}

void PlanTiles::find(Potentials const& potentials, Sweep const& sweep) {
  if (sweep.symmetric) {
    find(potentials, sweep.eps);
    return start_measure();
  }
  start(sweep.eps);
  mark(Side::rows, potentials[0].data(), potentials, sweep.eps);
  Potentials next;
  next[0] = DeviceVector(problem_.runtime, potentials[0].size());
  next[0].typical = -potentials[1].typical;
  find_next({problem_.side(Side::rows),
             {sweep.eps, problem_.penalties.a, sweep.relaxation, sweep.symmetric},
             potentials[0].data(),
             plus_[0].data(),
             next[0].data()},
            problem_.runtime->stream());
  mark(Side::columns, potentials[1].data(), next, sweep.eps);
  collect(sides());
  start_measure();
}

void PlanTiles::keep(Side side, DeviceVector const& potential) {
  // Memory of both sides at once: it must not end between the halves of a sweep.
  for (Side const each : kSides) {
    DeviceArray<double>& kept = kept_[side_index(each)];
    if (kept.size() == 0) kept = DeviceArray<double>(problem_.runtime, problem_.size(each));
  }
  combine({potential.size(), 1, {{1, potential.data(), nullptr}}, kept_[side_index(side)].data()},
          problem_.runtime->stream());
}

bool PlanTiles::serve(Potentials const& potentials, double eps) const {
  if (movement_.size() == 0) movement_ = DeviceArray<double>(problem_.runtime, 2 * kMovementParts);
  MovementArguments arguments{{}, eps, kServedMovementOfPoint, movement_.data()};
  for (int s : {0, 1})
    arguments.side[s] = {potentials[s].size(), problem_.weights[s]->weight(), potentials[s].data(), kept_[s].data()};
  find_movement(arguments, problem_.runtime->stream());
  std::vector<double> const parts = download(*problem_.runtime, movement_.data(), movement_.size());
  for (int s : {0, 1}) {
    auto const begin = parts.begin() + s * kMovementParts;
    double const movement = std::accumulate(begin, begin + kMovementParts, 0.0);
    if (!(movement <= kServedMovement * problem_.weights[s]->total())) return false;
  }
  return true;
}

Evaluation PlanTiles::evaluate(Potentials const& potentials, double eps, PlanMarginals const& marginals) {
  SharedRuntime const& runtime = problem_.runtime;
  find(potentials, eps);
  PlanLists lists;
  double* left_out[2] = {};
  DeviceArray<PlanSums> const parts(runtime, plan_sum_count(problem_));
  DeviceArray<unsigned char> const memory = allocate_parts(runtime, Part{left_out[0], problem_.size(Side::rows)},
                                                           Part{left_out[1], problem_.size(Side::columns)});
  for (Side const side : kSides) {
    int const s = side_index(side), found = is_self() ? 0 : s;
    lists.tiles[s] = of(side);
    lists.left_out[s] = left_out[s];
    find_lack({of(side).rows, of_tiles_[found], problem_.weights[s]->weight(), potentials[s].data(),
               plus_[found].data(), eps, left_out[s]},
              runtime->stream());
  }
  sum_plan(problem_, lists, potentials, eps, {parts.data(), marginals});
  return evaluation_of(problem_, download(*runtime, parts.data(), parts.size()), eps);
}

}  // namespace monge::cuda
