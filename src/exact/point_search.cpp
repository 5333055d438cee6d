#include "exact/point_search.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/parallel.hpp"

namespace monge {
PointSearch::PointSearch(MatrixView points, std::span<double const> origin, SearchCost cost, int threads)
    : order_(tree_order(points, {}, threads)),
      dimension_(points.columns()),
      points_(in_order(points, order_, threads)),
      origin_(origin.begin(), origin.end()),
      cost_(cost),
      unit_(cost.p ? cost.scale : std::sqrt(cost.scale)),
      threads_(threads),
      boxes_(points.rows(), dimension_, [&](std::int64_t place, std::int64_t k) {
        return points_[to_size(place * dimension_ + k)] - origin_[to_size(k)];
      }) {}

/// The search of one query at a time.
class PointSearch::Query {
 public:
  struct Found {
    double value;
    std::int64_t point;
    auto operator<=>(Found const&) const = default;
  };

  Query(PointSearch const& search, TileModels const& models, std::span<double const> steepness,
        std::span<double const> values, std::size_t count)
      : search_(search),
        models_(models),
        steepness_(steepness),
        values_(values),
        count_(count),
        in_units_(to_size(search.dimension_)) {}

  /// The best points of a query with these coordinates.
  std::vector<Found> const& nearest(double const* query) {
    query_ = query;
    for (std::size_t k = 0; k < in_units_.size(); ++k) in_units_[k] = search_.unit_ * (query[k] - search_.origin_[k]);
    found_.clear();
    int const top = tree().heights() - 1;
    visit(top, 0, least_of(top, 0));
    return found_;
  }

 private:
  TileTree const& tree() const { return search_.boxes_.tree(); }
  double most() const {
    if (found_.size() < count_) return kInfinity;
    return found_.back().value;
  }

  /// A lower bound of the values in a node.
  double least_of(int height, std::int64_t q) const {
    std::int64_t const node = tree().index(height, q);
    return search_.cost_.p ? least_distance(node) : least_square(models_.of(node));
  }

  /// Along coordinate k it is the least of (w - v)^2 - slope v in the box.
  double least_square(double const* model) const {
    double least = -model[0];
    model += kModelOwn;
    for (std::size_t k = 0; k < in_units_.size(); ++k, model += kModelOfCoordinate) {
      double const w = in_units_[k] - model[0], half = model[1], slope = model[2];
      double const v = std::clamp(w + slope / 2, -half, half);
      least += (w - v) * (w - v) - slope * v;
    }
    return least;
  }

  /// The least of |w - v|_p - <slope, v> in the box. With any u of |u|_q <= 1, 1/p + 1/q = 1, it is at least
  ///   <u, w> - sum_k |u_k + slope_k| half_k.
  /// Taken are the slope of the norm where the box is nearest, the one at its middle, and -slope, if |slope|_q <= 1.
  double least_distance(std::int64_t node) const {
    double const p = *search_.cost_.p;
    double const* const model = models_.of(node);
    double const* const of = model + kModelOwn;
    std::size_t const d = in_units_.size();
    auto const w = [&](std::size_t k) { return in_units_[k] - of[kModelOfCoordinate * k]; };
    auto const half = [&](std::size_t k) { return of[kModelOfCoordinate * k + 1]; };
    auto const slope = [&](std::size_t k) { return of[kModelOfCoordinate * k + 2]; };
    double best = -kInfinity;
    auto const take = [&](auto const& u) {
      double bound = 0, rounding = 0;
      for (std::size_t k = 0; k < d; ++k) {
        double const uk = u(k);
        bound += uk * w(k) - std::abs(uk + slope(k)) * half(k);
        rounding += std::abs(uk * w(k));
      }
      best = std::max(best, bound - kModelRounding * rounding);
    };
    auto const take_slope_at = [&](auto const& v) {
      double const norm = p_norm(d, p, v);
      if (norm == 0) return;
      take([&](std::size_t k) {
        return p == 2 ? v(k) / norm : std::copysign(std::pow(std::abs(v(k)) / norm, p - 1), v(k));
      });
    };
    take_slope_at(w);
    take_slope_at([&](std::size_t k) { return w(k) - std::clamp(w(k), -half(k), half(k)); });
    double const factor = 1 / std::max(1.0, steepness_[to_size(node)]);
    take([&](std::size_t k) { return -factor * slope(k); });
    return best - model[0];
  }

