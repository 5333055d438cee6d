#include "cpu/geometry/matrix_costs.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/compensated_sum.hpp"
#include "core/strided.hpp"
#include "cpu/threads.hpp"
#include "geometry/cost_matrix.hpp"

namespace monge::cpu {
namespace {

/// What one reading finds of a line of memory, a row or a column of the problem.
struct Line {
  double least, most;   // Of the finite costs.
  double cost, weight;  // Sums over them, each with the weight of its place.
  bool is_finite, is_valid;
};

template <class S>
Line survey_line(S const* line, std::span<double const> weights) {
  constexpr S kMost = std::numeric_limits<S>::max();
  S least = std::numeric_limits<S>::infinity(), most = -least;
  double cost = 0, weight = 0;
  std::int64_t finite = 0, valid = 0;
  std::int64_t const size = std::ssize(weights);
  double const* const w = weights.data();
#pragma omp simd reduction(min : least) reduction(max : most) reduction(+ : cost, weight, finite, valid)
  for (std::int64_t k = 0; k < size; ++k) {
    S const value = line[k];
    bool const is_valid = value >= -kMost, is_finite = is_valid && value <= kMost;
    double const share = is_finite ? w[k] : 0.0;
    least = value < least ? value : least;
    most = is_finite && value > most ? value : most;
    cost += share * static_cast<double>(is_finite ? value : S(0));
    weight += share;
    finite += is_finite;
    valid += is_valid;
  }
  return {static_cast<double>(least), static_cast<double>(most), cost, weight, finite == size, valid == size};
}

/// Whether each place has a finite cost to a line of weight. A line or a few reach them all, as a rule.
template <class S>
std::vector<unsigned char> reached_places(S const* data, std::int64_t stride, std::span<double const> lines,
                                          std::int64_t places) {
  std::vector<unsigned char> reached(static_cast<std::size_t>(places), 0);
  std::int64_t missing = places;
  for (std::int64_t i = 0; i < std::ssize(lines) && missing > 0; ++i) {
    if (lines[static_cast<std::size_t>(i)] == 0) continue;
    for (std::int64_t k = 0; k < places; ++k) {
      unsigned char& place = reached[static_cast<std::size_t>(k)];
      if (place != 0 || std::isinf(data[i * stride + k])) continue;
      place = 1;
      missing -= 1;
    }
  }
  return reached;
}

[[noreturn]] void throw_first_bad(MatrixView cost, bool transposed) {
  with_data(cost, [&](auto const* data) {
    std::int64_t const n = transposed ? cost.columns() : cost.rows(), m = transposed ? cost.rows() : cost.columns();
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        double const value = data[transposed ? j * cost.row_stride() + i : i * cost.row_stride() + j];
        if (!(value >= std::numeric_limits<double>::lowest())) throw_bad_cost(i, j, value);
      }
    }
  });
  throw_bad_cost(0, 0, std::nan(""));
}

/// A power of two near `range`: differences of costs divided by it are at home in float.
double unit_of(double range) {
  return range > 0 ? std::ldexp(1.0, std::clamp(std::ilogb(range) + 1, -100, 1000)) : 1.0;
}

}  // namespace

