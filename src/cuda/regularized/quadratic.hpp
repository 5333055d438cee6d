// The dual of a quadratically regularised plan: passes over all pairs, and the system of its Newton steps
// (cuda/regularized/quadratic.cuh).
#pragma once
#include "cuda/regularized/regularized_entries.hpp"
#include "regularized/quadratic_operator.hpp"

namespace monge::cuda {

/// Lines of the caller's memory and their places: 0 and 1 below. A line is a row of the problem or, where costs are
/// transposed, a column.
struct QuadraticProblem {
  RegularizedMatrix matrix;
  int size[2];             // Of lines, of places.
  int words[2];            // Of 32 bits: what a line's mask of its places takes, and a place's of its lines.
  double const* share[2];  // p or q
  double weight;           // lambda
};

/// Potentials, -infinity without mass, and what a pass finds of them.
struct QuadraticState {
  double* potential[2];
  double* sum[2];   // Of the positive scores z = u + v - S,
  int* count[2];    // and their number.
  double* squares;  // Of each line: sum z^2
  unsigned* mask[2];
};

/// In how many parts the sums over lines are made.
int quadratic_chunks(int lines);

struct QuadraticPassArguments {
  QuadraticProblem problem;
  QuadraticState state;
  double* chunk_sum;  // [quadratic_chunks(lines)][places], as what follows.
  int* chunk_count;
};
/// From the potentials of the state all of the rest. The kernels are compiled for what the costs come from.
void quadratic_pass(QuadraticPassArguments const& arguments, cudaStream_t stream);

/// *result = the values of the state for problem.weight.
void quadratic_values(QuadraticProblem const& problem, QuadraticState const& state, QuadraticValues* result,
                      cudaStream_t stream);

/// What a direction's search has found.
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
  double* inverse[2];  // Of the diagonal of lines; of the preconditioner of places.
  double* right[2];
  double *of_places, *of_lines;  // What the other side gathers.
  double* diagonal;              // Of places, as what follows.
  double *residual, *direction, *image, *product;
  double* partial[3];  // quadratic_direction_blocks() each.
  int* list[2];        // The active pairs of each point of both sides, where these are few,
  int* begin[2];       // and where those of a point begin, and their end.
  QuadraticSearch* result;
};
int quadratic_direction_blocks(int multiprocessors);
/// Up to so many active pairs are listed.
std::int64_t quadratic_list_size(int lines, int places);
/// Solves the system by conjugate gradients, in one launch.
void quadratic_direction(QuadraticDirectionArguments const& arguments, std::int64_t active, int blocks,
                         cudaStream_t stream);

/// For points of `side` without mass: out_i = min over the other side of S - other, 0 where that is infinite; for
/// others, out_i = potential_i.
void idle_potentials(QuadraticProblem const& problem, int side, double const* potential, double const* other,
                     double* out, cudaStream_t stream);

}  // namespace monge::cuda
