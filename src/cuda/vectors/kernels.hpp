// Per-point work between the passes over pairs (cuda/vectors/kernels.cuh). All vectors are float64 on the device.
#pragma once
#include "backend/vectors.hpp"
#include "core/evaluation.hpp"
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"
#include "entropic/update_rule.hpp"

namespace monge::cuda {

/// log_weight_i = log2 weight_i, or 0 where that is zero.
struct LogWeightArguments {
  int size;
  double const* weight;
  double* log_weight;
};
void log_weights(LogWeightArguments const& arguments, Queue const& queue);

/// Logits of one side, padded: h in the type of the side, and for float the factors beside them.
struct LogitArrays {
  void* logits = nullptr;
  float* factors = nullptr;  // Null in double.
  friend bool operator==(LogitArrays const&, LogitArrays const&) = default;
};

/// Logits of one side or both, and the parameters that they and what follows are made with.
struct LogitArguments {
  SweepParameters value;
  SweepParameters* parameters;  // Becomes `value`.
  struct OfSide {
    PackedSide points;
    double const* potential;
    LogitArrays arrays;
    double* slopes;  // Null unless moments are wanted.
  };
  OfSide side[2];  // Rows, columns; without arrays one is left out.
};
void make_logits(LogitArguments const& arguments, Queue const& queue);

/// What a pass left for the rows `points`.
struct SumArguments {
  int side;
  PackedSide points;
  void const* partials;
  double const* moments;
  WorkPlan work;
  SweepParameters const* parameters;
};

struct UpdateArguments {
  SumArguments sums;
  double* potential;
  double* copy;        // Null, or becomes the potential too.
  LogitArrays arrays;  // Of this side, for the next half-step.
  double* errors;      // Of each of error_parts(size) parts the sums of the errors with the old f and of their squares.
  bool symmetric;
};
int error_parts(int size);
void update_potential(UpdateArguments const& arguments, Queue const& queue);

/// f + t and g - t with the t that raises the dual most (entropic/update_rule.hpp). The constants of the potentials
/// move along, so the logits stay what they are.
struct TranslationArguments {
  struct OfSide {
    PackedSide points;
    double total;  // Of the weights.
    double* potential;
    LogMeanSums* parts;  // error_parts(size)
    friend bool operator==(OfSide const&, OfSide const&) = default;
  };
  OfSide side[2];  // Rows, columns.
  double log_mass_ratio;
  SweepParameters* parameters;
  double* constants;  // Becomes parameters->constant: two numbers beside the errors, for the host.
  friend bool operator==(TranslationArguments const&, TranslationArguments const&) = default;
};
void translate(TranslationArguments const& arguments, Queue const& queue);

/// Of each row: f+, and the logarithm, base 2, of the sum in two parts, a reference that float holds exactly and the
/// sum relative to it.
struct SoftminValues {
  double* plus;
  double* reference;
  double* sum;
};
void softmin_values(SumArguments const& sums, SoftminValues const& out, cudaStream_t stream);

/// What the values of a plan are made of: sums over some points of a side.
struct PlanSums {
  SideSums side;
  /// What <C', P> is the sum of.
  CompensatedSum costs;

