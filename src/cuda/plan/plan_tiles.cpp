#include "cuda/plan/plan_tiles.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/numbers.hpp"
#include "geometry/tile_model.hpp"

namespace monge::cuda {

PlanTiles::PlanTiles(Problem const& problem) : problem_(problem) {
  SharedRuntime const& runtime = problem.runtime;
  Ordering const& ordering = *problem.ordering;
  std::int64_t models = 0, bits[2] = {}, tiles[2] = {}, bytes[2] = {};
  for (Side const side : kSides) {
    OrderedSide const &rows = ordering.of(side), &columns = ordering.of(opposite(side));
    int const s = side_index(side);
    listed_[s].rows = rows.points();
    listed_[s].columns = columns.points();
    listed_[s].bits.words = divided_up(columns.points().tiles(), 32);
    listed_[s].parts = parts_of(rows.points().tiles(), runtime->multiprocessors());
    models = std::max(models, rows.levels().all() * model_size(rows.points().dimension));
    if (is_self() && s == 1) continue;
    tiles[s] = rows.points().tiles();
    bits[s] = tiles[s] * listed_[s].bits.words;
    bytes[s] = std::int64_t{columns.points().padded_size} * size_of(DataType::float64);
  }
  unsigned char *logits[2] = {}, *factors[2] = {};
  memory_ = allocate_parts(runtime, Part{models_[0], models}, Part{models_[1], models}, Part{of_tiles_[0], tiles[0]},
                           Part{of_tiles_[1], tiles[1]}, Part{listed_[0].bits.data, bits[0]},
                           Part{listed_[1].bits.data, bits[1]}, Part{logits[0], bytes[0]}, Part{logits[1], bytes[1]},
                           Part{factors[0], bytes[0]}, Part{factors[1], bytes[1]});
  for (int s : {0, 1}) {
    listed_[s].logits = logits[s];
    listed_[s].factors = factors[s];
  }
}

/// What pairs a row needs does not depend on its potential: a bound of the transform of the other potential, over a few
/// tiles, stands for it.
void PlanTiles::find_side(Side side, double const* own, Potentials const& potentials, double eps) {
  cudaStream_t const stream = problem_.runtime->stream();
  Side const other = opposite(side);
  Weights const& weights = *problem_.weights[side_index(other)];
  double const log_unit = kLog2e / eps, unit = std::sqrt(problem_.costs->factor() * log_unit);
  auto const models = [&](int role, Side of, double const* potential, double const* weight) -> SearchSide {
    OrderedSide const& points = problem_.ordering->of(of);
    find_models({points.points(), points.levels(), points.boxes(), potential, weight, unit, log_unit, models_[role]},
                stream);
    return {points.levels(), models_[role]};
  };
  int const s = side_index(side);
  SearchArguments search{models(0, side, own, nullptr),
                         models(1, other, potentials[side_index(other)].data(), weights.weight()),
                         listed_[s].rows.dimension,
                         problem_.ordering->share,
                         weights.total(),
                         listed_[s].bits,
                         of_tiles_[s]};
  find_near_tiles(search, stream);
  plus_[s] = std::move(transform(problem_, side, potentials, eps, &listed_[s]).plus);
  search.rows = models(0, side, plus_[s].data(), nullptr);
  find_reached_tiles(search, stream);
}

void PlanTiles::join() const {
  int const columns = is_self() ? 0 : 1;
  join_bits(listed_[0].bits, listed_[0].rows.tiles(), listed_[columns].bits, listed_[0].columns.tiles(),
            problem_.runtime->stream());
}

void PlanTiles::find(Potentials const& potentials, double eps) {
  find_side(Side::rows, potentials[0].data(), potentials, eps);
  if (!is_self()) find_side(Side::columns, potentials[1].data(), potentials, eps);
  join();
}

void PlanTiles::find(Side side, Potentials const& potentials, double eps) {
  find_side(side, potentials[side_index(side)].data(), potentials, eps);
}

void PlanTiles::find(Potentials const& potentials, Sweep const& sweep) {
  if (sweep.symmetric) return find(potentials, sweep.eps);
  find_side(Side::rows, potentials[0].data(), potentials, sweep.eps);
  Potentials next;
  next[0] = DeviceVector(problem_.runtime, potentials[0].size());
  next[0].typical = -potentials[1].typical;
  find_next({problem_.side(Side::rows),
             {sweep.eps, problem_.penalties.a, sweep.relaxation, sweep.symmetric},
             potentials[0].data(),
             plus_[0].data(),
             next[0].data()},
            problem_.runtime->stream());
  find_side(Side::columns, potentials[1].data(), next, sweep.eps);
  join();
}

void PlanTiles::keep(Side side, DeviceVector const& potential) {
  DeviceArray<double>& kept = kept_[side_index(side)];
  if (kept.size() != potential.size()) kept = DeviceArray<double>(problem_.runtime, potential.size());
  combine({potential.size(), 1, {{1, potential.data(), nullptr}}, kept.data()}, problem_.runtime->stream());
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
