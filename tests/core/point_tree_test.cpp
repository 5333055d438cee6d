// The order of a cloud and the bounds of its tiles, against sums over all pairs.
#include "geometry/point_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/numbers.hpp"
#include "geometry/tile_bounds.hpp"
#include "oracle/problem.hpp"

namespace monge::oracle {
namespace {

struct TreeCloud {
  std::string name;
  std::int64_t n, d;
  std::vector<double> points;
};

/// Clouds on which trees and bounds go wrong most easily.
std::vector<TreeCloud> hard_clouds() {
  Random random(5);
  std::vector<TreeCloud> clouds;
  auto const add = [&](std::string name, std::int64_t n, std::int64_t d, auto const& coordinate) {
    TreeCloud cloud{std::move(name), n, d, {}};
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t k = 0; k < d; ++k) cloud.points.push_back(coordinate(i, k));
    }
    clouds.push_back(std::move(cloud));
  };
  for (std::int64_t const n : {1, 31, 32, 33, 65, 1000})
    add("uniform", n, 2, [&](std::int64_t, std::int64_t) { return random.uniform(); });
  for (std::int64_t const d : {1, 3, 6, 10})
    add("gaussian", 300, d, [&](std::int64_t, std::int64_t) { return random.normal(); });
  add("clusters", 500, 3, [&](std::int64_t i, std::int64_t k) {
    return static_cast<double>((i * 7 + k * 3) % 11) + 1e-3 * random.normal();
  });
  add("line", 400, 3, [](std::int64_t i, std::int64_t k) { return static_cast<double>((i * 37) % 400 * (k + 1)); });
  add("one point", 200, 2, [](std::int64_t, std::int64_t) { return 0.3; });
  add("twice", 200, 2, [](std::int64_t i, std::int64_t k) { return std::sin(static_cast<double>(i / 2 + 50 * k)); });
  add("lattice", 512, 3, [](std::int64_t i, std::int64_t k) { return static_cast<double>((i >> (3 * k)) & 7) / 8; });
  add("heavy tails", 600, 3,
      [&](std::int64_t, std::int64_t) { return random.normal() / std::pow(random.uniform() + 1e-6, 1.0); });
  add("huge", 100, 2, [&](std::int64_t, std::int64_t) { return 1.7e308 * (2 * random.uniform() - 1); });
  return clouds;
}

/// Some classes have no point, one class has one point. A block of all pairs of classes has more pairs than
/// TileLogits::largest() reads.
constexpr std::int64_t kClasses = 9;

/// The labels of n points; empty unless `wanted`.
std::vector<std::int64_t> some_labels(std::int64_t n, bool wanted) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; wanted && i < n; ++i)
    labels.push_back(i == n / 2 ? 3 : std::array{0, 2, 4, 8}[i * i % 7 % 4]);
  return labels;
}

IndexView view_of(std::vector<std::int64_t> const& labels) {
  return {labels.data(), std::ssize(labels)};
}

TEST(PointTree, is_a_permutation_whatever_the_threads) {
  for (TreeCloud const& cloud : hard_clouds()) {
    for (bool const labelled : {false, true}) {
      SCOPED_TRACE(cloud.name);
      MatrixView const points(cloud.points.data(), cloud.n, cloud.d);
      std::vector<std::int64_t> const labels = some_labels(cloud.n, labelled);
      PointOrder const order = tree_order(points, view_of(labels), 1);
      std::vector<std::int64_t> sorted = order.point;
      std::sort(sorted.begin(), sorted.end());
      for (std::int64_t i = 0; i < cloud.n; ++i) {
        EXPECT_EQ(sorted[to_size(i)], i);
        EXPECT_EQ(order.place[to_size(order.point[to_size(i)])], i);
      }
      EXPECT_TRUE(std::ranges::is_sorted(in_order(view_of(labels), order)));
      EXPECT_EQ(tree_order(points, view_of(labels), 3).point, order.point);
    }
  }
}

