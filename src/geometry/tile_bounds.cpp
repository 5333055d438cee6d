#include "geometry/tile_bounds.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/numbers.hpp"
#include "core/parallel.hpp"

namespace monge {
namespace {

/// Pairs of a pass in the time to fit the model of a tile, and to find the list of a tile.
constexpr std::int64_t kPairsOfModel = 1 << 12, kPairsOfSearch = 1 << 14;

}  // namespace

TileBoxes::TileBoxes(std::int64_t size, std::int64_t dimension, Coordinate coordinate,
                     std::span<std::int64_t const> labels)
    : tree_(size),
      dimension_(dimension),
      coordinate_(std::move(coordinate)),
      values_(to_size(box_size(dimension) * tree_.nodes())) {
  for (std::int64_t tile = 0; tile < tree_.tiles(); ++tile) {
    std::int64_t const begin = tree_.first_point(0, tile), end = tree_.first_point(0, tile + 1);
    for (std::int64_t k = 0; k < dimension; ++k) {
      double least = coordinate_(begin, k), most = least;
      for (std::int64_t place = begin + 1; place < end; ++place) {
        double const value = coordinate_(place, k);
        least = std::min(least, value);
        most = std::max(most, value);
      }
      set_box(at(tile), dimension, k, least, most);
    }
  }
  for (int height = 1; height < tree_.heights(); ++height) {
    for (std::int64_t q = 0; q < tree_.nodes(height); ++q) {
      std::int64_t const first = tree_.index(height - 1, 2 * q);
      std::int64_t const second = 2 * q + 1 < tree_.nodes(height - 1) ? first + 1 : first;
      join_boxes(at(tree_.index(height, q)), at(first), at(second), dimension);
    }
  }
  for (int height = 0; height < tree_.heights() && !labels.empty(); ++height) {
    for (std::int64_t q = 0; q < tree_.nodes(height); ++q)
      labels_.push_back(
          {labels[to_size(tree_.first_point(height, q))], labels[to_size(tree_.first_point(height, q + 1) - 1)]});
  }
}

TileModels::TileModels(TileBoxes const& boxes, std::span<double const> values, std::span<double const> weights,
                       double unit, int threads)
    : boxes_(&boxes), size_(model_size(boxes.dimension())), nodes_(to_size(boxes.tree().nodes() * size_)) {
  TileTree const& tree = boxes.tree();
  std::int64_t const d = boxes.dimension();
  for (std::int64_t node = 0; node < tree.nodes(); ++node) set_model_box(at(node), boxes.of(node), d, unit);
  parallel_ranges(
      useful_threads(threads, tree.tiles(), kPairsOfModel), tree.tiles(), [&](std::int64_t begin, std::int64_t end) {
        std::vector<double> scratch(to_size(fit_scratch(d)));
        for (std::int64_t tile = begin; tile < end; ++tile) {
          std::int64_t const first = tree.first_point(0, tile), count = tree.first_point(0, tile + 1) - first;
          auto const read = [&](std::int64_t p, double* point) -> ModelPoint {
            std::size_t const place = to_size(first + p);
            for (std::int64_t k = 0; k < d; ++k) point[k] = unit * (boxes.coordinate(first + p, k) - boxes.of(tile)[k]);
            return {values[place], weights.empty() ? 1.0 : weights[place]};
          };
          fit_model(at(tile), d, count, read, scratch.data());
        }
      });
  for (int height = 1; height < tree.heights(); ++height) {
    for (std::int64_t q = 0; q < tree.nodes(height); ++q) {
      double const* const first = of(tree.index(height - 1, 2 * q));
      bool const has_second = 2 * q + 1 < tree.nodes(height - 1);
      join_models(at(tree.index(height, q)), first, has_second ? first + size_ : nullptr, d);
    }
  }
}

double TileLogits::largest(std::int64_t row, std::int64_t column) const {
  double const of_points = largest_logit(rows.of(row), columns.of(column), rows.dimension());
  if (labels.logit.empty()) return of_points;
  LabelRange const of_row = rows.boxes().labels(row), of_column = columns.boxes().labels(column);
  constexpr std::int64_t kMostPairs = 64;  // Blocks of more labels belong to large nodes, whose children are tested.
  if ((of_row.last - of_row.first + 1) * (of_column.last - of_column.first + 1) > kMostPairs)
    return of_points + labels.largest;
  double most = -kInfinity;
  for (std::int64_t k = of_row.first; k <= of_row.last; ++k) {
    for (std::int64_t l = of_column.first; l <= of_column.last; ++l)
      most = std::max(most, labels.logit[to_size(k * labels.columns + l)]);
  }
  return of_points + most;
}

namespace {

/// Calls work(range, first root, end of roots, height of the roots) for ranges that together are all row nodes of one
/// height. A search from other roots may keep other tiles, so the height does not depend on the number of threads.
template <class Work>
int for_ranges(TileTree const& tree, int threads, Work const& work) {
  threads = useful_threads(threads, tree.tiles(), kPairsOfSearch);
  constexpr std::int64_t kRoots = 256;
  int height = tree.heights() - 1;
  while (height > 0 && tree.nodes(height) < kRoots) --height;
  int const ranges = static_cast<int>(std::min<std::int64_t>(threads, tree.nodes(height)));
  on_threads(ranges, [&](int range) {
    work(range, tree.nodes(height) * range / ranges, tree.nodes(height) * (range + 1) / ranges, height);
  });
  return ranges;
}

/// Appends the lists of consecutive ranges of rows, and clears them.
TileList chained(std::span<TileList> parts) {
  TileList all;
  std::size_t size = 0;
  for (TileList const& part : parts) size += part.tile.size();
  all.tile.reserve(size);
  for (TileList& part : parts) {
    std::int64_t const before = all.begin.back();
    for (std::size_t k = 1; k < part.begin.size(); ++k) all.begin.push_back(before + part.begin[k]);
    all.tile.insert(all.tile.end(), part.tile.begin(), part.tile.end());
    part = {};
  }
  return all;
}

/// The search of one range of rows.
class Search {
 public:
  Search(TileLogits const& logits, double share)
      : logits_(logits),
        rows_(logits.rows),
        columns_(logits.columns),
        share_(share),
        least_(std::log2(kNodeFraction * share / columns_.total())),
        levels_(to_size(rows_.tree().heights() + 1)) {
    levels_.back() = {columns_.tree().heights() - 1, {0}, {}};
  }

