#include "cuda/launch/projection_sizes.hpp"
#include "cuda/launch/projection_tile.cuh"

namespace monge::cuda {

using Forward4 = TileLayout<4, 4, 1, 1>;
using Backward4 = TileLayout<4, 4, 1, 1>;
MONGE_PROJECTION_SIZE(4, Forward4, Backward4, true)

}  // namespace monge::cuda
