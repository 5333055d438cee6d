// Lists of tiles of so many points that squares of 32 x 32 tiles and words of marks are several: at some points the
// sums against float64 sums over all pairs, the lists themselves, their memory and its end.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "cuda/backend.hpp"
#include "cuda/entropic/entropic_operator.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"

namespace monge::oracle {
namespace {

constexpr double kLeftOut = 1e-4;

struct Shape {
  std::string name;
  std::int64_t n, m, d;
  double blur;
  bool clusters = false;
  Weights weights = Weights::uniform;
  bool is_smooth = false;  // All pairs are kept, and almost all sums come from the expansion.
  double unit = 1;         // Of the coordinates and of the blur.
};
void PrintTo(Shape const& shape, std::ostream* out) {
  *out << "cuda_" << shape.name;
}

/// x and y^1.5 uniform in the cube, or both in 50 clusters.
Problem problem_of(Shape const& shape) {
  Random random(7);
  std::vector<double> centres(50 * shape.d);
  for (double& centre : centres) centre = random.uniform();
  auto const cloud = [&](std::int64_t n, double power) {
    std::vector<double> points(n * shape.d);
    for (std::int64_t e = 0; e < n * shape.d; ++e) {
      std::int64_t const i = e / shape.d, k = e % shape.d;
      points[e] = shape.unit * (shape.clusters ? centres[i * i % 50 * shape.d + k] + 0.01 * random.normal()
                                               : std::pow(random.uniform(), power));
    }
    return Stored(points, n, shape.d);
  };
  Stored const x = cloud(shape.n, 1), y = cloud(shape.m, 1.5);
  return {.x = x,
          .y = y,
          .a = make_weights(shape.weights, shape.n, 1, random),
          .b = make_weights(shape.weights, shape.m, 1, random)};
}

std::unique_ptr<EntropicOperator> make(Context const& context, Problem const& problem, Precision precision) {
  return backend_of(context).entropic_operator(problem.geometry(), {problem.a, problem.b},
                                               {precision, 0, {}, kLeftOut});
}

class KeptTiles : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    require_device(DeviceType::cuda);
    if (!IsSkipped() && !HasFatalFailure()) context_ = Context::cuda();
  }
  double eps() const { return std::pow(GetParam().blur * GetParam().unit, 2); }

  /// After some sweeps down a ladder.
  std::unique_ptr<EntropicOperator> swept(Problem const& problem, Precision precision) {
    auto entropic = make(context_, problem, precision);
    entropic->set_potentials({}, {});
    for (double const factor : {64.0, 16.0, 4.0, 1.0}) entropic->sweep({factor * eps()}, 3);
    return entropic;
  }

  Context context_ = Context::cpu();
};
// 33 words of tiles make two words of marks for a row of squares. More than 2^19 squares are counted before they get
// memory.
INSTANTIATE_TEST_SUITE_P(, KeptTiles,
                         testing::Values(Shape{"cube", 40001, 33333, 3, 0.02},
                                         Shape{"square", 1100, 70001, 2, 0.01, false, Weights::with_zeros},
                                         Shape{"clusters", 50003, 40000, 3, 0.01, true, Weights::with_zeros},
                                         Shape{"uneven", 36000, 40100, 5, 0.1, true, Weights::skewed},
                                         Shape{"one_tile", 31, 40000, 3, 0.1, false, Weights::skewed},
                                         Shape{"few_rows", 300, 40000, 1, 1, false, Weights::skewed},
                                         Shape{"all_kept", 9001, 34000, 1, 1},
                                         Shape{"smooth_line", 9001, 34000, 1, 0.6, false, Weights::skewed, true},
                                         Shape{"smooth_square", 33001, 36000, 2, 0.5, false, Weights::with_zeros, true},
                                         Shape{"smooth_cube", 40001, 33333, 3, 0.7, false, Weights::skewed, true},
                                         Shape{"half_smooth", 34000, 40001, 2, 0.1, false, Weights::skewed},
                                         Shape{"large_units", 33001, 36000, 2, 0.5, false, Weights::skewed, true, 1e7},
                                         Shape{"small_units", 9001, 34000, 1, 0.6, false, Weights::skewed, true, 1e-7},
                                         Shape{"counted", 760000, 750001, 3, 0.01}),
                         testing::PrintToStringParamName());

