// Models of the nodes of trees on the device, and the search for the tiles of pairs that carry mass
// (geometry/tile_model.hpp; docs/math.md, section 20).
#pragma once
#include <cstdint>

#include "core/host_device.hpp"
#include "cuda/tiles/listed_pass.hpp"
#include "entropic/update_rule.hpp"

namespace monge::cuda {

/// The nodes whose models the search reads: tiles, and up to kWordHeight levels above them. A node of the highest level
/// stands for a word of bits.
inline constexpr int kWordHeight = 5;
struct TreeLevels {
  int heights = 1;                  // Levels.
  int first[kWordHeight + 1] = {};  // The number of the first node of a level,
  int nodes[kWordHeight + 1] = {};  // and the nodes.

  explicit TreeLevels(std::int64_t tiles);
  TreeLevels() = default;
  int all() const { return first[heights - 1] + nodes[heights - 1]; }
  /// Nodes of the highest level.
  MONGE_HOST_DEVICE int words() const { return nodes[heights - 1]; }
};

/// box_size() numbers for each node.
void find_boxes(OrderedPoints const& points, TreeLevels const& levels, double* boxes, cudaStream_t stream);

struct ModelArguments {
  OrderedPoints points;
  TreeLevels levels;
  double const* boxes;
  double const* potential;  // By the caller's numbers;
  double const* norm;       // the same, subtracted from the potential;
  double const* weight;     // the same; null: no point is left out, and the masses are numbers of points.
  double unit, log_unit;    // The factors that give coordinates and potentials their units.
  double* models;           // model_size() numbers for each node.
};
void find_models(ModelArguments const& arguments, cudaStream_t stream);

/// One side of a search.
struct SearchSide {
  TreeLevels levels;
  double* models;  // model_size() numbers for each node.
};
struct SearchArguments {
  SearchSide rows, columns;
  int dimension;
  double share;      // The most that is left out of sum_j b_j 2^t_ij of each row i, if this sum is at least 1.
  double total;      // The mass of the columns.
  NearWord* near;    // kNearWords for each tile of the rows.
  TileBits bits;     // What is found is added to it,
  TileBits across;   // and to the bits of the other side, which may be the same.
  double* far;       // For each word of marks a bound of what a row lacks by its squares that are not marked.
  double* left_out;  // For each tile of the rows a bound of what is left out.
};
/// Finds a few tiles of columns in which the largest terms b_j 2^t_ij may lie.
void find_near_tiles(SearchArguments const& arguments, cudaStream_t stream);
/// Marks the squares that the rows may need.
void mark_squares(SearchArguments const& arguments, cudaStream_t stream);
/// Counts the marked squares of each list: TileBits::first. `size`: the words of marks.
struct CountArguments {
  TileBits bits[2];
  std::int64_t size[2];
};
void count_squares(CountArguments const& arguments, int lists, cudaStream_t stream);
/// Finds the tiles of columns that the rows of each tile may need, in marked squares.
void find_reached_tiles(SearchArguments const& arguments, cudaStream_t stream);

/// Leaves out, for each tile of rows, the listed tiles that hold least by the measure: together at most `share` of each
/// row.
struct ThinArguments {
  OrderedPoints rows;
  TileBits bits, across;  // The present lists of this side and of the other one, which may be the same.
  Measure measure;        // What the last softmin over the list wrote;
  double const* softmin;  // its result, by the caller's numbers.
  // The squares of the new lists of both sides, zero before the first call. A call sets the bits of the tiles that the
  // rows need.
  std::uint32_t *kept, *kept_across;
  double share, eps;
};
void thin_tiles(ThinArguments const& arguments, cudaStream_t stream);

/// Upper bounds of the mass that the marginals of a side lack: weight_i of_tile exp((potential_i - plus_i) / eps). The
/// number of_tile bounds the sum that a row of the tile lacks at the potential `plus`. Arrays of points have the
/// caller's order; of_tiles has a number for each tile.
struct LackArguments {
  OrderedPoints points;
  double const *of_tiles, *weight, *potential, *plus;
  double eps;
  double* out;
};
void find_lack(LackArguments const& arguments, cudaStream_t stream);

/// The potentials of one side that a sweep makes of `old` and their transforms `plus`.
struct NextArguments {
  PackedSide points;
  UpdateRule rule;
  double const *old, *plus;
  double* out;
};
void find_next(NextArguments const& arguments, cudaStream_t stream);

/// Partial sums of weight_i min(exp(|now_i - then_i| / eps) - 1, most), kMovementParts for each side.
inline constexpr int kMovementParts = 64;
struct MovementArguments {
  struct OfSide {
    int size;
    double const *weight, *now, *then;
  };
  OfSide side[2];
  double eps, most;
  double* out;
};
void find_movement(MovementArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
