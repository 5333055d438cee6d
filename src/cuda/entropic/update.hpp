// Work on points before and after the passes of a sweep (cuda/entropic/update.cu). All vectors are float64 on the
// device.
#pragma once
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

/// out_i = potential_i, or the best potential for plus_i where the weight is zero.
void choose_idle(PackedSide const& points, double const* potential, double const* plus,
                 SweepParameters const* parameters, double* out, cudaStream_t stream);

}  // namespace monge::cuda