/// Entries P_ij of one point of a side, over all points of the other, in float64.
class Rows {
 public:
  Rows(Problem const& problem, Potentials const& potentials, double eps)
      : problem_(problem), potentials_(potentials), eps_(eps) {}
  std::vector<double> operator()(Side side, std::size_t i) const {
    bool const is_rows = side == Side::rows;
    std::vector<double> const &own = (is_rows ? problem_.x : problem_.y).values(),
                              &others = (is_rows ? problem_.y : problem_.x).values(),
                              &mass = is_rows ? problem_.b : problem_.a;
    double const weight = (is_rows ? problem_.a : problem_.b)[i];
    auto const d = static_cast<std::size_t>(problem_.d());
    std::vector<double> result(mass.size());
    for (std::size_t j = 0; j < mass.size(); ++j) {
      if (weight == 0 || mass[j] == 0) continue;
      double cost = 0;
      for (std::size_t c = 0; c < d; ++c) cost += std::pow(own[i * d + c] - others[j * d + c], 2);
      Real const value = potentials_.of(side)[i] + potentials_.of(other(side))[j];
      result[j] = weight * mass[j] * std::exp(static_cast<double>(value - cost) / eps_);
    }
    return result;
  }

 private:
  Problem const& problem_;
  Potentials const& potentials_;
  double eps_;
};

/// Some points of a side with `size` points.
std::vector<std::size_t> some(std::int64_t size) {
  std::vector<std::size_t> result;
  for (std::int64_t k = 0; k <= 16; ++k) result.push_back(static_cast<std::size_t>((size - 1) * k / 16));
  return result;
}

// The terms of an exponent are below 1e5, and at most 1e6 numbers are added. Entries may be denormal.
constexpr double kRounding = 1e-9, kDenormal = 1e-300;

TEST_P(KeptTiles, sums_lack_at_most_the_share) {
  Problem const problem = problem_of(GetParam());
  auto const entropic = swept(problem, Precision::float64);
  auto const rows = entropic->vectors().make(Side::rows), columns = entropic->vectors().make(Side::columns);
  Evaluation const value = entropic->evaluate(eps(), rows.get(), columns.get());
  EXPECT_LE(value.left_out, kLeftOut * value.mass * 1.001);
  Potentials const potentials = potentials_of(*entropic);
  Rows const entries(problem, potentials, eps());
  for (Side const side : {Side::rows, Side::columns}) {
    SCOPED_TRACE(side == Side::rows ? "rows" : "columns");
    std::vector<double> marginal(static_cast<std::size_t>(entropic->size(side)));
    entropic->vectors().write(side == Side::rows ? *rows : *columns, MutableVectorView(marginal));
    for (std::size_t const i : some(entropic->size(side))) {
      std::vector<double> const row = entries(side, i);
      double const expected = std::accumulate(row.begin(), row.end(), 0.0);
      // Sums of the expansion are multiplied by 1 - kLeftOut / 6.
      EXPECT_LE(marginal[i], expected * (1 + kRounding - (GetParam().is_smooth ? kLeftOut / 7 : 0))) << i;
      EXPECT_GE(marginal[i], expected * (1 - kLeftOut - kRounding)) << i;
    }
  }
}

