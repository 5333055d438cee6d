#include "cuda/projection/launch/sizes.hpp"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

using Forward16 = TileLayout<8, 8, 2, 2>;
using Backward16 = TileLayout<8, 8, 2, 2>;
MONGE_PROJECTION_SIZE(16, Forward16, Backward16, false)

}  // namespace monge::cuda
