#include "cpu/geometry/matrix_costs.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <type_traits>
#include <utility>

#include "core/numbers.hpp"
#include "core/strided.hpp"
#include "cpu/geometry/cost_survey.hpp"
#include "geometry/cost_matrix.hpp"

namespace monge::cpu {
namespace {

/// A power of two near `range`; differences of costs divided by it fit in float.
double unit_of(double range) {
  return range > 0 ? std::ldexp(1.0, std::clamp(std::ilogb(range) + 1, -100, 1000)) : 1.0;
}

}  // namespace

template <class T>
MatrixCosts<T>::MatrixCosts(CostMatrix const& geometry, std::span<double const> a, std::span<double const> b,
                            Workers const& workers)
    : MatrixCosts(std::ssize(a), std::ssize(b), geometry.cost, geometry.transposed) {
  CostSurvey const found = survey_costs(
      {.costs = CostLines::of_matrix(cost_), .line_weight = transposed_ ? b : a, .place_weight = transposed_ ? a : b},
      workers);
  if (!found.is_valid) throw_first_bad(geometry);
  require_partners(Side::rows, a, (transposed_ ? found.place : found.line).has_partner());
  require_partners(Side::columns, b, (transposed_ ? found.line : found.place).has_partner());
  require_finite_range(found.least, found.most);
  this->mean_ = found.mean;
  this->forbidden_ = found.forbidden;
  this->bound_ = found.most - found.least;  // C' is C less the least.
  origin_ = found.least;
  unit_ = stored_unit_ = unit_of(this->bound_);
  for (std::vector<double>& shift : shift_) shift.assign(shift.size(), found.least / 2);
}

template <class T>
MatrixCosts<T>::MatrixCosts(std::int64_t n, std::int64_t m, MatrixView cost, bool transposed)
    : Costs<T>(n, m), cost_(cost), transposed_(transposed) {
  for (Side const side : kSides) {
    norm_[static_cast<int>(side)].assign(to_size(this->size(side)), 0.0);
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

/// The same matrix in the other precision.
template <class T>
std::shared_ptr<Costs<Other<T>> const> MatrixCosts<T>::twin(Geometry const&) const {
  using Twin = MatrixCosts<Other<T>>;
  std::shared_ptr<Twin> result(new Twin(this->size(Side::rows), this->size(Side::columns), cost_, transposed_));
  result->mean_ = this->mean_;
  result->forbidden_ = this->forbidden_;
  result->origin_ = origin_;
  result->stored_unit_ = stored_unit_;
  result->unit_ = unit_;
  result->bound_ = this->bound_;
  for (Side const side : kSides) result->shift_[static_cast<int>(side)] = shift_[static_cast<int>(side)];
  return result;
}

/// The costs of some points, with a copy of their scores, line by line of memory.
template <class T>
std::unique_ptr<Costs<T> const> MatrixCosts<T>::part(Side side, std::span<std::int64_t const> points) const {
  std::int64_t const size = std::ssize(points), others = this->size(opposite(side));
  auto scores = std::make_unique<T[]>(to_size(size * others));
  StoredCosts const from = stored(side);
  with_data(cost_, [&](auto const* data) {
    using Wide = std::conditional_t<(sizeof(*data) > sizeof(T)), double, T>;
    Wide const factor = static_cast<Wide>(1 / stored_unit_), term = static_cast<Wide>(-origin_ / stored_unit_);
    auto const copy = [&](std::int64_t r, std::int64_t j) {
      std::int64_t const i = points[to_size(r)];
      Wide const cost = data[from.transposed ? j * from.row_stride + i : i * from.row_stride + j];
      scores[to_size(r * others + j)] = static_cast<T>(cost * factor + term);
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
  result->bound_ = this->bound_;
  for (std::vector<double>& shift : result->shift_) shift.assign(shift.size(), origin_ / 2);
  return result;
}

template class MatrixCosts<float>;
template class MatrixCosts<double>;

}  // namespace monge::cpu
