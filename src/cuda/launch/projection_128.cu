#include "cuda/launch/projection_sizes.hpp"
#include "cuda/launch/projection_tile.cuh"

namespace monge::cuda {

using Forward128 = TileLayout<16, 8, 8, 16>;
using Backward128 = TileLayout<8, 8, 16, 16>;
MONGE_PROJECTION_SIZE(128, Forward128, Backward128, false)

}  // namespace monge::cuda
