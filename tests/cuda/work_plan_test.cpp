// How the tiles of a pass are dealt out to the blocks of a grid: on the host, without a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cuda/pass/pass.hpp"
#include "cuda/sweep/tile_evaluation.hpp"

namespace monge::oracle {
namespace {

using cuda::WorkPlan;

/// Against the definition: the tiles are one sequence, row block after row block, cut into equal parts.
void expect_dealt_out(WorkPlan const& work, int row_blocks, int column_tiles, int resident_blocks) {
  ASSERT_EQ(work.row_blocks, row_blocks);
  ASSERT_EQ(work.tiles, row_blocks * column_tiles);
  EXPECT_EQ(work.grid, std::min(row_blocks * column_tiles, resident_blocks));

  std::vector<int> owners(static_cast<std::size_t>(work.tiles), -1);
  EXPECT_EQ(work.first_tile(0), 0);
  EXPECT_EQ(work.first_tile(work.grid), work.tiles);
  for (int block = 0; block < work.grid; ++block) {
    std::int64_t const first = work.first_tile(block), end = work.first_tile(block + 1), least = work.tiles / work.grid;
    EXPECT_TRUE(end - first == least || end - first == least + 1) << "block " << block << " has " << end - first;
    for (std::int64_t tile = first; tile < end; ++tile) {
      ASSERT_EQ(owners[static_cast<std::size_t>(tile)], -1) << "two blocks have tile " << tile;
      owners[static_cast<std::size_t>(tile)] = block;
    }
  }

  int most = 1;
  for (int row_block = 0; row_block < work.row_blocks; ++row_block) {
    std::int64_t const first = row_block * column_tiles, end = first + column_tiles;
    EXPECT_EQ(work.begin(row_block), first);
    std::set<int> own;
    for (std::int64_t tile = first; tile < end; ++tile) {
      ASSERT_EQ(work.row_block(tile), row_block) << "tile " << tile;
      ASSERT_EQ(work.owner(tile), owners[static_cast<std::size_t>(tile)]) << "tile " << tile;
      own.insert(work.owner(tile));
    }
    // The segments' slots, owner - first_owner, are then 0, 1, ... in the order of the tiles.
    ASSERT_EQ(work.slots_of(row_block), static_cast<int>(own.size()));
    EXPECT_EQ(work.first_owner(row_block), *own.begin());
    EXPECT_EQ(*own.rbegin() - *own.begin() + 1, static_cast<int>(own.size()));
    most = std::max(most, static_cast<int>(own.size()));
  }
  EXPECT_EQ(work.slots, most);
}

/// One block; as many as tiles, more and fewer; several blocks a row block; several row blocks a block.
constexpr int kResident[] = {1, 2, 6, 7, 15, 35, 36, 132, 1000};

TEST(WorkPlan, deals_out_all_tiles_of_equal_row_blocks) {
  for (auto const& [row_blocks, column_tiles] : {std::pair{1, 1}, {1, 300}, {200, 1}, {3, 5}, {5, 7}, {24, 23}}) {
    for (int const resident : kResident) {
      SCOPED_TRACE(testing::Message() << row_blocks << " x " << column_tiles << " tiles, " << resident << " blocks");
      WorkPlan const work = cuda::plan_work(row_blocks, 64, column_tiles, resident);
      EXPECT_EQ(work.rows_per_block, 64);
      expect_dealt_out(work, row_blocks, column_tiles, resident);
    }
  }
}

// The rectangles cover all tiles. No row or column of rectangles is empty, and there is a block for each.
TEST(WorkPlan, deals_out_rectangles_of_tiles) {
  for (auto const& [rows, columns] : {std::pair{1, 1}, {2, 300}, {200, 2}, {16, 16}, {158, 158}, {141, 140}}) {
    for (int const resident : kResident) {
      SCOPED_TRACE(testing::Message() << rows << " x " << columns << " tiles, " << resident << " blocks");
      cuda::TileEvaluationPlan const plan = cuda::plan_rectangles(rows, columns, resident);
      EXPECT_LE(plan.row_groups * plan.column_groups, resident);
      EXPECT_GE(plan.row_groups * plan.row_tiles, rows);
      EXPECT_GE(plan.column_groups * plan.column_tiles, columns);
      EXPECT_LT((plan.row_groups - 1) * plan.row_tiles, rows);
      EXPECT_LT((plan.column_groups - 1) * plan.column_tiles, columns);
    }
  }
}

// Most tiles of a block decide the time: 10,000 points a side on 396 blocks have 63 tiles a block on average.
TEST(WorkPlan, deals_out_rectangles_nearly_equally) {
  cuda::TileEvaluationPlan const plan = cuda::plan_rectangles(158, 158, 396);
  EXPECT_LE(plan.row_tiles * plan.column_tiles, 68);
}

// Ten million points a side have more tiles than an int holds.
TEST(WorkPlan, counts_beyond_int) {
  WorkPlan const work = cuda::plan_work(1 << 17, 64, 1 << 17, 1056);
  EXPECT_EQ(work.tiles, std::int64_t{1} << 34);
  for (int block = 0; block < work.grid; ++block) {
    std::int64_t const first = work.first_tile(block), last = work.first_tile(block + 1) - 1;
    ASSERT_LE(first, last);
    EXPECT_EQ(work.owner(first), block);
    EXPECT_EQ(work.owner(last), block);
    EXPECT_EQ(work.begin(work.row_block(last)) >> 17, work.row_block(last));
  }
  EXPECT_EQ(work.row_block(work.tiles - 1), (1 << 17) - 1);
}

}  // namespace
}  // namespace monge::oracle
