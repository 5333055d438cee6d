// Pass::logits over listed tiles, for selections of entries.
#pragma once
#include <limits>

#include "cuda/tiles/listed_pass.hpp"

namespace monge::cuda {

/// The number of a column that only pads rows.
inline constexpr int kNoColumn = std::numeric_limits<int>::max();

/// The tiles whose rows are written, `count` of them from `first` on, and the columns of their rows.
struct ListedRows {
  int first = 0, count = 0;
  /// Each row has these first columns of the caller, too, in order; without entries unless they are listed.
  int fill = 0;
  std::uint32_t* listed = nullptr;  // Memory for a bit for each column, in whole words, for each tile.
  /// The caller's numbers j of the columns of each tile's rows, ascending, or ~j of a column without entries; then
  /// kNoColumn: [count][PassArguments::entries.stride].
  int* columns = nullptr;
};

/// The number of listed tiles of each tile of rows.
void count_listed(ListedTiles const& tiles, int* counts, cudaStream_t stream);
/// Writes Pass::logits for the rows and columns of `rows`. A row of entries has room for all columns of its tile. Row r
/// of the entries belongs to the point at place 32 first + r. The other vectors have the caller's order.
void launch_listed_logits(ListedTiles const& tiles, ListedRows const& rows, PassArguments const& arguments,
                          cudaStream_t stream);

}  // namespace monge::cuda