// The last half-step of a sweep gives the columns their weights, up to what its sums lack and, in float32, the rounding
// of four numbers of the size of potentials and costs over eps. Its lists are
// made before the rows have their new potentials. The softmin of a row over a few near tiles stands for the new one. If
// the near tiles hold a quarter of the row's sum, this softmin is too high by eps log 4. The list of a column may then
// lack 4 times the share.
TEST_P(KeptTiles, half_steps_meet_their_marginal) {
  Problem const problem = problem_of(GetParam());
  for (Precision const precision : {Precision::float32, Precision::float64}) {
    bool const is_float = precision == Precision::float32;
    SCOPED_TRACE(is_float ? "float32" : "float64");
    Potentials const start = potentials_of(*swept(problem, precision));
    auto const entropic = make(context_, problem, precision);  // With lists for this sweep.
    entropic->set_potentials(narrow(start.f), narrow(start.g));
    entropic->sweep({eps()}, 1);
    auto const columns = entropic->vectors().make(Side::columns);
    Evaluation const value = entropic->evaluate(eps(), nullptr, columns.get());
    std::vector<double> marginal(problem.b.size());
    entropic->vectors().write(*columns, MutableVectorView(marginal));
    double size = static_cast<double>(problem.d()) * std::pow(GetParam().unit, 2);
    for (Side const side : {Side::rows, Side::columns})
      for (Real const value : start.of(side)) size = std::max(size, static_cast<double>(std::abs(value)));
    double const rounding = is_float ? 4 * 0x1p-24 * (3 * size / eps()) : kRounding;
    for (std::size_t j = 0; j < marginal.size(); ++j)
      ASSERT_NEAR(marginal[j], problem.b[j], (4 * kLeftOut + rounding) * problem.b[j] + kDenormal) << j;
    EXPECT_LE(value.column_error, 5 * kLeftOut + rounding);
  }
}

/// The k largest of a row.
void expect_largest(std::vector<double> const& row, std::span<std::int64_t const> found,
                    std::span<double const> values) {
  double const sum = std::accumulate(row.begin(), row.end(), 0.0);
  std::vector<double> sorted = row;
  std::ranges::sort(sorted, std::greater<>());
  std::vector<bool> seen(row.size());
  for (std::size_t q = 0; q < found.size(); ++q) {
    ASSERT_TRUE(found[q] >= 0 && found[q] < std::ssize(row)) << "rank " << q;
    auto const j = static_cast<std::size_t>(found[q]);
    ASSERT_FALSE(seen[j]) << "rank " << q;
    seen[j] = true;
    ASSERT_TRUE(q == 0 || values[q] <= values[q - 1]) << "rank " << q;
    ASSERT_NEAR(values[q], sorted[q], kRounding * sorted[q] + kLeftOut * sum) << "rank " << q;
    ASSERT_TRUE(values[q] == 0 || std::abs(values[q] - row[j]) <= kRounding * row[j] + kDenormal) << "rank " << q;
    ASSERT_TRUE(sum > 0 || j == q) << "rank " << q;
  }
}

TEST_P(KeptTiles, have_the_largest_entries_of_rows_and_columns) {
  Problem const problem = problem_of(GetParam());
  auto const entropic = swept(problem, Precision::float64);
  Potentials const potentials = potentials_of(*entropic);
  Rows const entries(problem, potentials, eps());
  auto const plan = entropic->plan(eps());
  for (Side const side : {Side::rows, Side::columns}) {
    std::int64_t const size = plan->size(side);
    std::map<std::size_t, std::vector<std::int64_t>> fewer;  // The result for a smaller k.
    for (std::int64_t const most : {5, 64, 900}) {
      std::int64_t const k = std::min(most, plan->size(other(side)));
      if (size * k > 40'000'000) continue;
      SCOPED_TRACE(testing::Message() << (side == Side::rows ? "rows" : "columns") << ", k " << k);
      std::vector<std::int64_t> indices(static_cast<std::size_t>(size * k), -7);
      std::vector<double> values(indices.size(), -7);
      plan->entries().top_k(side, {indices.data(), size, k, k}, MutableMatrixView(values.data(), size, k));
      for (std::size_t const i : some(size)) {
        SCOPED_TRACE(testing::Message() << "point " << i);
        auto const count = static_cast<std::size_t>(k);
        expect_largest(entries(side, i), std::span(indices).subspan(i * count, count),
                       std::span(values).subspan(i * count, count));
        if (HasFatalFailure()) return;
        // A row with few listed pairs has points without entries, by index.
        for (std::size_t q = 0; q < std::min(count, fewer[i].size()); ++q)
          ASSERT_EQ(indices[i * count + q], fewer[i][q]);
        fewer[i].assign(indices.begin() + i * k, indices.begin() + (i + 1) * k);
      }
    }
  }
}