template <class T>
MatrixCosts<T>::MatrixCosts(CostMatrix const& geometry, std::span<double const> a, std::span<double const> b,
                            int threads)
    : MatrixCosts(std::ssize(a), std::ssize(b), geometry.cost, geometry.transposed) {
  std::span<double const> const lines = transposed_ ? b : a, places = transposed_ ? a : b;
  std::vector<Line> found(lines.size());
  std::vector<unsigned char> reached;
  int const team = useful_threads(threads, std::ssize(a), std::ssize(b));
  with_data(cost_, [&](auto const* data) {
#pragma omp parallel for num_threads(team) schedule(static)
    for (std::int64_t i = 0; i < std::ssize(lines); ++i)
      found[static_cast<std::size_t>(i)] = survey_line(data + i * cost_.row_stride(), places);
  });

  double least = std::numeric_limits<double>::infinity(), most = -least;
  CompensatedSum cost, weight;
  std::vector<unsigned char> has_partner;
  bool is_valid = true, is_reached = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    Line const& line = found[i];
    is_valid &= line.is_valid;
    is_reached |= lines[i] > 0 && line.is_finite;
    has_partner.push_back(line.weight > 0);
    least = std::min(least, line.least);
    most = std::max(most, line.most);
    cost.add(lines[i] * line.cost);
    weight.add(lines[i] * line.weight);
  }
  if (!is_valid) throw_first_bad(cost_, transposed_);
  require_partners(transposed_ ? Side::columns : Side::rows, lines, has_partner);
  if (!is_reached) {
    with_data(cost_, [&](auto const* data) {
      require_partners(transposed_ ? Side::rows : Side::columns, places,
                       reached_places(data, cost_.row_stride(), lines, std::ssize(places)));
    });
  }
  require_finite_range(least, most);
  this->mean_ = cost.value() / weight.value();
  range_ = most - least;
  origin_ = least;
  unit_ = stored_unit_ = unit_of(range_);
  shift_[0].assign(a.size(), least);
}

template <class T>
MatrixCosts<T>::MatrixCosts(std::int64_t n, std::int64_t m, MatrixView cost, bool transposed)
    : Costs<T>(n, m), cost_(cost), transposed_(transposed) {
  for (Side const side : kSides) {
    norm_[static_cast<int>(side)].assign(static_cast<std::size_t>(this->size(side)), 0.0);
    shift_[static_cast<int>(side)] = norm_[static_cast<int>(side)];
  }
}

template <class T>
StoredCosts MatrixCosts<T>::stored(Side rows) const {
  return {cost_.data(), cost_.type(), cost_.row_stride(), this->size(rows), transposed_ == (rows == Side::rows),
          origin_,      stored_unit_};
}

template <class T>
ScoreSource<T> MatrixCosts<T>::scores(Side rows) const {
  return {.form = ScoreForm::stored, .stored = stored(rows)};
}

/// A copy of the scores of these points, line by line of memory, their points its rows.
template <class T>
std::unique_ptr<Costs<T> const> MatrixCosts<T>::part(Side side, std::span<std::int64_t const> points) const {
  std::int64_t const size = std::ssize(points), others = this->size(opposite(side));
  auto scores = std::make_unique<T[]>(static_cast<std::size_t>(size * others));
  StoredCosts const from = stored(side);
  with_data(cost_, [&](auto const* data) {
    using Wide = std::conditional_t<(sizeof(*data) > sizeof(T)), double, T>;
    Wide const factor = static_cast<Wide>(1 / stored_unit_), term = static_cast<Wide>(-origin_ / stored_unit_);
    auto const copy = [&](std::int64_t r, std::int64_t j) {
      std::int64_t const i = points[static_cast<std::size_t>(r)];
      Wide const cost = data[from.transposed ? j * from.row_stride + i : i * from.row_stride + j];
      scores[static_cast<std::size_t>(r * others + j)] = static_cast<T>(cost * factor + term);
    };
    // Copies memory line by line in either layout.
    for (std::int64_t line = 0; line < (from.transposed ? others : size); ++line) {
      for (std::int64_t place = 0; place < (from.transposed ? size : others); ++place)
        from.transposed ? copy(place, line) : copy(line, place);
    }
  });
  bool const by_rows = side == Side::rows;
  std::unique_ptr<MatrixCosts> result(new MatrixCosts(by_rows ? size : others, by_rows ? others : size,
                                                      MatrixView(scores.get(), size, others), !by_rows));
  result->scores_ = std::move(scores);
  result->unit_ = unit_;
  result->range_ = range_;
  result->shift_[0].assign(result->shift_[0].size(), origin_);
  return result;
}

template <class T>
std::shared_ptr<Costs<T> const> MatrixCosts<T>::at(Side, MatrixView) const {
  throw_no_points();
}

template <class T>
PointValues<T> MatrixCosts<T>::points(Side) const {
  throw_no_points();
}

template <class T>
PointForm MatrixCosts<T>::point_form() const {
  throw_no_points();
}

template class MatrixCosts<float>;
template class MatrixCosts<double>;

}  // namespace monge::cpu
