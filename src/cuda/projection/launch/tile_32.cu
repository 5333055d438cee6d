#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

TileFunctions const kTile32 = tile_functions<TileLayout<8, 8, 4, 4>, TileLayout<8, 8, 4, 4>>();

}  // namespace monge::cuda
