#include "cuda/projection/launch/sizes.hpp"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

using Forward64 = TileLayout<16, 8, 4, 8>;
using Backward64 = TileLayout<8, 8, 8, 8>;
MONGE_PROJECTION_SIZE(64, Forward64, Backward64, false)

}  // namespace monge::cuda
