#include "cpu/regularized/quadratic_operator.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <variant>

#include "core/overloaded.hpp"
#include "core/strided.hpp"
#include "cpu/regularized/regularized_costs.hpp"
#include "cpu/threads.hpp"
#include "geometry/cost_matrix.hpp"

namespace monge::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> zeros(std::int64_t size) {
  return std::vector<double>(static_cast<std::size_t>(size), 0.0);
}

double dot(std::vector<double> const& a, std::vector<double> const& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

QuadraticOperator::QuadraticOperator(RegularizedInput const& input, int threads)
    : ReadableOperator(std::ssize(input.p), std::ssize(input.q), threads),
      team_(useful_threads(threads, rows(), columns())),
      terms_(input.terms) {
  scale_.mass = input.mass;
  costs_.mask = input.terms.mask;
  line_.mass = input.p;
  place_.mass = input.q;
  line_.shift = zeros(rows());
  place_.shift = zeros(columns());
  std::visit(Overloaded{[&](PointCloud const& clouds) { set_points(clouds, input); },
                        [&](CostMatrix const& matrix) { set_matrix(matrix, input); }},
             input.geometry);
  costs_.lines = std::ssize(line_.mass);
  costs_.places = std::ssize(place_.mass);
  survey();
}

void QuadraticOperator::set_points(PointCloud const& clouds, RegularizedInput const& input) {
  points_ = std::make_shared<PointCosts<double> const>(clouds, input.p, input.q);
  costs_.source = points_->scores(Side::rows);
  costs_.line_norm = points_->norm(Side::rows).data();
  costs_.place_norm = points_->norm(Side::columns).data();
  costs_.factor = points_->factor();
  std::ranges::copy(points_->shift(Side::rows), line_.shift.begin());
  std::ranges::copy(points_->shift(Side::columns), place_.shift.begin());
}

void QuadraticOperator::set_matrix(CostMatrix const& matrix, RegularizedInput const& input) {
  // Checks the matrices.
  scale_ = RegularizedCosts(matrix, input.terms, input.p, input.q, input.mass, threads_).scale();
  by_columns_ = matrix.transposed;
  costs_.source.form = ScoreForm::stored;
  costs_.source.stored = {matrix.cost.data(), matrix.cost.type(), matrix.cost.row_stride(), 0, false, 0, 1};
  costs_.mask_by_places = by_columns_;
  if (by_columns_) std::swap(line_, place_);
}

void QuadraticOperator::survey() {
  CostLines raw = costs_;
  std::vector<double> line_norm, place_norm;
  if (points_) {
    auto const whole = [](std::span<double const> norm, std::vector<double> const& shift) {
      std::vector<double> sum(shift);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += norm[i];
      return sum;
    };
    line_norm = whole(points_->norm(Side::rows), line_.shift);
    place_norm = whole(points_->norm(Side::columns), place_.shift);
    raw.line_norm = line_norm.data();
    raw.place_norm = place_norm.data();
  }
  std::vector<double> taken;
  for (double const mass : place_.mass) taken.push_back(mass > 0);
  std::vector<LineSurvey> found(line_.mass.size());
  std::vector<std::vector<double>> sums(static_cast<std::size_t>(team_)), counts = sums;
#pragma omp parallel for num_threads(team_) schedule(static)
  for (int t = 0; t < team_; ++t) {
    std::vector<double>&sum = sums[static_cast<std::size_t>(t)], &count = counts[static_cast<std::size_t>(t)];
    sum = count = zeros(costs_.places);
    for (std::int64_t i = first_line(t); i < first_line(t + 1); ++i) {
      std::size_t const at = static_cast<std::size_t>(i);
      found[at] = survey_line(raw, i, line_.mass[at] > 0, taken.data(), sum.data(), count.data());
    }
  }
  double least = kInfinity, most = -kInfinity, total = 0, pairs = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    least = std::min(least, found[i].least);
    most = std::max(most, found[i].most);
    if (line_.mass[i] == 0) continue;
    total += found[i].sum;
    pairs += found[i].count;
  }
  if (points_) {
    require_finite_range(least, most);
    scale_.offset = least;
    scale_.range = most > least ? most - least : 1;
  }
  double const offset = scale_.offset, mean = total / pairs;
  auto const centred = [&](double sum, double count) {
    return count > 0 ? (sum / count - mean / 2 - offset / 2) / scale_.range : 0.0;
  };
  for (LineSurvey const& line : found) line_.mean.push_back(centred(line.sum, line.count));
  for (std::size_t j = 0; j < place_.mass.size(); ++j) {
    double sum = 0, count = 0;
    for (std::size_t t = 0; t < sums.size(); ++t) {
      sum += sums[t][j];
      count += counts[t][j];
    }
    place_.mean.push_back(centred(sum, count));
  }
  costs_.inverse_range = 1 / scale_.range;
  if (!points_) {
    costs_.origin = offset;
    return;
  }
  for (double& shift : line_.shift) shift = (shift - offset) / scale_.range;
  for (double& shift : place_.shift) shift /= scale_.range;
}