  void visit(int height, std::int64_t q, double least) {
    if (!(least <= most()) || least == kInfinity) return;
    if (height == 0) return visit_tile(q);
    std::pair<double, std::int64_t> first{least_of(height - 1, 2 * q), 2 * q}, second{kInfinity, 2 * q + 1};
    if (second.second < tree().nodes(height - 1)) second.first = least_of(height - 1, second.second);
    if (second < first) std::swap(first, second);
    visit(height - 1, first.second, first.first);
    visit(height - 1, second.second, second.first);
  }

  void visit_tile(std::int64_t tile) {
    std::int64_t const begin = tree().first_point(0, tile), count = tree().first_point(0, tile + 1) - begin;
    std::int64_t const d = search_.dimension_;
    double const* point = search_.points_.data() + begin * d;
    double values[kTilePoints];
    for (std::int64_t p = 0; p < count; ++p, point += d) {
      auto const difference = [&](std::int64_t k) { return query_[k] - point[k]; };
      values[p] = search_.cost_(d, difference) - values_[to_size(begin + p)];
    }
    for (std::int64_t p = 0; p < count; ++p) {
      if (!(values[p] <= most()) || values[p] == kInfinity) continue;
      Found const found{values[p], search_.order_.point[to_size(begin + p)]};
      auto const at = std::upper_bound(found_.begin(), found_.end(), found);
      if (found_.size() == count_) {
        if (at == found_.end()) continue;
        std::move_backward(at, found_.end() - 1, found_.end());
        *at = found;
      } else {
        found_.insert(at, found);
      }
    }
  }

  PointSearch const& search_;
  TileModels const& models_;
  std::span<double const> steepness_;  // |slope|_q of each model, for distances (least_distance()).
  std::span<double const> values_;     // The potential in tree order; -infinity without weight.
  std::size_t count_;
  double const* query_ = nullptr;
  std::vector<double> in_units_;
  std::vector<Found> found_;
};

void PointSearch::nearest(PointSearch const& queries, std::span<double const> weights_of_queries,
                          std::span<double const> potential, std::span<double const> weights, MutableIndexView indices,
                          std::span<double> least) const {
  std::size_t const size = order_.point.size();
  std::vector<double> values(size), present(size);
  for (std::size_t place = 0; place < size; ++place) {
    std::size_t const j = to_size(order_.point[place]);
    present[place] = weights[j] > 0 ? 1 : 0;
    values[place] = weights[j] > 0 ? potential[j] : -kInfinity;
  }
  TileModels const models(boxes_, values, present, unit_, threads_);
  std::vector<double> steepness;
  for (std::int64_t node = 0; cost_.p && node < models.tree().nodes(); ++node) {
    double const* const slopes = models.of(node) + kModelOwn + 2;
    steepness.push_back(p_norm(to_size(dimension_), *cost_.p / (*cost_.p - 1),
                               [&](std::size_t k) { return slopes[kModelOfCoordinate * k]; }));
  }
  std::size_t const count = to_size(indices.columns);
  std::vector<std::int64_t> absent;  // As many as a query may need.
  for (std::size_t j = 0; j < size && absent.size() < count; ++j) {
    if (!(weights[j] > 0)) absent.push_back(static_cast<std::int64_t>(j));
  }
  parallel_ranges(threads_, indices.rows, [&](std::int64_t begin, std::int64_t end) {
    Query query(*this, models, steepness, values, count);
    for (std::int64_t place = begin; place < end; ++place) {
      std::int64_t const i = queries.order_.point[to_size(place)];
      std::int64_t* const row = indices.data + i * indices.row_stride;
      if (!(weights_of_queries[to_size(i)] > 0)) {
        for (std::size_t q = 0; q < count; ++q) row[q] = static_cast<std::int64_t>(q);
        continue;
      }
      std::vector<Query::Found> const& found = query.nearest(queries.points_.data() + place * dimension_);
      for (std::size_t q = 0; q < count; ++q) row[q] = q < found.size() ? found[q].point : absent[q - found.size()];
      least[to_size(i)] = kInfinity;
      if (!found.empty()) least[to_size(i)] = found[0].value;
    }
  });
}

}  // namespace monge