TEST_P(KeptTiles, have_the_entries_above_a_threshold_in_order) {
  Problem const problem = problem_of(GetParam());
  std::int64_t const n = problem.n();
  if (n > 100'000) GTEST_SKIP() << "the entries would take gigabytes";
  auto const entropic = swept(problem, Precision::float64);
  Potentials const potentials = potentials_of(*entropic);
  Rows const entries(problem, potentials, eps());
  auto const plan = entropic->plan(eps());
  // No entry above it may be left out.
  std::vector<double> marginal(static_cast<std::size_t>(n));
  plan->vectors().write(plan->marginal(Side::rows), MutableVectorView(marginal));
  double const threshold = 2 * kLeftOut * std::ranges::max(marginal);
  std::vector<std::int64_t> row_begin(static_cast<std::size_t>(n + 1), -7);
  std::int64_t const total = plan->entries().count_above(threshold, {row_begin.data(), n + 1, 1, 1});
  EXPECT_TRUE(total > 0 || GetParam().blur == 1);
  std::vector<std::int64_t> columns(static_cast<std::size_t>(total), -7);
  std::vector<double> values(columns.size(), -7);
  EXPECT_EQ(plan->entries().entries_above(threshold, {row_begin.data(), n + 1, 1, 1}, {columns.data(), total, 1, 1},
                                          MutableVectorView(values)),
            n);
  for (std::size_t const i : some(n)) {
    SCOPED_TRACE(testing::Message() << "row " << i);
    std::vector<double> const row = entries(Side::rows, i);
    auto at = static_cast<std::size_t>(row_begin[i]);
    for (std::size_t j = 0; j < row.size(); ++j) {
      if (row[j] <= threshold) continue;
      ASSERT_LT(at, static_cast<std::size_t>(row_begin[i + 1]));
      ASSERT_EQ(columns[at], static_cast<std::int64_t>(j));
      ASSERT_NEAR(values[at], row[j], kRounding * row[j]);
      ++at;
    }
    ASSERT_EQ(at, static_cast<std::size_t>(row_begin[i + 1]));
  }
}

TEST_P(KeptTiles, have_all_entries_or_zeros) {
  Problem const problem = problem_of(GetParam());
  if (problem.n() * problem.m() > 10'000'000) GTEST_SKIP() << "all entries would take gigabytes";
  auto const entropic = swept(problem, Precision::float64);
  Potentials const potentials = potentials_of(*entropic);
  Rows const entries(problem, potentials, eps());
  auto const plan = entropic->plan(eps());
  for (Side const side : {Side::rows, Side::columns}) {
    SCOPED_TRACE(side == Side::rows ? "rows" : "columns");
    std::int64_t const size = plan->size(side), others = plan->size(other(side));
    std::vector<double> found(static_cast<std::size_t>(size * others), -7);
    plan->entries().all(side, MutableMatrixView(found.data(), size, others));
    for (std::size_t const i : some(size)) {
      std::vector<double> const row = entries(side, i);
      double const sum = std::accumulate(row.begin(), row.end(), 0.0);
      double lost = 0;
      for (std::size_t j = 0; j < row.size(); ++j) {
        double const value = found[i * row.size() + j];
        ASSERT_TRUE(value == 0 || std::abs(value - row[j]) <= kRounding * row[j] + kDenormal) << i << ", " << j;
        if (value == 0) lost += row[j];
      }
      EXPECT_LE(lost, kLeftOut * sum) << i;
    }
  }
}

// Factors of more columns than a walk over the tiles takes, values of more than a block has.
TEST_P(KeptTiles, have_the_products_that_factors_weigh) {
  Problem const problem = problem_of(GetParam());
  if (problem.n() > 100'000) GTEST_SKIP() << "the factors would take long";
  auto const entropic = swept(problem, Precision::float64);
  Potentials const potentials = potentials_of(*entropic);
  Rows const entries(problem, potentials, eps());
  auto const plan = entropic->plan(eps());
  constexpr std::size_t kInner = 11, kWidth = 5;
  Random random(9);
  for (Side const side : {Side::rows, Side::columns}) {
    SCOPED_TRACE(side == Side::rows ? "rows" : "columns");
    std::int64_t const size = plan->size(side), others = plan->size(other(side));
    std::vector<double> const l = gaussian_points(size, kInner, random), r = gaussian_points(others, kInner, random),
                              v = gaussian_points(others, kWidth, random);
    std::vector<double> out(static_cast<std::size_t>(size) * kWidth, -7);
    plan->multiply_hadamard(side, MatrixView(l.data(), size, kInner), MatrixView(r.data(), others, kInner),
                            MatrixView(v.data(), others, kWidth), MutableMatrixView(out.data(), size, kWidth));
    for (std::size_t const i : some(size)) {
      std::vector<double> const row = entries(side, i);
      double const sum = std::accumulate(row.begin(), row.end(), 0.0);
      double expected[kWidth] = {}, terms[kWidth] = {}, largest[kWidth] = {};
      for (std::size_t j = 0; j < row.size(); ++j) {
        double const weight =
            std::inner_product(l.begin() + i * kInner, l.begin() + (i + 1) * kInner, r.begin() + j * kInner, 0.0);
        for (std::size_t p = 0; p < kWidth; ++p) {
          double const term = weight * v[j * kWidth + p];
          expected[p] += row[j] * term;
          terms[p] += row[j] * std::abs(term);
          largest[p] = std::max(largest[p], std::abs(term));
        }
      }
      for (std::size_t p = 0; p < kWidth; ++p) {
        EXPECT_NEAR(out[i * kWidth + p], expected[p], kRounding * terms[p] + kLeftOut * sum * largest[p])
            << i << ", " << p;
      }
    }
  }
}

TEST_P(KeptTiles, draw_pairs_as_often_as_their_mass) {
  Problem const problem = problem_of(GetParam());
  auto const entropic = swept(problem, Precision::float64);
  auto const plan = entropic->plan(eps());
  constexpr std::int64_t kDraws = 40'000;
  std::vector<std::int64_t> pairs(2 * kDraws, -7), again(2 * kDraws, -7);
  plan->entries().sample(17, {pairs.data(), kDraws, 2, 2});
  plan->entries().sample(17, {again.data(), kDraws, 2, 2});
  EXPECT_EQ(pairs, again);
  Random random(8);
  std::vector<double> u(static_cast<std::size_t>(problem.n())), v(static_cast<std::size_t>(problem.m()));
  for (std::vector<double>* const signs : {&u, &v}) {
    for (double& value : *signs) value = random.uniform() < 0.5 ? -1 : 1;
  }
  std::vector<double> product(u.size()), marginal(u.size());
  plan->multiply(Side::rows, Scaling::plan, MatrixView(v.data(), problem.m(), 1),
                 MutableMatrixView(product.data(), problem.n(), 1));
  plan->vectors().write(plan->marginal(Side::rows), MutableVectorView(marginal));
  double expected = 0, mean = 0;
  for (std::size_t i = 0; i < u.size(); ++i) expected += u[i] * product[i];
  expected /= std::accumulate(marginal.begin(), marginal.end(), 0.0);
  std::vector<std::int64_t> rows, columns;
  for (std::int64_t p = 0; p < kDraws; ++p) {
    rows.push_back(pairs[2 * p]);
    columns.push_back(pairs[2 * p + 1]);
    ASSERT_TRUE(rows[p] >= 0 && rows[p] < problem.n() && columns[p] >= 0 && columns[p] < problem.m()) << p;
    mean += u[rows[p]] * v[columns[p]] / kDraws;
  }
  EXPECT_NEAR(mean, expected, 5 / std::sqrt(kDraws));  // Five standard deviations.
  std::vector<double> entries(kDraws);
  plan->entries().entries_at({rows.data(), kDraws}, {columns.data(), kDraws}, MutableVectorView(entries));
  EXPECT_GT(std::ranges::min(entries), 0);
}

/// A list on the host.
struct HostList {
  HostList(cuda::Runtime const& runtime, cuda::ListedTiles const& tiles)
      : row_tiles(tiles.rows.tiles()), column_tiles(tiles.columns.tiles()), mark_words(tiles.bits.mark_words) {
    std::int64_t const size = (row_tiles + 31) / 32 * std::int64_t{mark_words};
    marks = cuda::download(runtime, tiles.bits.marks, size);
    first = cuda::download(runtime, tiles.bits.first, size + 1);
    squares = cuda::download(runtime, tiles.bits.squares, 32 * first.back());
  }
  /// The word of a row of a square; 0 where it is not marked.
  std::uint32_t word(std::int64_t row, std::int64_t column_word) const {
    std::size_t const at = static_cast<std::size_t>(row / 32 * mark_words + column_word / 32);
    std::uint32_t const mark = std::uint32_t{1} << column_word % 32;
    if ((marks[at] & mark) == 0) return 0;
    return squares[static_cast<std::size_t>((first[at] + std::popcount(marks[at] & (mark - 1))) * 32 + row % 32)];
  }
  bool has(std::int64_t row, std::int64_t column) const { return word(row, column / 32) >> column % 32 & 1; }

  std::int64_t row_tiles, column_tiles;
  int mark_words;
  std::vector<std::uint32_t> marks, squares;
  std::vector<std::int64_t> first;
};

cuda::Potentials& copied(EntropicOperator const& entropic, cuda::SharedRuntime const& runtime, cuda::Potentials& to) {
  for (Side const side : {Side::rows, Side::columns}) {
    int const s = side == Side::rows ? 0 : 1;
    to[s] = cuda::DeviceVector(runtime, entropic.size(side));
    entropic.vectors().copy(entropic.potential(side), to[s]);
  }
  return to;
}

/// Expects that two lists hold the same pairs; their number.
std::int64_t count_pairs(HostList const& rows, HostList const& columns) {
  std::int64_t kept = 0, different = 0, of_columns = 0;
  for (std::int64_t row = 0; row < rows.row_tiles; ++row) {
    for (std::int64_t word = 0; word < (rows.column_tiles + 31) / 32; ++word) {
      std::uint32_t const bits = rows.word(row, word);
      kept += std::popcount(bits);
      for (int k = 0; k < 32; ++k) {
        if (bits >> k & 1) different += columns.has(word * 32 + k, row) ? 0 : 1;
      }
    }
  }
  for (std::int64_t row = 0; row < columns.row_tiles; ++row) {
    for (std::int64_t word = 0; word < (columns.column_tiles + 31) / 32; ++word)
      of_columns += std::popcount(columns.word(row, word));
  }
  EXPECT_EQ(different, 0);
  EXPECT_EQ(of_columns, kept);
  return kept;
}

TEST_P(KeptTiles, lists_of_both_sides_hold_the_same_pairs) {
  Problem const problem = problem_of(GetParam());
  auto const entropic = swept(problem, Precision::float32);
  cuda::Problem const& of = static_cast<cuda::EntropicOperator const&>(*entropic).problem();
  cuda::Potentials potentials;
  cuda::PlanTiles tiles(of, cuda::PlanTiles::Sums::listed);
  for (int time : {0, 1}) {  // The second search finds the memory of the first.
    tiles.find(copied(*entropic, of.runtime, potentials), (1 + time) * eps());
    HostList const rows(*of.runtime, tiles.of(Side::rows)), columns(*of.runtime, tiles.of(Side::columns));
    EXPECT_EQ(rows.first.back(), columns.first.back());
    std::int64_t const kept = count_pairs(rows, columns);
    EXPECT_GE(kept, std::max(rows.row_tiles, rows.column_tiles));
    std::int64_t const all = rows.row_tiles * rows.column_tiles;
    EXPECT_TRUE(GetParam().blur >= 0.1 || kept < all / 4) << kept << " of " << all;
    EXPECT_TRUE(GetParam().blur < 1 || kept == all) << kept << " of " << all;
  }
}

// After a sweep over new lists its operator has thinner ones. A row lacks the share that bounds left out, and as much
// again that the sweep has measured; a column lacks up to four shares by bounds (see above). Penalties with a start in
// another gauge translate the potentials by many eps in the middle of the sweep.
TEST_P(KeptTiles, sweeps_leave_out_at_most_two_shares) {
  Problem const problem = problem_of(GetParam());
  Potentials const start = potentials_of(*swept(problem, Precision::float32));
  for (auto const& [penalty, offset] : {std::pair{kInfinity, 0.0}, {10.0, 1.0}, {10.0, -1.0}}) {
    SCOPED_TRACE(testing::Message() << "penalty " << penalty << ", offset " << offset);
    double const unit = GetParam().unit * GetParam().unit;
    std::vector<double> f = narrow(start.f), g = narrow(start.g);
    for (double& value : f) value += offset * unit;
    for (double& value : g) value -= offset * unit;
    auto const entropic = backend_of(context_).entropic_operator(
        problem.geometry(), {problem.a, problem.b},
        {Precision::float32, 0, Penalties{penalty * unit, penalty * unit}, kLeftOut});
    entropic->set_potentials(f, g);
    auto const& of = static_cast<cuda::EntropicOperator const&>(*entropic);
    cuda::Runtime const& runtime = *of.problem().runtime;
    cuda::Potentials before, after;
    (void)copied(*entropic, of.problem().runtime, before);
    entropic->sweep({eps()}, 1);
    (void)copied(*entropic, of.problem().runtime, after);
    cuda::PlanTiles all(of.problem(), cuda::PlanTiles::Sums::listed);
    std::int64_t pairs = 0;
    for (Side const side : {Side::rows, Side::columns}) {
      SCOPED_TRACE(side == Side::rows ? "rows" : "columns");
      cuda::Potentials const& at = side == Side::rows ? before : after;  // Of the half-step of this side.
      all.find(at, eps());
      auto const transforms = [&](cuda::ListedTiles const& tiles) {
        cuda::Transform const found = cuda::transform(of.problem(), side, at, eps(), &tiles);
        return cuda::download(runtime, found.plus.data(), found.plus.size());
      };
      std::vector<double> const full = transforms(all.of(side)), thin = transforms(of.tiles()->of(side));
      double const share = (side == Side::rows ? 2 : 5) * kLeftOut;
      // The sums have other tiles; each is rounded by a few units of the last place of float32.
      for (std::size_t i = 0; i < full.size(); ++i) ASSERT_LE((thin[i] - full[i]) / eps(), share * 1.01 + 4e-6) << i;
      if (side == Side::rows)
        pairs = count_pairs(HostList(runtime, all.of(Side::rows)), HostList(runtime, all.of(Side::columns)));
    }
    std::int64_t const kept =
        count_pairs(HostList(runtime, of.tiles()->of(Side::rows)), HostList(runtime, of.tiles()->of(Side::columns)));
    // If the sweep translates the potentials by many eps, all its parts are out of the range of bins, and stay.
    EXPECT_TRUE(GetParam().blur >= 0.1 || offset != 0 || kept < pairs) << kept << " of " << pairs;
  }
}

TEST_P(KeptTiles, are_bitwise_repeatable) {
  Problem const problem = problem_of(GetParam());
  for (Precision const precision : {Precision::float32, Precision::float64}) {
    auto const first = swept(problem, precision), second = swept(problem, precision);
    Potentials const one = potentials_of(*first), two = potentials_of(*second);
    EXPECT_EQ(one.f, two.f);
    EXPECT_EQ(one.g, two.g);
    EXPECT_EQ(first->evaluate(eps()).dual, second->evaluate(eps()).dual);
  }
}

class MemoryOfTiles : public testing::Test {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
};

// A bit for each pair of tiles would take n m / 8192 bytes for each side. The vectors, models and sums of 760,000
// points take less than 100 MB.
TEST_F(MemoryOfTiles, cuda_is_that_of_squares_with_mass) {
  Context const context = Context::cuda();
  Problem const problem = problem_of({"", 1500000, 1400000, 3, 0.01});
  auto const entropic = make(context, problem, Precision::float32);
  entropic->set_potentials({}, {});
  cuda::Problem const& of = static_cast<cuda::EntropicOperator const&>(*entropic).problem();
  cuda::Potentials potentials;
  (void)copied(*entropic, of.runtime, potentials);
  MemoryCount& count = backend_of(context).memory();
  std::int64_t const before = MemoryPeak(count).bytes();
  MemoryPeak const peak(count);
  cuda::PlanTiles tiles(of, cuda::PlanTiles::Sums::listed);
  tiles.find(potentials, 0.01 * 0.01);
  std::int64_t const squares = HostList(*of.runtime, tiles.of(Side::rows)).first.back();
  EXPECT_LT(squares, problem.n() / 1024 * (problem.m() / 1024) / 8);
  std::int64_t const vectors = 100 * (problem.n() + problem.m());
  EXPECT_GE(peak.bytes() - before, 2 * 128 * squares);
  EXPECT_LT(peak.bytes() - before, 2 * 128 * squares + vectors);
}

// The second search needs more memory for squares than the first.
TEST_F(MemoryOfTiles, cuda_may_end_and_the_next_call_is_right) {
  Shape const shape{"", 760000, 750001, 3, 0.02};
  Problem const problem = problem_of(shape);
  double const eps = shape.blur * shape.blur;
  Pool pool;
  {
    Context const context = Context::cuda({.allocator = pool.allocator()});
    using Call = void (*)(EntropicOperator&, double);
    Call const calls[] = {[](EntropicOperator& entropic, double at) { entropic.sweep({at}, 2); },
                          [](EntropicOperator& entropic, double at) { (void)entropic.evaluate(at); }};
    // Makes both calls. A call whose allocation k fails is made again. Returns the number of such calls.
    auto const run = [&](int k, Potentials& potentials, double& dual) {
      auto const entropic = make(context, problem, Precision::float32);
      entropic->set_potentials({}, {});
      entropic->sweep({eps / 16}, 2);
      int failures = 0;
      int const enough = pool.limit;
      for (Call const call : calls) {
        pool.limit = pool.allocations + k;
        try {
          call(*entropic, eps);
          pool.limit = enough;
        } catch (Error const& error) {
          EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
          ++failures;
          pool.limit = enough;
          call(*entropic, eps);
        }
      }
      potentials = potentials_of(*entropic);
      dual = entropic->evaluate(eps).dual;
      return failures;
    };
    Potentials expected, found;
    double dual = 0, other_dual = 0;
    EXPECT_EQ(run(100000, expected, dual), 0);
    int k = 0;
    for (; run(k, found, other_dual) > 0 && !HasFailure(); ++k) {
      SCOPED_TRACE(testing::Message() << "allocation " << k << " fails");
      EXPECT_EQ(found.f, expected.f);
      EXPECT_EQ(found.g, expected.g);
      EXPECT_EQ(other_dual, dual);
    }
    EXPECT_GT(k, 3);
  }
  EXPECT_TRUE(pool.out.empty());
}

}  // namespace
}  // namespace monge::oracle
