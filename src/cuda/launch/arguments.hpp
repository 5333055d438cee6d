// Plain data that host code passes to the launchers. Pointers are to device memory unless a comment says otherwise.
#pragma once
#include <cstdint>
#include <limits>

#include <driver_types.h>

#include <monge/array.hpp>

#ifdef __CUDACC__
#define MONGE_DEVICE_INLINE __host__ __device__ inline
#else
#define MONGE_DEVICE_INLINE inline
#endif

namespace monge::cuda {

/// Points and vectors are padded to a multiple of this number, so that no tile load needs a bound.
inline constexpr int kRowPadding = 128;

/// One side of a problem, as kernels between passes read it.
struct PackedSide {
  int size = 0;
  int padded_size = 0;
  DataType scalar = DataType::float32;  // Type of logits, references and partial sums.
  double const* weight = nullptr;
  double const* log_weight = nullptr;  // log2 a, or kEmptyLogit<double>.
  double const* norm = nullptr;        // The cost of a pair beside its score: s |x'|^2 with products.
  double const* shift = nullptr;       // f - f'
  double penalty = std::numeric_limits<double>::infinity();  // rho of the side; infinity for a constraint.

  friend bool operator==(PackedSide const&, PackedSide const&) = default;
};

/// One factor of the scores: a vector for each row or column. Padding vectors, and coordinates from `dimension` on, are
/// zero.
struct Operand {
  int padded_size = 0;
  int dimension = 0;
  int stride = 0;       // Elements between vectors of `points`.
  int half_stride = 0;  // Elements between vectors of `high` and `low`; 0 without them.
  DataType scalar = DataType::float32;
  void const* points = nullptr;  // float or double.
  void const* high = nullptr;    // fp16(half_scale x).
  void const* low = nullptr;     // fp16(half_scale x - high).
  double half_scale = 1;         // A power of two.

  /// `count` vectors from `first` on, both multiples of kRowPadding.
  Operand part(int first, int count) const;

  friend bool operator==(Operand const&, Operand const&) = default;
};

/// The score of a pair of vectors.
enum class ScoreForm {
  differences,  // |x - y|^2
  distances,    // (sum_k |x_k - y_k|^p)^(1/p)
  products,     // <x, y>
  stored,       // C_ij - least, from a cost matrix in memory.
};

/// The cost matrix of ScoreForm::stored for a pass; +infinity forbids a pair.
struct StoredCosts {
  void const* data = nullptr;  // float or double.
  DataType scalar = DataType::float32;
  std::int64_t stride = 0;  // Elements between lines: rows, or columns if transposed.
  bool transposed = false;
  bool aligned = false;  // Every fourth element of a line lies at a multiple of 16 bytes.
  int rows = 0;
  int columns = 0;
  double least = 0;  // The smallest finite cost.

  MONGE_DEVICE_INLINE int lines() const { return transposed ? columns : rows; }
  MONGE_DEVICE_INLINE int line_size() const { return transposed ? rows : columns; }
  /// The index of a pair's cost in `data`.
  MONGE_DEVICE_INLINE std::int64_t place(std::int64_t row, std::int64_t column) const {
    return transposed ? column * stride + row : row * stride + column;
  }
  /// The matrix for a pass whose rows are columns here.
  StoredCosts flipped() const;
  /// The matrix without the rows before `first_row`, a multiple of 4.
  StoredCosts from(int first_row) const;
  friend bool operator==(StoredCosts const&, StoredCosts const&) = default;
};

/// Parameters in device memory, so that recorded graphs serve every eps and relaxation.
struct SweepParameters {
  double eps;
  double eps_ln2;
  double log2e_over_eps;
  double relaxation;
  double constant[2];  // Constants of f' (0) and g' (1): subtracted from logits before rounding, to save digits.
};

/// A vector or matrix of the caller that a kernel reads or writes in place.
struct StridedView {
  void* data = nullptr;
  std::int64_t stride = 1;
  DataType scalar = DataType::float64;
};

/// A sum of 2^(t - reference) over some columns.
template <class T>
struct alignas(2 * sizeof(T)) PartialSum {
  T reference;
  T sum;
};

/// The result of a pass over all pairs, from the logits t_ij = h_j + score_ij.
enum class Pass {
  softmin,   // Partial sums of beta_j 2^(t_ij - reference_i); the pass finds the references.
  product,   // Partial sums of factor_j 2^(t_ij - reference_i) for given references.
  entries,   // The terms of product, times kEntryScale, to memory; and their sums.
  hadamard,  // Multiplies entries in memory by the scores.
  logits,    // log2 of the share beta_j 2^(t_ij - reference_i), to memory, for given references.
};

/// The kernel that computes the scores.
enum class ScoreKernel {
  difference,      // float, few coordinates, exact differences on the FMA pipes; Euclidean distances too.
  one_product,     // Tensor cores, high x high: 11-bit products.
  three_products,  // Tensor cores, high x high + high x low + low x high: about 22 bits.
  tile,            // float or double, any form; tensor cores for products in double.
};

/// Whether the references of the rows are given; otherwise the pass finds them.
MONGE_DEVICE_INLINE constexpr bool has_references(Pass pass) {
  return pass == Pass::product || pass == Pass::entries || pass == Pass::logits;
}
/// Whether the pass leaves sums.
MONGE_DEVICE_INLINE constexpr bool has_sums(Pass pass) {
  return pass != Pass::logits && pass != Pass::hadamard;
}
/// Whether the pass writes a number for each pair.
MONGE_DEVICE_INLINE constexpr bool has_stores(Pass pass) {
  return pass == Pass::entries || !has_sums(pass);
}

/// Entries of some rows of a plan: kEntryScale times shares of the row sums. In float an entry is the sum of two fp16
/// numbers, high and low, in the column order of entry_position(). Logits are in the type of the arithmetic, in `high`,
/// in the order of logit_position(); `low` then has the largest of each kLogitGroup columns of a row.
struct Entries {
  DataType scalar = DataType::float32;
  std::int64_t stride = 0;  // Elements between rows.
  void* high = nullptr;     // fp16, or double.
  void* low = nullptr;      // fp16; null in double.