// The points of one label are split as a cloud of their own: by the widest side, between children.
TEST(PointTree, splits_the_points_of_a_label) {
  Random random(3);
  std::int64_t const n = 700;
  std::vector<double> points;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < n; ++i) {
    points.insert(points.end(), {random.uniform(), 10 * random.uniform()});
    labels.push_back(i % 3);
  }
  PointOrder const order = tree_order(MatrixView(points.data(), n, 2), view_of(labels), 2);
  std::vector<double> const ordered = in_order(MatrixView(points.data(), n, 2), order);
  std::vector<std::int64_t> const label = in_order(view_of(labels), order);
  double left = 0, right = 10;
  for (std::int64_t place = 0; place < n; ++place) {
    if (label[to_size(place)] != label[512]) continue;
    double const across = ordered[to_size(2 * place + 1)];
    (place < 512 ? left : right) = place < 512 ? std::max(left, across) : std::min(right, across);
  }
  EXPECT_LE(left, right);
}

TEST(PointTree, has_whole_tiles_and_all_nodes) {
  for (std::int64_t const n : {1, 31, 32, 33, 64, 65, 1000, 4097}) {
    TileTree const tree(n);
    EXPECT_EQ(tree.tiles(), (n + 31) / 32);
    EXPECT_EQ(tree.nodes(tree.heights() - 1), 1);
    std::int64_t nodes = 0;
    for (int height = 0; height < tree.heights(); ++height) {
      std::int64_t points = 0;
      for (std::int64_t q = 0; q < tree.nodes(height); ++q, ++nodes) {
        EXPECT_EQ(tree.index(height, q), nodes);
        EXPECT_LT(tree.first_point(height, q), tree.first_point(height, q + 1));
        points += tree.first_point(height, q + 1) - tree.first_point(height, q);
      }
      EXPECT_EQ(points, n);
    }
    EXPECT_EQ(tree.nodes(), nodes);
  }
}

/// A side of a problem in tree order.
struct Ordered {
  Ordered(TreeCloud const& cloud, std::vector<std::int64_t> const& given, Random& random)
      : order(tree_order(MatrixView(cloud.points.data(), cloud.n, cloud.d), view_of(given), 2)),
        points(in_order(MatrixView(cloud.points.data(), cloud.n, cloud.d), order)),
        labels(in_order(view_of(given), order)),
        boxes(
            cloud.n, cloud.d, [&](std::int64_t place, std::int64_t k) { return points[to_size(place * cloud.d + k)]; },
            labels) {
    for (std::int64_t i = 0; i < cloud.n; ++i) {
      weights.push_back(i % 5 == 3 ? 0.0 : std::exp(random.normal()));
      potential.push_back(3 * random.normal());
    }
    double const total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight /= total > 0 ? total : 1;
    if (total == 0) weights[0] = 1;
  }
  PointOrder order;
  std::vector<double> points;
  std::vector<std::int64_t> labels;
  std::vector<double> weights, potential;
  TileBoxes boxes;
};

/// Costs of the classes of both sides: of any size, without symmetry, of both signs.
LabelLogits some_label_logits(bool wanted, double largest, Random& random) {
  LabelLogits labels{.columns = kClasses};
  for (int e = 0; wanted && e < kClasses * kClasses; ++e)
    labels.add(e % 6 == 0 ? 0 : (e % 4 == 0 ? largest : 20) * (random.uniform() - 0.8));
  return labels;
}

double squared_distance(double const* x, double const* y, std::int64_t d) {
  double sum = 0;
  for (std::int64_t k = 0; k < d; ++k) sum += (x[k] - y[k]) * (x[k] - y[k]);
  return sum;
}

