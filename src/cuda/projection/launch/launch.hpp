// Launches of the batched projection. Host and device code share these structs.
#pragma once
#include <cstdint>

#include <cuda_runtime_api.h>

#include <monge/array.hpp>

namespace monge::cuda {

struct BatchArguments {
  void* data = nullptr;
  std::int64_t batch_stride = 0, row_stride = 0;
  DataType type = DataType::float32;
  bool contiguous = false;
};

/// Of projection/problem.hpp, where the fields are explained.
struct ProjectionArguments {
  BatchArguments logits, gradient, result;
  std::int64_t batch = 0;
  float* d_dustbin_score = nullptr;
  float* history = nullptr;         ///< Null: in shared memory.
  std::int64_t history_chunks = 0;  ///< Of 16 bytes, a team.
  int team_chunks = 0;              ///< Those of shared memory, for staging or history.
  int rows = 0, columns = 0, logit_rows = 0, logit_columns = 0;
  int pairs = 0;
  float epsilon = 0, matrix_epsilon = 0, inverse_temperature = 1, tolerance = 0, dustbin_score = 0;
  float implicit_tolerance = 0;
  bool start_softmax = false, start_positive = false, start_shifted = false;
  bool clamp = false, scaling = false;
  bool columns_first = false, lead = false, trail = false;
  bool log_domain = false, implicit = false;
  bool reducible = false;  ///< device/ratio.cuh can do it, where a matrix is narrow.
};

inline constexpr int kLargestMarginal = 257;

/// Passed by value to the general kernels: no copy to the device, and nothing that a graph could not record.
struct ProjectionMarginals {
  float a[kLargestMarginal], b[kLargestMarginal];
};

struct MhcArguments {
  ProjectionArguments projection;
  float const *mixes, *scale, *base;
  std::int64_t mixes_stride;
  float pre_epsilon, post_factor;
  float *pre, *post, *res;              ///< Forward.
  float const *d_pre, *d_post, *d_res;  ///< Backward.
  float *d_mixes, *d_scale, *d_base;
  std::int64_t d_mixes_stride;
  float* partial;         ///< 32 floats a block.
  unsigned* blocks_done;  ///< 0 between launches.
  bool vector;            ///< All arrays allow 16-byte accesses.
};

inline constexpr int kMhcSums = 27;  ///< 3 of scale, 24 of base.

/// What the arithmetic of the steps has to cater for. Ordered: each can do what those before it do.
enum class ProjectionMode { plain, guarded, general, log_domain };

/// One block a matrix, in shared memory: for what is larger than a tile.
std::int64_t block_bytes(int rows, int columns, bool backward);
std::int64_t block_count(std::int64_t batch, int multiprocessors);
void project_blocks(ProjectionArguments const& arguments, ProjectionMarginals const& marginals, int multiprocessors,
                    cudaStream_t stream);
/// Wants a history of block_count * pairs * (rows + columns) floats.
void project_backward_blocks(ProjectionArguments const& arguments, ProjectionMarginals const& marginals,
                             int multiprocessors, cudaStream_t stream);

/// Of the backward launch.
struct MhcShape {
  int blocks, threads;
  std::int64_t history_floats;  ///< 0: in shared memory.
};
MhcShape mhc_shape(ProjectionArguments const& arguments, int multiprocessors);
void mhc_forward(MhcArguments const& arguments, ProjectionMarginals const& marginals, ProjectionMode mode,
                 cudaStream_t stream);
void mhc_backward(MhcArguments const& arguments, ProjectionMarginals const& marginals, ProjectionMode mode,
                  int multiprocessors, cudaStream_t stream);

}  // namespace monge::cuda
