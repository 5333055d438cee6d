// Passes over the tiles of pairs that carry mass (docs/math.md, section 20). Points lie in the order of a tree inside
// these passes, in tiles of kTilePoints; all vectors outside have the caller's order.
#pragma once
#include <cstdint>

#include "cuda/launch/arguments.hpp"
#include "geometry/point_tree.hpp"

namespace monge::cuda {

/// Packed points of one side in the order of its tree. Padding points are zero.
struct OrderedPoints {
  int size = 0;
  int padded_size = 0;
  int dimension = 0;
  int stride = 0;  // Elements between points.
  DataType scalar = DataType::float32;
  void const* points = nullptr;
  int const* point = nullptr;  // The caller's number of the point at each place.

  int tiles() const { return static_cast<int>((size - 1) / kTilePoints + 1); }
  friend bool operator==(OrderedPoints const&, OrderedPoints const&) = default;
};

/// For each tile of one side a bit for each tile of the other, as words of 32 tiles. The words of 32 rows are a square
/// of 32 x 32 tiles. Only marked squares are in memory; the bits of the others are zero.
struct TileBits {
  int mark_words = 0;                // Words of marks for a row of squares.
  std::uint32_t* marks = nullptr;    // A bit for each square: [rows of squares][mark_words].
  std::int64_t* first = nullptr;     // The number of marked squares before each word of marks, and of all.
  std::uint32_t* squares = nullptr;  // The 32 words of each marked square.

  friend bool operator==(TileBits const&, TileBits const&) = default;
};

/// A word of bits of one row.
struct NearWord {
  int word = 0;
  std::uint32_t bits = 0;
};
/// The words of a row in a list of near tiles.
inline constexpr int kNearWords = 8;

/// Sums over blocks of pairs by an expansion (docs/math.md, section 20). A block is kBlockTiles tiles of rows and the
/// 32 tiles of a word of columns.
struct Expansion {
  static constexpr int kBlockTiles = 4, kMostDimensions = 3, kOrder = 6;

  double const* row_boxes = nullptr;     // Boxes of kBlockTiles tiles each (geometry/tile_model.hpp),
  double const* column_boxes = nullptr;  // and of words of tiles.
  /// A block is expanded only if |z| is below `largest` for its pairs. 0: there is no expansion, and rows have no
  /// partial sums of expanded blocks.
  double largest = 0;
  double error = 0;    // A sum lacks at most this fraction of itself. Up to rounding, no sum is above the true one.
  bool is_on = false;  // If not, no block is expanded.

  /// For sums that may lack the fraction `error`.
  static Expansion of(double const* row_boxes, double const* column_boxes, double error);
  bool exists() const { return largest > 0; }
  double lack() const { return is_on ? error : 0; }
  friend bool operator==(Expansion const&, Expansion const&) = default;
};

/// Softmins measure the listed tiles: for each one they write the bin (bin_of_bound()) of the largest part of a row's
/// sum that lies in it, relative to the sum that `plus` stands for. Tiles of expanded blocks are not measured.
struct Measure {
  unsigned char* bins = nullptr;  // For each bit of each marked square; null: passes do not measure.
  double const* plus = nullptr;   // A number near the softmin of each row, by the caller's numbers;
  double const* norm = nullptr;   // PackedSide::norm of the rows, the same.
  int columns = 1;                // The number of the columns' side.
  double top = 0;                 // The logarithm of the truncation.

  friend bool operator==(Measure const&, Measure const&) = default;
};

/// The tiles of a pass whose rows are the points of one side, and its memory.
struct ListedTiles {
  OrderedPoints rows, columns;
  TileBits bits;
  Expansion expansion;  // Of softmins and evaluations.
  Measure measure;
  NearWord const* near = nullptr;  // kNearWords for each tile of the rows, in the place of `bits`; null: none.
  int parts = 1;                   // Parts in which the tiles of a row are summed.
  void* logits = nullptr;   // Memory for the logits of the columns in their order, float64 or of the points' type,
  void* factors = nullptr;  // and for their factors.

  /// The partial sums of a row in a pass that takes the expansion, or in one that does not.
  int slots(bool expands) const { return expands && expansion.exists() ? 2 * parts : parts; }
  /// The layout of `slots` partial sums of a row, for the kernels that join them.
  WorkPlan work(int slots) const;
  friend bool operator==(ListedTiles const&, ListedTiles const&) = default;
};

/// The parts with which a pass fills the device.
int parts_of(int row_tiles, int multiprocessors);

/// ordered = the `size` points of `from` in the order of `point`, and zeros.
void order_points(Operand const& from, OrderedPoints const& to, cudaStream_t stream);

/// Pass::softmin or Pass::product over listed tiles: PartialSum [slots][rows.padded_size], by the caller's numbers.
void launch_listed_pass(Pass pass, ListedTiles const& tiles, PassArguments const& arguments, cudaStream_t stream);

/// Sums of the entries of a plan, in double, and of entries times costs.
struct ListedEvaluation {
  SweepParameters const* parameters;
  double factor;             // PassArguments::factor
  double const* row_logits;  // By the caller's numbers.
  double const* column_logits;
  double* sums;   // [slots][rows.padded_size], by the caller's numbers;
  double* costs;  // the same; null if not wanted.
};
void launch_listed_evaluation(ListedTiles const& tiles, ListedEvaluation const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
