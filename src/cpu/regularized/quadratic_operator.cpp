#include "cpu/regularized/quadratic_operator.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/numbers.hpp"
#include "core/parallel.hpp"
#include "cpu/runtime/threads.hpp"

namespace monge::cpu {
namespace {

double dot(std::vector<double> const& a, std::vector<double> const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

QuadraticOperator::QuadraticOperator(std::shared_ptr<RegularizedCosts const> costs, int threads)
    : ReadableOperator(std::move(costs), threads),
      team_(useful_threads(threads, rows(), columns())),
      lines_(costs_.lines()),
      line_(costs_.of(costs_.by_columns() ? Side::columns : Side::rows)),
      place_(costs_.of(costs_.by_columns() ? Side::rows : Side::columns)) {}

/// Computes all of the state except its potentials, which are set.
void QuadraticOperator::pass(State& state) {
  std::size_t const team = to_size(team_);
  state.active.resize(team);
  state.line.sum.assign(line_.share.size(), 0.0);
  state.line.count.assign(line_.share.size(), 0);
  std::vector<std::vector<double>> sums(team);
  std::vector<std::vector<std::int32_t>> counts(team);
  std::vector<double> squares(team);
  on_threads(team_, [&](int t) {
    std::size_t const at = to_size(t);
    sums[at].assign(place_.share.size(), 0.0);
    counts[at].assign(place_.share.size(), 0);
    ActivePlaces& active = state.active[at];
    std::size_t size = 0;
    for_each_group(lines_, t, team_, [&](std::int64_t first_line, std::int64_t count, LineReader& reader) {
      // Each line of the group needs room for all of its places.
      std::size_t const room = place_.share.size(), needed = size + kRowGroup * room;
      if (active.size() < needed) active.resize(needed + size);
      ActiveLine found[kRowGroup];
      for_each_chunk(reader, lines_.places, first_line, [&](std::int64_t first, std::int64_t places, double const* c) {
        for (std::int64_t r = 0; r < count; ++r) {
          std::size_t const line = to_size(first_line + r), k = to_size(r);
          if (line_.share[line] == 0) continue;
          scan_costs(c + r * kLineChunk, first, places, state.line.potential[line], state.place.potential.data(),
                     found[r], sums[at].data(), counts[at].data(), active.data() + size + k * room);
        }
      });
      auto const begin = active.begin() + static_cast<std::ptrdiff_t>(size);
      for (std::int64_t r = 0; r < count; ++r) {
        std::size_t const line = to_size(first_line + r);
        std::copy_n(begin + r * lines_.places, found[r].count, active.begin() + static_cast<std::ptrdiff_t>(size));
        size += to_size(found[r].count);
        state.line.sum[line] = found[r].sum;
        state.line.count[line] = static_cast<std::int32_t>(found[r].count);
        squares[at] += found[r].squares;
      }
    });
    active.resize(size);
  });
  state.place.sum = std::move(sums[0]);
  state.place.count = std::move(counts[0]);
  state.squares = squares[0];
  for (std::size_t t = 1; t < team; ++t) {
    for (std::size_t j = 0; j < place_.share.size(); ++j) {
      state.place.sum[j] += sums[t][j];
      state.place.count[j] += counts[t][j];
    }
    state.squares += squares[t];
  }
}

QuadraticValues QuadraticOperator::values(State const& state) const {
  QuadraticValues result;
  auto const add = [&](RegularizedCosts::Points const& given, Points const& points) {
    for (std::size_t i = 0; i < given.share.size(); ++i) {
      if (given.share[i] == 0) continue;
      double const potential = points.potential[i] + given.shift[i],
                   residual = points.sum[i] / weight_ - given.share[i];
      result.dual += given.share[i] * potential;
      result.gap += residual * potential;
      result.residual_l1 += std::abs(residual);
      result.residual_squares += residual * residual;
    }
  };
  add(line_, state.line);
  add(place_, state.place);
  result.penalty = state.squares / (2 * weight_);
  result.dual -= result.penalty;
  for (auto const& active : state.active) result.active += std::ssize(active);
  return result;
}

QuadraticValues QuadraticOperator::start(double weight, std::span<double const> u, std::span<double const> v) {
  weight_ = weight;
  if (costs_.by_columns()) std::swap(u, v);
  auto const set = [&](RegularizedCosts::Points const& given, std::span<double const> potential, std::int64_t others,
                       double half, Points& to) {
    to.potential.assign(given.share.size(), -kInfinity);
    for (std::size_t i = 0; i < given.share.size(); ++i) {
      if (given.share[i] == 0) continue;
      to.potential[i] = potential.empty() ? given.mean[i] + weight * given.share[i] / static_cast<double>(others) - half
                                          : potential[i];
      to.potential[i] -= given.shift[i];
    }
  };
  auto const is_positive = [](double mass) { return mass > 0; };
  std::int64_t const lines = std::ranges::count_if(line_.share, is_positive);
  std::int64_t const places = std::ranges::count_if(place_.share, is_positive);
  double const half = weight / (2 * static_cast<double>(lines) * static_cast<double>(places));
  set(line_, u, places, half, now_.line);
  set(place_, v, lines, half, now_.place);
  pass(now_);
  return values(now_);
}

QuadraticValues QuadraticOperator::set_weight(double weight) {
  weight_ = weight;
  return values(now_);
}

template <class Visit>
void QuadraticOperator::for_each_line(State const& state, int thread, Visit&& visit) const {
  std::int32_t const* active = state.active[to_size(thread)].data();
  auto const [begin, end] = share_of_lines(lines_, thread, team_);
  for (std::int64_t l = begin; l < end; ++l) {
    std::size_t const count = to_size(state.line.count[to_size(l)]);
    if (count == 0) continue;
    visit(to_size(l), std::span(active, count));
    active += count;
  }
}

QuadraticStep QuadraticOperator::step(QuadraticDamping damping) {
  QuadraticStep result;
  result.linear_iterations = solve(damping);
  result.slope = (dot(of_lines_.right, of_lines_.solution) + dot(of_places_.right, of_places_.solution)) / weight_;
  result.linear_rise = dot(line_.share, of_lines_.solution) + dot(place_.share, of_places_.solution);
  result.trial = shorten(1);
  return result;
}

QuadraticValues QuadraticOperator::shorten(double fraction) {
  auto const move = [&](Points const& from, System const& system, Points& to) {
    to.potential.resize(from.potential.size());
    for (std::size_t i = 0; i < to.potential.size(); ++i)
      to.potential[i] = from.potential[i] + fraction * system.solution[i];
  };
  move(now_.line, of_lines_, trial_.line);
  move(now_.place, of_places_, trial_.place);
  pass(trial_);
  return values(trial_);
}

void QuadraticOperator::accept() {
  std::swap(now_, trial_);
}

/// Solves the Schur complement of the places, with its diagonal as preconditioner:
///   S = D_p - M^T D_l^-1 M,   S x_p = b_p - M^T D_l^-1 b_l,   x_l = D_l^-1 (b_l - M x_p).
int QuadraticOperator::solve(QuadraticDamping damping) {
  auto const set = [&](RegularizedCosts::Points const& given, Points const& points, System& system) {
    system.diagonal.resize(given.share.size());
    system.right.resize(given.share.size());
    for (std::size_t i = 0; i < given.share.size(); ++i) {
      double const count = points.count[i];
      system.diagonal[i] = count + damping.mu * std::max(count, 1.0);
      system.right[i] = weight_ * given.share[i] - points.sum[i];
    }
  };
  set(line_, now_.line, of_lines_);
  set(place_, now_.place, of_places_);
  std::size_t const places = place_.share.size();
  std::vector<std::vector<double>> partial(to_size(team_));
  std::int64_t active = 0;
  for (auto const& places_of : now_.active) active += std::ssize(places_of);
  // out -= sum over lines l of M_l^T value(l, sum of x over the places of l)
  auto const sweep = [&](std::vector<double> const* x, std::vector<double>& out, auto&& value) {
    auto const add_lines = [&](int t) {
      std::vector<double>& to = partial[to_size(t)];
      to.assign(places, 0.0);
      for_each_line(now_, t, [&](std::size_t l, std::span<std::int32_t const> active) {
        double sum = 0;
        if (x != nullptr) {
          for (std::int32_t const j : active) sum += (*x)[to_size(j)];
        }
        double const add = value(l, sum);
        for (std::int32_t const j : active) to[to_size(j)] += add;
      });
    };
    if (static_cast<double>(active) > kPairsPerThread) {
      on_threads(team_, add_lines);
    } else {
      for (int t = 0; t < team_; ++t) add_lines(t);
    }
    for (std::size_t j = 0; j < places; ++j) {
      double sum = 0;
      for (auto const& to : partial) sum += to[j];
      out[j] -= sum;
    }
  };
  std::vector<double> const& lines = of_lines_.diagonal;
  std::vector<double> residual = of_places_.right, preconditioner = of_places_.diagonal;
  sweep(nullptr, residual, [&](std::size_t l, double) { return of_lines_.right[l] / lines[l]; });
  sweep(nullptr, preconditioner, [&](std::size_t l, double) { return 1 / lines[l]; });
  for (double& value : preconditioner) value = 1 / value;

  std::vector<double>& x = of_places_.solution;
  x.assign(places, 0.0);
  std::vector<double> scaled(places), direction(places, 0.0), image(places);
  double const target =
      damping.tolerance * std::sqrt(dot(of_lines_.right, of_lines_.right) + dot(of_places_.right, of_places_.right));
  double last = 1;
  int k = 0;
  for (; k < damping.most && std::sqrt(dot(residual, residual)) > target; ++k) {
    for (std::size_t j = 0; j < places; ++j) scaled[j] = preconditioner[j] * residual[j];
    double const square = dot(residual, scaled);
    for (std::size_t j = 0; j < places; ++j) direction[j] = scaled[j] + (square / last) * direction[j];
    last = square;
    for (std::size_t j = 0; j < places; ++j) image[j] = of_places_.diagonal[j] * direction[j];
    sweep(&direction, image, [&](std::size_t l, double sum) { return sum / lines[l]; });
    double const curvature = dot(direction, image);
    if (!(curvature > 0)) break;
    double const step = square / curvature;
    for (std::size_t j = 0; j < places; ++j) {
      x[j] += step * direction[j];
      residual[j] -= step * image[j];
    }
  }
  of_lines_.solution.resize(lines.size());
  for (std::size_t l = 0; l < lines.size(); ++l) of_lines_.solution[l] = of_lines_.right[l] / lines[l];
  for (int t = 0; t < team_; ++t) {
    for_each_line(now_, t, [&](std::size_t l, std::span<std::int32_t const> active) {
      double sum = 0;
      for (std::int32_t const j : active) sum += x[to_size(j)];
      of_lines_.solution[l] -= sum / lines[l];
    });
  }
  return k;
}

/// Points of zero mass take no part. Then they get the largest potentials for which none of their pairs is active,
/// lines first.
RegularizedValues QuadraticOperator::evaluate() {
  auto const shifted = [](std::vector<double> potential, std::vector<double> const& shift, double sign) {
    for (std::size_t i = 0; i < potential.size(); ++i) potential[i] += sign * shift[i];
    return potential;
  };
  bool const by_columns = costs_.by_columns();
  u_ = shifted(now_.line.potential, line_.shift, 1);
  v_ = shifted(now_.place.potential, place_.shift, 1);
  if (by_columns) std::swap(u_, v_);
  EntryTerms const terms(costs_.terms(), scale(), {}, nullptr);
  RegularizedValues const values =
      evaluate_entries(*this, terms, {costs_.of(Side::rows).share, costs_.of(Side::columns).share, u_, v_},
                       terms.has_finite_conjugate() ? DualBound::of_conjugate : DualBound::without_slack, threads_);
  std::vector<double>&of_lines = by_columns ? v_ : u_, &of_places = by_columns ? u_ : v_;
  std::vector<double> line = shifted(of_lines, line_.shift, -1), place = shifted(of_places, place_.shift, -1);
  for (bool const lines : {true, false}) {
    RegularizedCosts::Points const& given = lines ? line_ : place_;
    if (std::ranges::none_of(given.share, [](double share) { return share == 0; })) continue;
    set_idle(given, line, place, lines);
    std::vector<double>& to = lines ? of_lines : of_places;
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (given.share[i] == 0) to[i] = (lines ? line : place)[i] + given.shift[i];
    }
  }
  return values;
}

/// Sets potentials of idle lines, or places, to the least S minus the other potential, or 0 if no pair is allowed.
void QuadraticOperator::set_idle(RegularizedCosts::Points const& given, std::vector<double>& line,
                                 std::vector<double>& place, bool of_lines) const {
  std::vector<double> least(given.share.size(), kInfinity);
  for_each_group(lines_, 0, 1, [&](std::int64_t first_line, std::int64_t count, LineReader& reader) {
    for_each_chunk(reader, lines_.places, first_line, [&](std::int64_t first, std::int64_t places, double const* c) {
      for (std::int64_t r = 0; r < count; ++r) {
        std::size_t const l = to_size(first_line + r);
        if (of_lines && given.share[l] > 0) continue;
        for (std::int64_t k = 0; k < places; ++k) {
          std::size_t const j = to_size(first + k);
          double& to = of_lines ? least[l] : least[j];
          to = std::min(to, c[r * kLineChunk + k] - (of_lines ? place[j] : line[l]));
        }
      }
    });
  });
  std::vector<double>& potential = of_lines ? line : place;
  for (std::size_t i = 0; i < least.size(); ++i) {
    if (given.share[i] == 0) potential[i] = std::isfinite(least[i]) ? least[i] : 0.0;
  }
}

void QuadraticOperator::load(Tile const& tile, double* x, double* c, double*) const {
  double* const costs = c != nullptr ? c : x;
  costs_.load(tile, costs);
  State const& now = now_;
  Points const &row = costs_.by_columns() ? now.place : now.line, &column = costs_.by_columns() ? now.line : now.place;
  RegularizedCosts::Points const &rows = costs_.of(Side::rows), &columns = costs_.of(Side::columns);
  for (std::int64_t k = 0; k < tile.columns; ++k) {
    std::size_t const j = to_size(tile.column + k);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      std::size_t const i = to_size(tile.row + r);
      std::int64_t const at = k * tile.rows + r;
      double const cost = costs[at], z = (row.potential[i] + column.potential[j]) - cost;
      if (c != nullptr) c[at] = cost + (rows.shift[i] + columns.shift[j]);
      x[at] = z > 0 ? z / weight_ : 0;
    }
  }
}

void QuadraticOperator::potentials(MutableVectorView u, MutableVectorView v) const {
  write_potential(scale(), u_, u);
  write_potential(scale(), v_, v);
}

}  // namespace monge::cpu