  MONGE_HOST_DEVICE void add(PlanSums const& other) {
    side.add(other.side);
    costs.add(other.costs);
  }
};
/// In how many parts the points of a side are summed.
int plan_sum_parts(int size);

/// P 1 and P^T 1; null: not wanted.
struct PlanMarginals {
  double* side[2] = {};
};
struct PlanSumsOutput {
  PlanSums* parts;  // Of the rows, then of the columns.
  PlanMarginals marginals;
};

/// After a pass for each side, that of the rows with moments. With h the constant of g, which is large beside C' where
/// masses differ much, and t without h, <C', P> is the sum of
/// r_i (norm_i - eps ln2 sum_j w_ij (t_ij - log2 b_j)), w the softmax of the row, and of c_j (g_j - h).
struct PlanSumsArguments {
  SumArguments sums[2];
  double const* potential[2];
  PlanSumsOutput out;
};
void sum_plan(PlanSumsArguments const& arguments, Queue const& queue);

/// Numbers of the points of a side in parts, one after the other.
struct PointParts {
  double const* data;
  std::int64_t stride;  // From part to part.
  int count;
};
/// After a fused evaluation, whose sums of entries and costs these are; costs may be no parts.
struct JoinedSumsArguments {
  PackedSide points[2];
  PointParts marginals[2], costs[2];
  double const* potential[2];
  PlanSumsOutput out;
};
void sum_plan(JoinedSumsArguments const& arguments, Queue const& queue);

/// From a softmin of the rows: what products of a plan with frozen potentials need. Without its reference and sum they
/// follow from f+, and points of no weight, whose f+ is not known then, have shares of 0.
struct FreezeArguments {
  int side;
  PackedSide points;
  double const* potential;
  SoftminValues softmin;
  SweepParameters const* parameters;
  void* references;      // L_i, padded, in the type of the side.
  double* share_factor;  // 2^(L_i - lse_i)
  double* plan_factor;   // The same times r_i.
  double* marginal;      // r_i = a_i exp((f_i - f+_i) / eps)
};
void freeze_rows(FreezeArguments const& arguments, cudaStream_t stream);

/// A vector's largest magnitude, by which it is scaled to fit in float. Two numbers in device memory take turns, both 0
/// at first: each call clears the other's.
struct VectorScale {
  unsigned long long* largest;  // The bits of the largest magnitude, whose order is that of the numbers.
  unsigned long long* next;     // For the next call.
};
/// factors = beta o v, scaled and padded with zeros; beta null for ones.
void scale_factors(PackedSide const& points, void const* beta, StridedView const& v, VectorScale const& scale,
                   void* factors, cudaStream_t stream);
/// out_i = row_factor_i times the sum of row i, without the scale, + weight_i origin.
struct FinishArguments {
  SumArguments sums;
  double const* row_factor;
  VectorScale scale;
  double const* origin;  // One number; null for 0.
  double const* weight;  // Null for ones.
  StridedView out;
};
void finish_product(FinishArguments const& arguments, cudaStream_t stream);
/// out_i = the sum of row i.
void row_sums(SumArguments const& sums, double* out, cudaStream_t stream);

/// to = from - shift, `size` numbers in rows of `width`; zeros for a view without data; shift may be null.
void load_vector(StridedView const& from, int size, int width, double const* shift, double* to, cudaStream_t stream);
/// to = value + shift; shift may be null.
void store_vector(StridedView const& to, int size, int width, double const* value, double const* shift,
                  cudaStream_t stream);
/// out_i = potential_i, or the best potential for plus_i where the weight is zero.
void choose_idle(PackedSide const& points, double const* potential, double const* plus,
                 SweepParameters const* parameters, double* out, cudaStream_t stream);

struct CombineArguments {
  struct Term {
    double factor;
    double const* vector;
    double const* times;  // Null for ones.
    int step = 1;         // Numbers of the vector that each of `times` is for.
  };
  int size;
  int count;
  Term terms[kMostTerms];
  double* out;
};
void combine(CombineArguments const& arguments, Queue const& queue);
void reciprocal(int size, double const* in, double* out, cudaStream_t stream);

/// out_i = <first_i, second_i>, rows of `width`.
void row_dots(int rows, int width, double const* first, double const* second, double* out, cudaStream_t stream);

/// As PlanOperator::weight_terms(); null: not wanted.
struct WeightTermArguments {
  PackedSide points;
  double const* potential;
  double const* plus;
  double const* shift;
  double const* marginal;
  double penalty, eps, other_mass;
  double* ratio;
  double* wanted;
  double* gradient;
};
void weight_terms(WeightTermArguments const& arguments, cudaStream_t stream);

/// out_i = curvature x'_i + the derivative that x = 0 has, with both centres.
struct SlopeArguments {
  StridedView points;
  int size, width;  // Numbers in all, and of each point.
  double const* centre;
  double const* other_centre;
  double curvature, product;
  double* out;
};
void slopes(SlopeArguments const& arguments, cudaStream_t stream);

struct DotArguments {
  int size;
  int count;
  double const* first[kMostDots];
  double const* second[kMostDots];
  double* partials;  // count x dot_parts(size)
};
int dot_parts(int size);
void dots(DotArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