/// Base-2 logits, row by row, where the potential of the columns has been given and the rows sum to 1.
std::vector<double> logits(Ordered& x, Ordered const& y, std::int64_t d, double unit, LabelLogits const& labels) {
  std::size_t const n = x.weights.size(), m = y.weights.size();
  std::vector<double> t(n * m);
  for (std::size_t i = 0; i < n; ++i) {
    double largest = std::numeric_limits<double>::lowest(), sum = 0;
    for (std::size_t j = 0; j < m; ++j) {
      std::int64_t const r = static_cast<std::int64_t>(i), c = static_cast<std::int64_t>(j);
      t[i * m + j] =
          y.potential[j] - unit * unit * squared_distance(x.points.data() + r * d, y.points.data() + c * d, d);
      if (!labels.logit.empty()) t[i * m + j] += labels.logit[to_size(x.labels[i] * labels.columns + y.labels[j])];
      if (y.weights[j] > 0) largest = std::max(largest, t[i * m + j]);
    }
    for (std::size_t j = 0; j < m; ++j) sum += y.weights[j] * std::exp2(std::min(t[i * m + j] - largest, 100.0));
    x.potential[i] = -largest - std::log2(sum);
    for (std::size_t j = 0; j < m; ++j) t[i * m + j] += x.potential[i];
  }
  return t;
}

TEST(TileBounds, lie_above_every_logit_and_what_is_left_out) {
  Random random(11);
  std::vector<TreeCloud> const clouds = hard_clouds();
  for (TreeCloud const& cloud : clouds) {
    if (cloud.name == "huge") continue;  // Squares overflow; operators refuse it.
    for (TreeCloud const& other : clouds) {
      if (other.d != cloud.d || other.name == "huge") continue;
      double diameter = 0;
      for (double const value : cloud.points) diameter = std::max(diameter, std::abs(value));
      for (auto const& [blur, largest_label] :
           {std::pair{1.0, 0.0}, {0.1, 0.0}, {0.01, 0.0}, {0.1, 20.0}, {0.01, 200.0}, {0.1, 1e6}}) {
        SCOPED_TRACE(cloud.name + " " + std::to_string(cloud.n) + " and " + other.name + ", blur " +
                     std::to_string(blur) + ", labels " + std::to_string(largest_label));
        bool const labelled = largest_label > 0;
        Ordered x(cloud, some_labels(cloud.n, labelled), random), y(other, some_labels(other.n, labelled), random);
        LabelLogits const labels = some_label_logits(labelled, largest_label, random);
        double const unit = 1 / (blur * diameter);
        std::vector<double> const t = logits(x, y, cloud.d, unit, labels);
        TileModels const rows(x.boxes, x.potential, {}, unit, 2), columns(y.boxes, y.potential, y.weights, unit, 1);
        TileLogits const bounds{rows, columns, labels};
        TileTree const &of_x = rows.tree(), &of_y = columns.tree();
        std::int64_t const n = cloud.n, m = other.n;
        double size = 0;
        for (double const value : t) size = std::max(size, std::abs(value));
        auto const each = [&](std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last,
                              auto const& visit) {
          for (std::int64_t i = begin; i < end; ++i) {
            for (std::int64_t j = first; j < last; ++j) {
              if (y.weights[to_size(j)] > 0) visit(i, j, t[to_size(i * m + j)]);
            }
          }
        };
        for (int height = 0; height < of_x.heights(); ++height) {
          for (std::int64_t q = 0; q < of_x.nodes(height); ++q) {
            int const low = std::min(height, of_y.heights() - 1);
            for (std::int64_t p = 0; p < of_y.nodes(low); ++p) {
              double const bound = bounds.largest(of_x.index(height, q), of_y.index(low, p));
              double largest = std::numeric_limits<double>::lowest();
              each(of_x.first_point(height, q), of_x.first_point(height, q + 1), of_y.first_point(low, p),
                   of_y.first_point(low, p + 1),
                   [&](std::int64_t, std::int64_t, double logit) { largest = std::max(largest, logit); });
              // The sums of the squares here are rounded, too.
              EXPECT_LE(largest, bound + 1e-13 * size);
            }
          }
        }
        constexpr double kShare = 1e-3;
        TileReach const reached = reach(bounds, kShare, 3);
        EXPECT_EQ(reach(bounds, kShare, 1).list.tile, reached.list.tile);
        ASSERT_EQ(reached.list.tiles(), of_x.tiles());
        for (std::int64_t tile = 0; tile < of_x.tiles(); ++tile) {
          std::vector<bool> kept(to_size(of_y.tiles()));
          for (std::int32_t const q : reached.list.of(tile)) kept[to_size(q)] = true;
          EXPECT_LE(reached.left_out[to_size(tile)], kShare * (1 + 1e-9));
          for (std::int64_t i = of_x.first_point(0, tile); i < of_x.first_point(0, tile + 1); ++i) {
            double lost = 0;
            each(i, i + 1, 0, m, [&](std::int64_t, std::int64_t j, double logit) {
              if (!kept[to_size(j / kTilePoints)]) lost += y.weights[to_size(j)] * std::exp2(logit);
            });
            EXPECT_LE(lost, reached.left_out[to_size(tile)] * (1 + 1e-9)) << n << " " << m;
          }
        }
        TileList const back = transposed(reached.list, of_y.tiles());
        EXPECT_EQ(transposed(back, of_x.tiles()).tile, reached.list.tile);
        TileList const near = nearest(bounds, 4, 2);
        ASSERT_EQ(near.tiles(), of_x.tiles());
        EXPECT_EQ(joined(near, reached.list).tile.size() >= reached.list.tile.size(), true);
        for (std::int64_t tile = 0; tile < of_x.tiles(); ++tile) EXPECT_GE(near.of(tile).size(), 1u);
      }
    }
  }
}

