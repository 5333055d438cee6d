// Per-point work between the passes over pairs (kernels/vectors.cuh). All vectors are float64 on the device.
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

void set_parameters(SweepParameters* parameters, SweepParameters const& value, cudaStream_t stream);

/// `side` says whose constant applies: 0 for rows, 1 for columns.
struct LogitArguments {
  int side;
  PackedCloud cloud;
  double const* potential;
  SweepParameters const* parameters;
  void* logits;
  double* slopes;  // Null unless moments are wanted.
};
void make_logits(LogitArguments const& arguments, cudaStream_t stream);

/// What launch_softmin left for the rows `cloud`.
struct SumArguments {
  int side;
  PackedCloud cloud;
  void const* partials;
  double const* moments;
  WorkPlan work;
  SweepParameters const* parameters;
};

struct UpdateArguments {
  SumArguments sums;
  double* potential;
  void* logits;    // Of this side, for the next half-step.
  double* errors;  // error_parts(size) partial sums of a_i |exp((f_i - f+_i) / eps) - 1| with the old f.
  bool symmetric;
};
int error_parts(int size);
void update_potential(UpdateArguments const& arguments, cudaStream_t stream);

/// mean may be null.
void softmin_values(SumArguments const& sums, double* plus, double* mean, cudaStream_t stream);
/// out_i = a_i exp((f_i - f+_i) / eps).
void marginal(PackedCloud const& cloud, double const* potential, double const* plus, SweepParameters const* parameters,
              double* out, cudaStream_t stream);
/// potential = from - shift; zeros for a view without data.
void load_potential(StridedView const& from, int size, double const* shift, double* potential, cudaStream_t stream);
/// to = value + shift; shift may be null.
void store_vector(StridedView const& to, int size, double const* value, double const* shift, cudaStream_t stream);
/// out_i = potential_i, or plus_i where the weight is zero.
void choose_idle(PackedCloud const& cloud, double const* potential, double const* plus, double* out,
                 cudaStream_t stream);

}  // namespace monge::cuda
