// The entries of a regularised plan: from the caller's costs, and to everything that is read from a plan
// (cuda/regularized/regularized_entries.cuh).
#pragma once
#include "core/host_device.hpp"
#include "cuda/geometry/regularized_matrix.hpp"
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"
#include "cuda/plan/select.hpp"
#include "seam/regularized_operator.hpp"

namespace monge::cuda {

/// out[k][i] = coordinate k of point i.
void turn_points(Operand const& points, int size, double* out, cudaStream_t stream);

struct PackCostsArguments {
  RegularizedMatrix matrix;
  RowOrder order;
  DataType scalar;
  std::int64_t pitch;
  void* out;  // [columns][pitch]
  double padding;
};
void pack_costs(PackCostsArguments const& arguments, Queue const& queue);

/// The plan X: entries in memory, or [u_i + v_j - S_ij]_+ / weight.
struct RegularizedEntries {
  RegularizedMatrix matrix;
  RowOrder order;
  void const* packed = nullptr;  // [columns][pitch] in the order of rows.
  DataType scalar = DataType::float64;
  std::int64_t pitch = 0;
  double inverse_weight = 0;
  double const* u = nullptr;  // Potentials in the order of rows.
  double const* v = nullptr;
};

/// The terms of h in units of the costs inside, and the groups of rows.
struct EntryTerms {
  double quadratic = 0, group_lasso = 0, hypentropy = 0, width = 1;
  int const* group = nullptr;  // The group of each kGroupRows rows; null without group lasso.
  int const* group_begin = nullptr;
  double const* group_weight = nullptr;
  SlopeTableView slopes;  // Size 0 without that term, which stands alone.

  MONGE_HOST_DEVICE bool has_finite_conjugate() const { return quadratic > 0 || hypentropy > 0 || slopes.size > 0; }
};
inline constexpr int kGroupRows = 4;

/// Sums over the columns of a block.
struct EntryValues {
  double transport_cost, regularization, conjugate, nonzeros;
};
struct EvaluateEntriesArguments {
  RegularizedEntries entries;
  EntryTerms terms;
  double const* p;  // Masses in the order of rows.
  double const* q;
  double const* u;
  DualBound bound;
  double* v;                  // Replaced if the bound allows no slack.
  double const* marginal[2];  // Marginals of X, in the order of the problem.
  EntryValues* parts;         // entry_value_parts(columns)
  RegularizedValues* result;
};
int entry_value_parts(int columns);
void evaluate_entries(EvaluateEntriesArguments const& arguments, cudaStream_t stream);

/// out_ij = factor X_ij
void dense_entries(RegularizedEntries const& entries, double factor, StridedView const& out, cudaStream_t stream);

struct NonzeroArguments {
  RegularizedEntries entries;
  double factor = 1;
  std::int64_t* counts = nullptr;  // Entries of each row, to be counted. Null: the entries are written.
  StridedIndices row_begin;        // One number for each row, and the end.
  StridedIndices columns;
  StridedView values;
  std::int64_t size = 0;                // Length of columns and values.
  std::int64_t* first_wrong = nullptr;  // The lowest row whose count differs from row_begin.
};
void nonzero_entries(NonzeroArguments const& arguments, cudaStream_t stream);

/// out = factor X values, or factor X^T values if `side` is columns; without values, the marginal.
struct EntryProductOf {
  RegularizedEntries entries;
  Side side;
  double factor;
  bool averaged;       // Divided by the marginals, without the factor; 0 where a marginal is 0.
  StridedView values;  // Null data: ones.
  int width;
  StridedView out;
};
void multiply_entries(EntryProductOf const& product, cudaStream_t stream);

/// out_i = factor value_k + shift for each place k of row i.
void store_rows(RowOrder const& order, double const* value, double factor, double shift, StridedView const& out,
                cudaStream_t stream);

}  // namespace monge::cuda
