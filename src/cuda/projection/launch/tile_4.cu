#include "cuda/projection/launch/sizes.hpp"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

using Forward4 = TileLayout<4, 4, 1, 1>;
using Backward4 = TileLayout<4, 4, 1, 1>;
MONGE_PROJECTION_SIZE(4, Forward4, Backward4, true)

}  // namespace monge::cuda
