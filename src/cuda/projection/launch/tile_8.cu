#include "cuda/projection/launch/sizes.hpp"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

using Forward8 = TileLayout<8, 8, 1, 1>;
using Backward8 = TileLayout<4, 4, 2, 2>;
MONGE_PROJECTION_SIZE(8, Forward8, Backward8, false)

}  // namespace monge::cuda
