// Hadamard-weighted products over listed tiles.
#pragma once
#include "cuda/tiles/listed_pass.hpp"

namespace monge::cuda {

/// L, R and V of (P o L R^T) V in the caller's memory, a row for each point.
struct HadamardProduct {
  StridedView left, right, values, out;
  int inner, width;          // Columns of L and R, and of V.
  double const* row_factor;  // P_ij = row_factor_i beta_j 2^(t_ij - reference_i)
  double const* weight;      // The columns' weights. Where one is 0, R and V are not read.
};
/// out = (P o L R^T) V, with logits, factors and references of Pass::product for a vector of ones. All vectors have the
/// caller's order.
void launch_listed_hadamard(ListedTiles const& tiles, HadamardProduct const& product, PassArguments const& arguments,
                            cudaStream_t stream);

}  // namespace monge::cuda
