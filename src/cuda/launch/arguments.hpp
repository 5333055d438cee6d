// Plain data that host code hands to the launchers. All pointers but those that say otherwise are device memory.
#pragma once
#include <cstdint>

#include <driver_types.h>

#ifdef __CUDACC__
#define MONGE_DEVICE_INLINE __host__ __device__ inline
#else
#define MONGE_DEVICE_INLINE inline
#endif

namespace monge::cuda {

/// Clouds are padded to a multiple of this many rows, so that no tile load needs a bound.
inline constexpr int kRowPadding = 128;
/// Up to this dimension costs come from exact differences, above it from inner products.
inline constexpr int kLargestDifferenceDimension = 8;

enum class Scalar { float32, float64 };

/// A centred cloud, packed. Rows past `size` and coordinates past `dimension` are zero.
struct PackedCloud {
  int size = 0;
  int padded_size = 0;
  int dimension = 0;
  int stride = 0;       // Elements between rows of `points`.
  int half_stride = 0;  // The same of `high` and `low`; 0 where there are none.
  Scalar scalar = Scalar::float32;
  void const* points = nullptr;  // x', float or double.
  void const* high = nullptr;    // fp16(half_scale x').
  void const* low = nullptr;     // fp16(half_scale x' - high).
  double half_scale = 1;         // A power of two.
  double const* weight = nullptr;
  double const* log_weight = nullptr;  // log2 a, or kEmptyLogit<double>.
  double const* norm = nullptr;        // s |x'|^2 in product form, 0 in difference form.
};

/// In device memory, so that recorded graphs serve every eps and relaxation.
struct SweepParameters {
  double eps;
  double eps_ln2;
  double log2e_over_eps;
  double relaxation;
  double constant[2];  // Of f' (0) and g' (1): taken from the logits before rounding, where it would cost digits.
};

/// A vector or matrix of the caller's that a kernel reads or writes in place.
struct StridedView {
  void* data = nullptr;
  std::int64_t stride = 1;
  Scalar scalar = Scalar::float64;
};

/// Sum of 2^(t - reference) over some columns.
template <class T>
struct alignas(2 * sizeof(T)) PartialSum {
  T reference;
  T sum;
};

enum class SoftminKernel {
  difference,      // float, d <= 8, exact differences on the FMA pipes.
  one_product,     // Tensor cores, high x high: 11-bit products.
  three_products,  // Tensor cores, high x high + high x low + low x high: about 22 bits.
  tile,            // float or double on the FMA pipes, either form.
};

/// Who does what in a pass. The tiles of all row blocks, row block by row block, are one sequence that is cut into
/// equal parts, one for each block of the grid: no block waits for a last wave, whatever the sizes. The blocks that
/// share a row block leave their sums in consecutive slots, in the order of the columns.
struct WorkPlan {
  int grid = 1;
  int row_blocks = 1;
  int column_tiles = 1;
  int rows_per_block = kRowPadding;
  int slots = 1;  // At most so many blocks share a row block.

  MONGE_DEVICE_INLINE std::int64_t tiles() const { return static_cast<std::int64_t>(row_blocks) * column_tiles; }
  MONGE_DEVICE_INLINE std::int64_t first_tile(std::int64_t block) const { return block * tiles() / grid; }
  /// The block of the grid that has tile number `tile` of the sequence.
  MONGE_DEVICE_INLINE int owner(std::int64_t tile) const { return static_cast<int>(((tile + 1) * grid - 1) / tiles()); }
  MONGE_DEVICE_INLINE int first_owner(int row_block) const {
    return owner(static_cast<std::int64_t>(row_block) * column_tiles);
  }
  MONGE_DEVICE_INLINE int slots_of(int row_block) const {
    return owner(static_cast<std::int64_t>(row_block + 1) * column_tiles - 1) - first_owner(row_block) + 1;
  }
};

/// How a pass is launched.
struct SoftminPlan {
  SoftminKernel kernel = SoftminKernel::tile;
  WorkPlan work;
  int variant = 0;       // The launcher's own affair.
  int shared_limit = 0;  // Bytes that a block may have, where that decides the variant.
};

struct SoftminArguments {
  PackedCloud rows;
  PackedCloud columns;
  void const* logits = nullptr;    // Of the columns: float high parts then float factors, or double; padded_size each.
  double const* slopes = nullptr;  // Of the columns, for moments only: logit - log2 b.
  SweepParameters const* parameters = nullptr;
  double scale = 1;  // s of C = s |x - y|^2.
  WorkPlan work;
  void* partials = nullptr;   // PartialSum [work.slots][rows.padded_size].
  double* moments = nullptr;  // Null, or sum of 2^(t - reference) (t - log2 b), laid out as partials. Tile kernel only.
};

}  // namespace monge::cuda

#undef MONGE_DEVICE_INLINE