  void visit(int height, std::int64_t q) { visit(height, q, levels_.back(), 0); }
  TileList list;
  std::vector<double> left_out;

 private:
  struct Candidates {
    int height = 0;
    std::vector<std::int64_t> nodes;
    std::vector<double> bounds;
  };

  void visit(int height, std::int64_t q, Candidates const& from, double lost) {
    std::int64_t const row = rows_.tree().index(height, q);
    Candidates& own = levels_[to_size(height)];
    lost += refine(row, from, own);
    while (own.height > height) {
      std::swap(own, spare_);
      lost += refine(row, spare_, own);
    }
    if (height == 0) return keep(own, lost);
    visit(height - 1, 2 * q, own, lost);
    if (2 * q + 1 < rows_.tree().nodes(height - 1)) visit(height - 1, 2 * q + 1, own, lost);
  }

  /// The children of the candidates that may count for this row; returns the bound of the others.
  double refine(std::int64_t row, Candidates const& from, Candidates& to) const {
    TileTree const& tree = columns_.tree();
    bool const down = from.height > 0;
    to.height = down ? from.height - 1 : 0;
    to.nodes.clear();
    to.bounds.clear();
    double lost = 0;
    auto const test = [&](std::int64_t q) {
      std::int64_t const node = tree.index(to.height, q);
      double const bound = logits_.largest(row, node);
      if (bound <= least_) {
        lost += std::exp2(bound + columns_.log_mass(node));
      } else if (!(columns_.log_mass(node) == -kInfinity)) {
        to.nodes.push_back(q);
        to.bounds.push_back(bound);
      }
    };
    for (std::int64_t const q : from.nodes) {
      if (!down) {
        test(q);
      } else {
        test(2 * q);
        if (2 * q + 1 < tree.nodes(to.height)) test(2 * q + 1);
      }
    }
    return lost;
  }

