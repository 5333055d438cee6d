// The generator behind draws from a plan, and the searches that turn its numbers into pairs.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "plan/sampling.hpp"

namespace monge {
namespace {

void expect_block(PhiloxBlock const& actual, PhiloxBlock const& expected) {
  for (int w = 0; w < 4; ++w) EXPECT_EQ(actual.word[w], expected.word[w]) << w;
}

// Known answers of the reference implementation, Random123.
TEST(Philox, gives_the_known_answers) {
  expect_block(philox({{0, 0, 0, 0}}, 0, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect_block(philox({{~0u, ~0u, ~0u, ~0u}}, ~0u, ~0u), {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_block(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
               {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

// Words 0 and 1 make the row's number, 2 and 3 the column's; seed and number take all of key and counter.
TEST(Draw, reads_all_bits_of_seed_and_number) {
  Draw const zero = draw(0, 0);
  EXPECT_EQ(zero.row, (static_cast<double>(0x6627e8d5e169c58d >> 12) + 0.5) * 0x1p-52);
  EXPECT_EQ(zero.column, (static_cast<double>(0xbc57ac4c9b00dbd8 >> 12) + 0.5) * 0x1p-52);
  for (int bit : {0, 31, 32, 63}) {
    EXPECT_NE(draw(std::uint64_t{1} << bit, 0).row, zero.row) << bit;
    EXPECT_NE(draw(0, std::uint64_t{1} << bit).row, zero.row) << bit;
  }
}

// The mean of 2 K uniforms has standard deviation 1 / sqrt(24 K), that of their squares sqrt(4 / 45 / (2 K)).
TEST(Draw, is_uniform) {
  constexpr int kDraws = 100000;
  double sum = 0, squares = 0, product = 0;
  for (int k = 0; k < kDraws; ++k) {
    Draw const one = draw(7, static_cast<std::uint64_t>(k));
    for (double const u : {one.row, one.column}) {
      ASSERT_GT(u, 0);
      ASSERT_LT(u, 1);
      sum += u;
      squares += u * u;
    }
    product += (one.row - 0.5) * (one.column - 0.5);
  }
  EXPECT_NEAR(sum / (2 * kDraws), 1.0 / 2, 4 / std::sqrt(24.0 * kDraws));
  EXPECT_NEAR(squares / (2 * kDraws), 1.0 / 3, 4 * std::sqrt(4.0 / 45 / (2 * kDraws)));
  EXPECT_NEAR(product / kDraws, 0, 4 / 12.0 / std::sqrt(kDraws));
}

TEST(FirstAbove, never_ends_where_nothing_is_added) {
  std::vector<double> const sums{0, 0, 1, 1, 3, 3};
  std::int64_t const count = 6;
  EXPECT_EQ(first_above(sums.data(), count, sample_target(1e-300, 3)), 2);
  EXPECT_EQ(first_above(sums.data(), count, std::nextafter(1.0, 0.0)), 2);
  EXPECT_EQ(first_above(sums.data(), count, 1), 4);
  // The largest number that is drawn.
  EXPECT_EQ(first_above(sums.data(), count, sample_target(1 - 0x1p-53, 3)), 4);
}

TEST(ColumnAbove, skips_columns_without_a_share) {
  std::vector<double> const shares{0, 1, 0, 2, 0};
  auto const column = [&](double target) { return column_above(5, 10, target, [&](int j) { return shares[j]; }); };
  EXPECT_EQ(column(10), 1);
  EXPECT_EQ(column(10.99), 1);
  EXPECT_EQ(column(11), 3);
  EXPECT_EQ(column(13), 3) << "the last that has a share, where rounding leaves the sum short";
}

}  // namespace
}  // namespace monge
