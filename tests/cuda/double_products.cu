#include <algorithm>

#include "cuda/device/score_tile.cuh"
#include "cuda/double_products.hpp"
#include "oracle/cuda_check.hpp"

namespace monge::oracle {
namespace {

struct Matrices {
  double a[16][16], b[16][8], c[16][8];
};

/// One warp.
__global__ void multiply_kernel(Matrices* matrices) {
  int const lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  double a[8], b[4];
  for (int k = 0; k < 4; ++k) {
    a[2 * k] = matrices->a[g][4 * k + t];
    a[2 * k + 1] = matrices->a[g + 8][4 * k + t];
    b[k] = matrices->b[4 * k + t][g];
  }
  auto& c = matrices->c;
  cuda::mma_16x8x16_in_parts(c[g][2 * t], c[g][2 * t + 1], c[g + 8][2 * t], c[g + 8][2 * t + 1], a, b);
}

}  // namespace

void multiply_in_parts(double const* a, double const* b, double const* c, double* out) {
  Matrices* matrices = nullptr;
  check(cudaMallocManaged(&matrices, sizeof(Matrices)));
  std::copy_n(a, 16 * 16, &matrices->a[0][0]);
  std::copy_n(b, 16 * 8, &matrices->b[0][0]);
  std::copy_n(c, 16 * 8, &matrices->c[0][0]);
  multiply_kernel<<<1, 32>>>(matrices);
  check(cudaDeviceSynchronize());
  std::copy_n(&matrices->c[0][0], 16 * 8, out);
  check(cudaFree(matrices));
}

}  // namespace monge::oracle
