#include "cuda/projection/launch/sizes.hpp"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

using Forward128 = TileLayout<16, 8, 8, 16>;
using Backward128 = TileLayout<8, 8, 16, 16>;
MONGE_PROJECTION_SIZE(128, Forward128, Backward128, false)

}  // namespace monge::cuda
