#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

TileFunctions const kTile64 = tile_functions<TileLayout<16, 8, 4, 8>, TileLayout<8, 8, 8, 8>>();

}  // namespace monge::cuda
