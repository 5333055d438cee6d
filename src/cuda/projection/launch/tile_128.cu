#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {

TileFunctions const kTile128 = tile_functions<TileLayout<16, 8, 8, 16>, TileLayout<8, 8, 16, 16>>();

}  // namespace monge::cuda