  /// Leaves out the tiles with the smallest bounds, as many as the share allows, by a histogram of the bounds.
  void keep(Candidates const& candidates, double lost) {
    std::array<double, kBoundBins> sums{};
    double const room = share_ - lost, top = std::log2(share_);
    auto const size = [&](std::size_t k) {
      return candidates.bounds[k] + columns_.log_mass(columns_.tree().index(0, candidates.nodes[k]));
    };
    for (std::size_t k = 0; k < candidates.nodes.size(); ++k) {
      double const bound = size(k);
      if (bound <= top) sums[to_size(bin_of_bound(bound, top))] += std::exp2(bound);
    }
    int first_out = kBoundBins;
    for (double sum = 0; first_out > 0 && sum + sums[to_size(first_out - 1)] <= room; --first_out)
      sum += sums[to_size(first_out - 1)];
    for (std::size_t k = 0; k < candidates.nodes.size(); ++k) {
      double const bound = size(k);
      if (bound <= top && bin_of_bound(bound, top) >= first_out) {
        lost += std::exp2(bound);
      } else {
        list.tile.push_back(static_cast<std::int32_t>(candidates.nodes[k]));
      }
    }
    list.begin.push_back(static_cast<std::int64_t>(list.tile.size()));
    left_out.push_back(lost * (1 + kModelRounding));
  }