  friend bool operator==(Entries const&, Entries const&) = default;
};

inline constexpr int kLogitGroup = 32;

/// With this scale a share of 1 is half of fp16's largest number, and 2^-29 is still a normal number.
inline constexpr double kEntryScale = 32768;

/// The position of column j in a row of fp16 entries. Tensor cores leave a thread eight of each 32 columns, which it
/// stores as one vector. Values that multiply entries have the same order.
MONGE_DEVICE_INLINE int entry_position(int j) {
  return j / 32 * 32 + j % 8 / 2 * 8 + j % 32 / 8 * 2 + j % 2;
}
/// The position of a logit: the eight columns of a thread are two vectors of four.
MONGE_DEVICE_INLINE int logit_position(int j) {
  return j / 16 * 16 + j % 8 / 2 * 4 + j % 16 / 8 * 2 + j % 2;
}

/// The distribution of a pass over blocks. Each row block meets all column tiles. The tiles of all row blocks, row
/// block by row block, form one sequence, cut into equal parts, one for each block of the grid; no block waits for a
/// last wave. Blocks that share a row block leave their sums in consecutive slots, in the order of the tiles.
struct WorkPlan {
  int grid = 1;
  int row_blocks = 1;
  int column_tiles = 1;
  int rows_per_block = kRowPadding;
  int slots = 1;           // The most blocks that share a row block.
  std::int64_t tiles = 1;  // Tiles of all row blocks.

  MONGE_DEVICE_INLINE std::int64_t first_tile(std::int64_t block) const { return block * tiles / grid; }
  /// The first tile of a row block in the sequence.
  MONGE_DEVICE_INLINE std::int64_t begin(int row_block) const {
    return static_cast<std::int64_t>(row_block) * column_tiles;
  }
  /// The row block of tile number `tile` in the sequence.
  MONGE_DEVICE_INLINE int row_block(std::int64_t tile) const { return static_cast<int>(tile / column_tiles); }
  /// The block of the grid that takes tile number `tile` of the sequence.
  MONGE_DEVICE_INLINE int owner(std::int64_t tile) const { return static_cast<int>(((tile + 1) * grid - 1) / tiles); }
  MONGE_DEVICE_INLINE int first_owner(int row_block) const { return owner(begin(row_block)); }
  MONGE_DEVICE_INLINE int slots_of(int row_block) const {
    return owner(begin(row_block + 1) - 1) - first_owner(row_block) + 1;
  }

  friend bool operator==(WorkPlan const&, WorkPlan const&) = default;
};

struct PassArguments {
  ScoreForm form = ScoreForm::products;
  Operand rows;
  Operand columns;
  StoredCosts stored;
  double p = 2;  // Exponent of distances; infinity: the largest difference.
  // The factor of a score, beside log2(e) / eps of `parameters` if they are given (not for hadamard).
  double factor = 1;
  SweepParameters const* parameters = nullptr;
  void const* logits = nullptr;      // h of the columns, float or double.
  void const* factors = nullptr;     // beta_j, beta_j v_j of a product, or log2 beta_j of logits; null for ones.
  void const* references = nullptr;  // Given references of the rows, float or double.
  WorkPlan work;
  int chunks = 1;            // Chunks of coordinates, for the tensor cores.
  void* partials = nullptr;  // PartialSum [work.slots][rows.padded_size].
  Entries entries;           // Entries of all rows.

  friend bool operator==(PassArguments const&, PassArguments const&) = default;
};

/// Partial sums of a pass for the rows `points`.
struct SumArguments {
  int side;
  PackedSide points;
  void const* partials;
  WorkPlan work;
  SweepParameters const* parameters;
};

}  // namespace monge::cuda

#undef MONGE_DEVICE_INLINE
