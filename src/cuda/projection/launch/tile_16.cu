#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

TileFunctions const kTile16 = tile_functions<TileLayout<8, 8, 2, 2>, TileLayout<8, 8, 2, 2>>();

}  // namespace monge::cuda
