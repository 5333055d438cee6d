#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

TileFunctions const kTile4 = tile_functions<TileLayout<4, 4, 1, 1>, TileLayout<4, 4, 1, 1>, true>();

}  // namespace monge::cuda