/// Of potentials that are set: everything else of a state.
void QuadraticOperator::pass(State& state) {
  std::size_t const team = static_cast<std::size_t>(team_);
  state.active.resize(team);
  state.line.sum.assign(line_.mass.size(), 0.0);
  state.line.count.assign(line_.mass.size(), 0);
  std::vector<std::vector<double>> sums(team);
  std::vector<std::vector<std::int32_t>> counts(team);
  std::vector<double> squares(team);
#pragma omp parallel for num_threads(team_) schedule(static)
  for (int t = 0; t < team_; ++t) {
    std::size_t const at = static_cast<std::size_t>(t);
    sums[at] = zeros(costs_.places);
    counts[at].assign(place_.mass.size(), 0);
    std::vector<std::int32_t>& active = state.active[at];
    std::size_t size = 0;
    for (std::int64_t l = first_line(t); l < first_line(t + 1); ++l) {
      std::size_t const i = static_cast<std::size_t>(l);
      if (line_.mass[i] == 0) continue;
      if (active.size() < size + place_.mass.size()) active.resize(2 * size + place_.mass.size());
      ActiveLine const line = scan_line(costs_, l, state.line.potential[i], state.place.potential.data(),
                                        sums[at].data(), counts[at].data(), active.data() + size);
      state.line.sum[i] = line.sum;
      state.line.count[i] = static_cast<std::int32_t>(line.count);
      squares[at] += line.squares;
      size += static_cast<std::size_t>(line.count);
    }
    active.resize(size);
  }
  state.place.sum = std::move(sums[0]);
  state.place.count = std::move(counts[0]);
  state.squares = squares[0];
  for (std::size_t t = 1; t < team; ++t) {
    for (std::size_t j = 0; j < place_.mass.size(); ++j) {
      state.place.sum[j] += sums[t][j];
      state.place.count[j] += counts[t][j];
    }
    state.squares += squares[t];
  }
}

