#include "cuda/projection/launch/sizes.hpp"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

using Forward32 = TileLayout<8, 8, 4, 4>;
using Backward32 = TileLayout<8, 8, 4, 4>;
MONGE_PROJECTION_SIZE(32, Forward32, Backward32, false)

}  // namespace monge::cuda
