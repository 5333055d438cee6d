#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

TileFunctions const kTile8 = tile_functions<TileLayout<8, 8, 1, 1>, TileLayout<4, 4, 2, 2>>();

}  // namespace monge::cuda
