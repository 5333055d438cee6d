// Sums over the blocks of pairs that are expanded (struct Expansion). listed_pass.cu sums the other listed tiles.
#pragma once
#include "cuda/tiles/listed_pass.hpp"

namespace monge::cuda {

/// What a kernel of sums reads and writes, in the order of the rows' tree. A row has ListedTiles::parts partial sums of
/// listed tiles, and after them as many of expanded blocks.
struct ListedArguments {
  ListedTiles tiles;
  double factor;
  SweepParameters const* parameters;
  void const* references = nullptr;    // product
  void* partials = nullptr;            // softmin and product
  double const* row_logits = nullptr;  // evaluation
  double* sums = nullptr;
  double* costs = nullptr;
};

/// The sums of a softmin, or of an evaluation if there is memory for `sums`. The logits of the columns are in order.
void launch_expanded_sums(ListedArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
