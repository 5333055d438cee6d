// Launches of the batched projection. Host and device code share these structs.
#pragma once
#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include <monge/array.hpp>

namespace monge::cuda {

struct BatchArguments {
  void* data = nullptr;
  std::int64_t batch_stride = 0, row_stride = 0;
  DataType type = DataType::float32;
  bool contiguous = false;
};

/// Fields without a comment are explained at ProjectionProblem, projection/problem.hpp.
struct ProjectionArguments {
  BatchArguments logits, gradient, result;
  std::int64_t batch = 0;
  float* d_dustbin_score = nullptr;
  float* history = nullptr;         ///< A history in global memory; null: it is in shared memory.
  std::int64_t history_chunks = 0;  ///< Chunks of 16 bytes in a team's history.
  int team_chunks = 0;              ///< Chunks of 16 bytes of a team's shared memory: for staging and history.
  int rows = 0, columns = 0, logit_rows = 0, logit_columns = 0;
  int pairs = 0;
  float epsilon = 0, matrix_epsilon = 0, inverse_temperature = 1, tolerance = 0, dustbin_score = 0;
  float implicit_tolerance = 0;
  bool start_softmax = false, start_positive = false, start_shifted = false;
  bool clamp = false, scaling = false;
  bool columns_first = false, lead = false, trail = false;
  bool log_domain = false, implicit = false;
  bool reducible = false;  ///< device/ratio.cuh can do narrow matrices of the problem.
};

/// Target sums of the largest tile. Passed to the general kernels by value: this needs no copy to the device, and a
/// graph can record it.
struct SumTargets {
  float a[128], b[128];
};

struct MhcArguments {
  ProjectionArguments projection;
  int streams;
  float const *mixes, *scale, *base;
  std::int64_t mixes_stride;
  float pre_epsilon, post_factor;
  float *pre, *post, *res;              ///< Forward.
  float const *d_pre, *d_post, *d_res;  ///< Backward.
  float *d_mixes, *d_scale, *d_base;
  std::int64_t d_mixes_stride;
  float* partial;         ///< Sums of each block, 32 floats apart.
  unsigned* blocks_done;  ///< 0 between launches.
  bool vector;            ///< All arrays allow accesses of 16 bytes.
};

inline constexpr int kMhcSums = 27;  ///< Sums over tokens with 4 streams: 3 of scale, 24 of base.

/// Abilities of the steps; each mode includes the modes before it. Plain: sums of exponentials. Guarded: an eps added
/// to the sums. General: marginals, clamps, the tolerance, the implicit gradient. The log domain is general steps on
/// potentials.
enum class ProjectionMode { plain, guarded, general, log_domain };

/// Matrices larger than a tile (device/large.cuh) share device memory.
struct LargeShape {
  int rows = 0, columns = 0;  ///< Floats of a column and of a row, padded.
  int strips = 0;             ///< Groups of rows with column sums of their own.
  int slots = 0;              ///< Pairs of scalings that are kept.
  int marks = 0;              ///< Pairs for which it is noted whether they were done.
  std::int64_t matrix = 0;    ///< Floats of memory for a matrix.
  int matrices = 0;           ///< Matrices that are worked on together.
  std::int64_t floats() const { return rows + columns + matrices * matrix; }
};
LargeShape large_shape(ProjectionArguments const& arguments, bool backward);
/// `memory` has large_shape().floats() floats and the alignment of four.
void project_large(ProjectionArguments const& arguments, std::vector<float> const& a, std::vector<float> const& b,
                   float* memory, bool backward, cudaStream_t stream);

/// Any number of streams: the gates, and the logits of token t at logits + t stride.
void mhc_split(MhcArguments const& arguments, float* logits, std::int64_t stride, int multiprocessors,
               cudaStream_t stream);
/// Completes the gradients. Before the call, the last streams^2 columns of d_mixes hold the gradient in the logits of
/// res. `partial` is memory for 2 mhc_rows() rows; a row has as many floats as a row of `mixes`.
void mhc_join(MhcArguments const& arguments, cudaStream_t stream);
int mhc_rows(std::int64_t tokens);

/// Four streams, one launch. The grid of the backward launch and the history that it needs.
struct MhcShape {
  int blocks, threads;
  std::int64_t history_floats;  ///< 0: in shared memory.
};
MhcShape mhc_shape(ProjectionArguments const& arguments, int multiprocessors);
void mhc_forward(MhcArguments const& arguments, SumTargets const& marginals, ProjectionMode mode, cudaStream_t stream);
void mhc_backward(MhcArguments const& arguments, SumTargets const& marginals, ProjectionMode mode, int multiprocessors,
                  cudaStream_t stream);

}  // namespace monge::cuda