TEST(TileLists, lose_the_tiles_that_hold_least) {
  Random random(13);
  std::int64_t const rows = 60, columns = 50;
  constexpr double kShare = 1e-3;
  TileList list;
  TileParts parts;
  std::vector<double> of_rows, of_columns;  // The true parts.
  auto const add = [](double part, std::vector<double>& all, std::vector<unsigned char>& bins) {
    all.push_back(part);
    bins.push_back(static_cast<unsigned char>(bin_of_bound(std::log2(part), std::log2(kShare))));
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      if (random.uniform() < 0.3) continue;
      list.tile.push_back(static_cast<std::int32_t>(column));
      bool const is_idle = row == 7;
      add(is_idle ? 0 : std::exp(-30 * random.uniform()), of_rows, parts.of_rows);
      add(is_idle ? 0 : std::exp(-30 * random.uniform()), of_columns, parts.of_columns);
    }
    list.begin.push_back(std::ssize(list.tile));
  }
  std::vector<double> room;
  for (std::int64_t column = 0; column < columns; ++column) room.push_back(kShare * (column == 3 ? 1e-6 : 1));
  TileList const thin = thinned(list, parts, kShare, room);
  ASSERT_EQ(thin.tiles(), rows);
  EXPECT_LT(thin.tile.size(), list.tile.size() * 3 / 4);
  std::vector<double> lost(to_size(columns));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::span<std::int32_t const> const kept = thin.of(row);
    EXPECT_TRUE(std::ranges::is_sorted(kept));
    EXPECT_EQ(std::ranges::count(kept, list.of(row).front()) == 1 && row == 7, kept.size() == 1);
    double of_row = 0;
    std::size_t found = 0;
    for (std::int64_t k = list.begin[to_size(row)]; k < list.begin[to_size(row) + 1]; ++k) {
      std::int32_t const tile = list.tile[to_size(k)];
      if (std::ranges::count(kept, tile) > 0) {
        ++found;
        continue;
      }
      of_row += of_rows[to_size(k)];
      lost[to_size(tile)] += of_columns[to_size(k)];
    }
    EXPECT_EQ(found, kept.size());
    EXPECT_LE(of_row, kShare);
  }
  for (std::int64_t column = 0; column < columns; ++column) EXPECT_LE(lost[to_size(column)], room[to_size(column)]);
}

}  // namespace
}  // namespace monge::oracle