  TileLogits const& logits_;
  TileModels const &rows_, &columns_;
  double share_, least_;
  std::vector<Candidates> levels_;  // Candidates by the height of the rows.
  Candidates spare_;
};

}  // namespace

TileReach reach(TileLogits const& logits, double share, int threads) {
  std::vector<TileList> parts(to_size(std::max(threads, 1)));
  std::vector<std::vector<double>> left_out(parts.size());
  int const ranges =
      for_ranges(logits.rows.tree(), threads, [&](int range, std::int64_t begin, std::int64_t end, int height) {
        Search search(logits, share);
        for (std::int64_t q = begin; q < end; ++q) search.visit(height, q);
        parts[to_size(range)] = std::move(search.list);
        left_out[to_size(range)] = std::move(search.left_out);
      });
  TileReach result{chained(std::span(parts).first(to_size(ranges))), {}};
  for (int range = 0; range < ranges; ++range)
    result.left_out.insert(result.left_out.end(), left_out[to_size(range)].begin(), left_out[to_size(range)].end());
  return result;
}

TileList nearest(TileLogits const& logits, std::int64_t count, int threads) {
  TileModels const &rows = logits.rows, &columns = logits.columns;
  TileTree const& tree = columns.tree();
  int const ranges = useful_threads(threads, rows.tree().tiles(), kPairsOfSearch);
  std::vector<TileList> parts(to_size(ranges));
  on_threads(ranges, [&](int range) {
    TileList& list = parts[to_size(range)];
    std::vector<std::pair<double, std::int64_t>> best, next;
    for (std::int64_t row = rows.tree().tiles() * range / ranges; row < rows.tree().tiles() * (range + 1) / ranges;
         ++row) {
      best.assign(1, {0.0, 0});
      for (int height = tree.heights() - 2; height >= 0; --height) {
        next.clear();
        for (auto const& [unused, q] : best) {
          for (std::int64_t child = 2 * q; child < std::min(2 * q + 2, tree.nodes(height)); ++child) {
            std::int64_t const node = tree.index(height, child);
            double const bound = logits.largest(row, node) + columns.log_mass(node);
            if (columns.log_mass(node) > -kInfinity) next.emplace_back(std::isnan(bound) ? 0 : -bound, child);
          }
        }
        if (std::ssize(next) > count) {
          std::nth_element(next.begin(), next.begin() + count, next.end());
          next.resize(to_size(count));
        }
        std::swap(best, next);
      }
      for (auto const& [unused, q] : best) list.tile.push_back(static_cast<std::int32_t>(q));
      std::sort(list.tile.begin() + list.begin.back(), list.tile.end());
      list.begin.push_back(static_cast<std::int64_t>(list.tile.size()));
    }
  });
  return chained(std::span(parts).first(to_size(ranges)));
}

TileList transposed(TileList const& list, std::int64_t tiles) {
  TileList result;
  result.begin.assign(to_size(tiles) + 1, 0);
  result.tile.resize(list.tile.size());
  for (std::int32_t const tile : list.tile) ++result.begin[to_size(tile) + 1];
  for (std::size_t k = 1; k < result.begin.size(); ++k) result.begin[k] += result.begin[k - 1];
  std::vector<std::int64_t> next(result.begin.begin(), result.begin.end() - 1);
  for (std::int64_t row = 0; row < list.tiles(); ++row) {
    for (std::int32_t const tile : list.of(row))
      result.tile[to_size(next[to_size(tile)]++)] = static_cast<std::int32_t>(row);
  }
  return result;
}

TileList thinned(TileList const& list, TileParts const& parts, double share, std::span<double const> column_room) {
  using Counts = std::array<std::int32_t, kBoundBins>;
  auto const count = [](unsigned char bin, Counts& counts) {
    if (bin != kAboveBins) ++counts[bin];
  };
  double const top = std::log2(share);
  std::vector<Counts> of_columns(column_room.size());
  for (std::size_t k = 0; k < list.tile.size(); ++k) count(parts.of_columns[k], of_columns[to_size(list.tile[k])]);
  std::vector<int> out_of_columns;
  for (std::size_t column = 0; column < column_room.size(); ++column)
    out_of_columns.push_back(first_bin_out(of_columns[column].data(), top, column_room[column]));
  TileList result;
  result.begin.reserve(list.begin.size());
  result.tile.reserve(list.tile.size());  // Memory that is never written takes no room.
  for (std::int64_t row = 0; row < list.tiles(); ++row) {
    auto const begin = to_size(list.begin[to_size(row)]), end = to_size(list.begin[to_size(row) + 1]);
    Counts counts{};
    for (std::size_t k = begin; k < end; ++k) count(parts.of_rows[k], counts);
    int const out = first_bin_out(counts.data(), top, share);
    for (std::size_t k = begin; k < end; ++k) {
      if (parts.of_rows[k] == kAboveBins || parts.of_rows[k] < out || parts.of_columns[k] == kAboveBins ||
          parts.of_columns[k] < out_of_columns[to_size(list.tile[k])])
        result.tile.push_back(list.tile[k]);
    }
    // Passes need a tile for each tile of rows. Rows without weight need none.
    if (std::ssize(result.tile) == result.begin.back() && begin < end) result.tile.push_back(list.tile[begin]);
    result.begin.push_back(std::ssize(result.tile));
  }
  return result;
}

TileList joined(TileList const& first, TileList const& second) {
  TileList result;
  result.begin.reserve(first.begin.size());
  result.tile.reserve(first.tile.size() + second.tile.size());  // Memory that is never written takes no room.
  for (std::int64_t row = 0; row < first.tiles(); ++row) {
    std::ranges::set_union(first.of(row), second.of(row), std::back_inserter(result.tile));
    result.begin.push_back(static_cast<std::int64_t>(result.tile.size()));
  }
  return result;
}

}  // namespace monge
