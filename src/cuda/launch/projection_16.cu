#include "cuda/launch/projection_sizes.hpp"
#include "cuda/launch/projection_tile.cuh"

namespace monge::cuda {

using Forward16 = TileLayout<8, 8, 2, 2>;
using Backward16 = TileLayout<8, 8, 2, 2>;
MONGE_PROJECTION_SIZE(16, Forward16, Backward16, false)

}  // namespace monge::cuda
