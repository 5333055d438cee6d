// The dual of a quadratically regularised plan: passes over all pairs, and the system of its Newton steps
// (cuda/regularized/quadratic.cuh).
#pragma once
#include "cuda/regularized/regularized_entries.hpp"
#include "seam/quadratic_operator.hpp"

namespace monge::cuda {

/// Lines of the caller's memory, and places in a line: indices 0 and 1 below. A line is a row of the problem or, if
/// costs are transposed, a column.
struct QuadraticProblem {
  RegularizedMatrix matrix;
  int size[2];             // Number of lines, of places.
  int words[2];            // Words of 32 bits: a line's mask of places, a place's mask of lines.
  double const* share[2];  // p or q
  double weight;           // lambda
};

/// Potentials, -infinity at points of zero mass, and results of a pass.
struct QuadraticState {
  double* potential[2];
  double* sum[2];   // Sums of the positive z = u + v - S,
  int* count[2];    // and their number.
  double* squares;  // Sum of z^2 over each line.
  unsigned* mask[2];
};

/// The number of chunks of lines.
int quadratic_chunks(int lines);

struct QuadraticPassArguments {
  QuadraticProblem problem;
  QuadraticState state;
  double* chunk_sum;  // [quadratic_chunks(lines)][places], both arrays.
  int* chunk_count;
};
/// Computes the rest of the state from its potentials. The kernels are compiled for each source of costs.
void quadratic_pass(QuadraticPassArguments const& arguments, cudaStream_t stream);

/// *result = the values of the state for problem.weight.
void quadratic_values(QuadraticProblem const& problem, QuadraticState const& state, QuadraticValues* result,
                      cudaStream_t stream);

/// The result of the search for a direction.
struct QuadraticSearch {
  double slope, linear_rise;
  int iterations;
};
struct QuadraticDirectionArguments {
  QuadraticProblem problem;
  QuadraticState state;
  double mu, tolerance;
  int most;
  double* solution[2];
  double* inverse[2];  // Inverse of the diagonal of lines, and of the preconditioner of places.
  double* right[2];
  double *of_places, *of_lines;  // Vectors that the other side gathers.
  double* diagonal;              // Vectors on places:
  double *residual, *direction, *image, *product;
  double* partial[3];  // quadratic_direction_blocks() each.
  int* list[2];        // Active pairs of each point of both sides, if they are few,
  int* begin[2];       // and where the pairs of each point begin, with the end.
  QuadraticSearch* result;
};
int quadratic_direction_blocks(int multiprocessors);
/// The largest number of active pairs that are listed.
std::int64_t quadratic_list_size(int lines, int places);
/// Solves the system by conjugate gradients, in one launch.
void quadratic_direction(QuadraticDirectionArguments const& arguments, std::int64_t active, int blocks,
                         cudaStream_t stream);

/// Potentials of points of `side` without mass: out_i = min of S - other over the other side, or 0 if it is infinite.
/// For other points out_i = potential_i.
void idle_potentials(QuadraticProblem const& problem, int side, double const* potential, double const* other,
                     double* out, cudaStream_t stream);

}  // namespace monge::cuda
