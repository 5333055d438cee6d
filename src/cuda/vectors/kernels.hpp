// Kernels on float64 vectors (cuda/vectors/kernels.cu).
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"
#include "seam/vectors.hpp"

namespace monge::cuda {

/// to = from - shift: `size` numbers in rows of `width`. A view without data stands for zeros; shift may be null.
void load_vector(StridedView const& from, int size, int width, double const* shift, double* to, cudaStream_t stream);
/// to = value + shift; shift may be null.
void store_vector(StridedView const& to, int size, int width, double const* value, double const* shift,
                  cudaStream_t stream);

struct CombineArguments {
  struct Term {
    double factor;
    double const* vector;  // Null for ones.
    double const* times;   // Null for ones.
    int step = 1;          // Numbers of the vector for each number of `times`.
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

/// out_i = weight_i exp((first_i - second_i) / scale), or 0 where weight_i is 0.
void exp_difference(int size, double const* weight, double const* first, double const* second, double scale,
                    double* out, cudaStream_t stream);
/// Writes factor * vector, in rows of `width`, to the first columns of `out`, in rows of `stride`.
void place_columns(int size, int width, double const* vector, double factor, double* out, int stride,
                   cudaStream_t stream);

/// The number of blocks that reduce a vector.
int reduction_parts(int size);

struct DotArguments {
  int count;
  int parts;  // reduction_parts() of the largest size: more parts change no sum.
  int size[kMostDots];
  double const* first[kMostDots];
  double const* second[kMostDots];
  double* partials;  // count x parts
};
void dots(DotArguments const& arguments, cudaStream_t stream);

/// Partial VectorNorms, 4 numbers in each of reduction_parts(size): sums of |v| and v^2, least, largest; size >= 1.
void norms(int size, double const* vector, double* partials, cudaStream_t stream);

}  // namespace monge::cuda
