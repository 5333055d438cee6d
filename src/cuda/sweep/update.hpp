// Kernels on points before and after the passes of a sweep (cuda/sweep/update.cu). All vectors are float64.
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"
#include "entropic/update_rule.hpp"

namespace monge::cuda {

/// log_weight_i = log2 weight_i, or 0 if weight_i = 0.
struct LogWeightArguments {
  int size;
  double const* weight;
  double* log_weight;
};
void log_weights(LogWeightArguments const& arguments, Queue const& queue);

/// Logits of one side, padded, in the type of the side; in float with factors.
struct LogitArrays {
  void* logits = nullptr;
  float* factors = nullptr;  // Null in double.
  friend bool operator==(LogitArrays const&, LogitArrays const&) = default;
};

/// Logits of one or both sides, and the parameters of the sweep.
struct LogitArguments {
  SweepParameters value;
  SweepParameters* parameters;  // Receives `value`.
  struct OfSide {
    PackedSide points;
    double const* potential;
    LogitArrays arrays;
  };
  OfSide side[2];  // Rows, columns; a side without arrays is left out.
};
void make_logits(LogitArguments const& arguments, Queue const& queue);

struct UpdateArguments {
  SumArguments sums;
  double* potential;
  double* copy;        // Null, or a second output.
  LogitArrays arrays;  // Logits of this side, for the next half-step.
  double* errors;      // error_parts(size) parts: sums of the errors before the update and of the squares.
  bool symmetric;
};
int error_parts(int size);
void update_potential(UpdateArguments const& arguments, Queue const& queue);

/// Moves the potentials to f + t and g - t with the t that raises the dual most (entropic/update_rule.hpp). Their
/// constants move too, so the logits do not change.
struct TranslationArguments {
  struct OfSide {
    PackedSide points;
    double total;  // The sum of the weights.
    double* potential;
    LogMeanSums* parts;  // error_parts(size)
    friend bool operator==(OfSide const&, OfSide const&) = default;
  };
  OfSide side[2];  // Rows, columns.
  double log_mass_ratio;
  SweepParameters* parameters;
  double* constants;  // Receives parameters->constant: two numbers after the errors, for the host.
  friend bool operator==(TranslationArguments const&, TranslationArguments const&) = default;
};
void translate(TranslationArguments const& arguments, Queue const& queue);

/// For each row: f+, and the base-2 logarithm of the sum as two parts: a reference that float holds exactly, and the
/// sum relative to it.
struct SoftminValues {
  double* plus;
  double* reference = nullptr;  // Both null: not wanted.
  double* sum = nullptr;
};
void softmin_values(SumArguments const& sums, SoftminValues const& out, cudaStream_t stream);

/// out_i = potential_i, or the best potential for plus_i if the weight is zero.
void choose_idle(PackedSide const& points, double const* potential, double const* plus,
                 SweepParameters const* parameters, double* out, cudaStream_t stream);

}  // namespace monge::cuda