QuadraticValues QuadraticOperator::values(State const& state) const {
  QuadraticValues result;
  auto const add = [&](Given const& given, Points const& points) {
    for (std::size_t i = 0; i < given.mass.size(); ++i) {
      if (given.mass[i] == 0) continue;
      double const potential = points.potential[i] + given.shift[i], residual = points.sum[i] / weight_ - given.mass[i];
      result.dual += given.mass[i] * potential;
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
  if (by_columns_) std::swap(u, v);
  auto const set = [&](Given const& given, std::span<double const> potential, std::int64_t others, double half,
                       Points& to) {
    to.potential.assign(given.mass.size(), -kInfinity);
    for (std::size_t i = 0; i < given.mass.size(); ++i) {
      if (given.mass[i] == 0) continue;
      to.potential[i] = potential.empty() ? given.mean[i] + weight * given.mass[i] / static_cast<double>(others) - half
                                          : potential[i];
      to.potential[i] -= given.shift[i];
    }
  };
  auto const is_positive = [](double mass) { return mass > 0; };
  std::int64_t const lines = std::ranges::count_if(line_.mass, is_positive);
  std::int64_t const places = std::ranges::count_if(place_.mass, is_positive);
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
  std::int32_t const* active = state.active[static_cast<std::size_t>(thread)].data();
  for (std::int64_t l = first_line(thread); l < first_line(thread + 1); ++l) {
    std::size_t const count = static_cast<std::size_t>(state.line.count[static_cast<std::size_t>(l)]);
    if (count == 0) continue;
    visit(static_cast<std::size_t>(l), std::span(active, count));
    active += count;
  }
}

QuadraticStep QuadraticOperator::step(QuadraticDamping damping) {
  QuadraticStep result;
  result.linear_iterations = solve(damping);
  result.slope = (dot(of_lines_.right, of_lines_.solution) + dot(of_places_.right, of_places_.solution)) / weight_;
  result.linear_rise = dot(line_.mass, of_lines_.solution) + dot(place_.mass, of_places_.solution);
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
  auto const set = [&](Given const& given, Points const& points, System& system) {
    system.diagonal.resize(given.mass.size());
    system.right.resize(given.mass.size());
    for (std::size_t i = 0; i < given.mass.size(); ++i) {
      double const count = points.count[i];
      system.diagonal[i] = count + damping.mu * std::max(count, 1.0);
      system.right[i] = weight_ * given.mass[i] - points.sum[i];
    }
  };
  set(line_, now_.line, of_lines_);
  set(place_, now_.place, of_places_);
  std::size_t const places = place_.mass.size();
  std::vector<std::vector<double>> partial(static_cast<std::size_t>(team_));
  std::int64_t active = 0;
  for (auto const& places_of : now_.active) active += std::ssize(places_of);
  [[maybe_unused]] bool const is_large = active > kPairsPerThread;
  // out -= sum over lines l of M_l^T value(l, sum of x over the places of l)
  auto const sweep = [&](std::vector<double> const* x, std::vector<double>& out, auto&& value) {
#pragma omp parallel for num_threads(team_) schedule(static) if (is_large)
    for (int t = 0; t < team_; ++t) {
      std::vector<double>& to = partial[static_cast<std::size_t>(t)];
      to.assign(places, 0.0);
      for_each_line(now_, t, [&](std::size_t l, std::span<std::int32_t const> active) {
        double sum = 0;
        if (x != nullptr) {
          for (std::int32_t const j : active) sum += (*x)[static_cast<std::size_t>(j)];
        }
        double const add = value(l, sum);
        for (std::int32_t const j : active) to[static_cast<std::size_t>(j)] += add;
      });
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
      for (std::int32_t const j : active) sum += x[static_cast<std::size_t>(j)];
      of_lines_.solution[l] -= sum / lines[l];
    });
  }
  return k;
}

/// Points of zero mass get the largest potentials for which none of their pairs is active, lines first.
RegularizedValues QuadraticOperator::evaluate() {
  std::vector<double> line = now_.line.potential, place = now_.place.potential;
  auto const finite = [](double potential) { return std::isfinite(potential) ? potential : 0.0; };
  for (std::size_t l = 0; l < line.size(); ++l) {
    if (line_.mass[l] == 0) line[l] = finite(line_minimum(costs_, static_cast<std::int64_t>(l), place.data()));
  }
  if (std::ranges::find(place_.mass, 0.0) != place_.mass.end()) {
    std::vector<double> minima(place.size(), kInfinity);
    for (std::size_t l = 0; l < line.size(); ++l)
      lower_minima(costs_, static_cast<std::int64_t>(l), line[l], minima.data());
    for (std::size_t j = 0; j < place.size(); ++j) {
      if (place_.mass[j] == 0) place[j] = finite(minima[j]);
    }
  }
  for (std::size_t l = 0; l < line.size(); ++l) line[l] += line_.shift[l];
  for (std::size_t j = 0; j < place.size(); ++j) place[j] += place_.shift[j];
  if (by_columns_) std::swap(line, place);
  u_ = std::move(line);
  v_ = std::move(place);
  std::vector<double> const &p = by_columns_ ? place_.mass : line_.mass, &q = by_columns_ ? line_.mass : place_.mass;
  EntryTerms const terms(terms_, scale_, {});
  return evaluate_entries(*this, terms, {p, q, u_, v_},
                          terms.has_finite_conjugate() ? DualBound::of_conjugate : DualBound::without_slack, threads_);
}

void QuadraticOperator::load(Tile const& tile, double* x, double* c, double*) const {
  double chunk[kLineChunk];
  std::int64_t const first_line = by_columns_ ? tile.column : tile.row, lines = by_columns_ ? tile.columns : tile.rows;
  std::int64_t const first = by_columns_ ? tile.row : tile.column, places = by_columns_ ? tile.rows : tile.columns;
  for (std::int64_t k = 0; k < lines; ++k) {
    std::size_t const l = static_cast<std::size_t>(first_line + k);
    for (std::int64_t begin = 0; begin < places; begin += kLineChunk) {
      std::int64_t const count = std::min(kLineChunk, places - begin);
      read_costs(costs_, first_line + k, first + begin, count, chunk);
      for (std::int64_t r = 0; r < count; ++r) {
        std::size_t const j = static_cast<std::size_t>(first + begin + r);
        std::int64_t const at = by_columns_ ? k * tile.rows + begin + r : (begin + r) * tile.rows + k;
        double const score = (now_.line.potential[l] + now_.place.potential[j]) - chunk[r];
        x[at] = score > 0 ? score / weight_ : 0;
        if (c != nullptr) c[at] = chunk[r] + (line_.shift[l] + place_.shift[j]);
      }
    }
  }
}

void QuadraticOperator::potentials(MutableVectorView u, MutableVectorView v) const {
  write_potential(scale_, u_, u);
  write_potential(scale_, v_, v);
}

}  // namespace monge::cpu
