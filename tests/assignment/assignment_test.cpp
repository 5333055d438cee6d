// linear_sum_assignment() on each device: potentials of the pairs prove them optimal, and each device finds the pairs
// of one textbook loop, ties included.
#include <monge/assignment.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "oracle/backend_test.hpp"
#include "oracle/refusal.hpp"

namespace monge::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Kind { uniform, few, product, constant, wide, forbidden };
constexpr Kind kKinds[] = {Kind::uniform, Kind::few, Kind::product, Kind::constant, Kind::wide, Kind::forbidden};

/// Each cost is a float32 number.
std::vector<double> costs_of(Kind kind, std::int64_t n, std::int64_t m, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform;
  std::vector<double> costs;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      double const u = uniform(random);
      costs.push_back(kind == Kind::uniform    ? u
                      : kind == Kind::few      ? std::floor(3 * u)
                      : kind == Kind::product  ? static_cast<double>((i + 1) * (j + 1))
                      : kind == Kind::constant ? 2.5
                      : kind == Kind::wide     ? std::ldexp(uniform(random) - 0.5, static_cast<int>(80 * u) - 40)
                      : u < 0.7                ? kInfinity
                                               : std::floor(10 * u) - 5);
    }
  }
  return costs;
}

struct Expected {
  AssignmentStatus status = AssignmentStatus::optimal;
  std::vector<std::int64_t> rows, columns;
};

/// The method as Crouse writes it, with SciPy's list of open columns. Checks the optimum by the potentials.
Expected expected_of(std::vector<double> const& given, std::int64_t n, std::int64_t m, bool maximize = false) {
  bool const transposed = m < n;
  std::int64_t const rows = std::min(n, m), columns = std::max(n, m);
  std::vector<double> c(given.size());
  Expected expected;
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      double const cost = maximize ? -given[i * m + j] : given[i * m + j];
      if (std::isnan(cost) || cost == -kInfinity) expected.status = AssignmentStatus::invalid;
      if (std::isfinite(cost)) largest = std::max(largest, std::abs(cost));
      c[transposed ? j * n + i : i * m + j] = cost;
    }
  }
  if (expected.status != AssignmentStatus::optimal) return expected;
  std::vector<double> u(rows, 0), v(columns, 0);
  std::vector<std::int64_t> column_of(rows, -1), row_of(columns, -1), parent(columns, -1);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<double> distance(columns, kInfinity);
    std::vector<char> closed(columns, 0);
    std::vector<std::int64_t> list(columns);
    for (std::int64_t j = 0; j < columns; ++j) list[j] = columns - 1 - j;
    double length = 0;
    std::int64_t sink = -1;
    std::vector<std::int64_t> seen;
    for (std::int64_t i = row; sink < 0;) {
      seen.push_back(i);
      std::int64_t best = -1;
      double least = kInfinity;
      for (std::int64_t k = 0; k < std::ssize(list); ++k) {
        std::int64_t const j = list[k];
        double const through = length + c[i * columns + j] - u[i] - v[j];
        if (through < distance[j]) {
          distance[j] = through;
          parent[j] = i;
        }
        if (distance[j] < least || (distance[j] == least && row_of[j] < 0)) {
          least = distance[j];
          best = k;
        }
      }
      length = least;
      if (length == kInfinity) {
        expected.status = AssignmentStatus::infeasible;
        return expected;
      }
      std::int64_t const j = list[best];
      closed[j] = 1;
      if (row_of[j] < 0) sink = j;
      i = row_of[j];
      list[best] = list.back();
      list.pop_back();
    }
    for (std::int64_t const i : seen) u[i] += i == row ? length : length - distance[column_of[i]];
    for (std::int64_t j = 0; j < columns; ++j) v[j] -= closed[j] ? length - distance[j] : 0;
    for (std::int64_t j = sink, i = -1; i != row;) {
      i = parent[j];
      row_of[j] = i;
      std::swap(column_of[i], j);
    }
  }
  // Each potential is a sum of at most 2 rows^2 rounded terms no larger than rows * largest.
  double const slack = 1e-15 * static_cast<double>(rows * rows) * largest;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) EXPECT_GE(c[i * columns + j] - u[i] - v[j], -slack);
    EXPECT_LE(c[i * columns + column_of[i]] - u[i] - v[column_of[i]], slack);
  }
  for (std::int64_t j = 0; j < columns; ++j) EXPECT_LE(row_of[j] < 0 ? std::abs(v[j]) : v[j], slack);
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t const j = transposed ? row_of[i] : column_of[i];
    if (j < 0) continue;
    expected.rows.push_back(i);
    expected.columns.push_back(j);
  }
  return expected;
}

struct Found {
  Found(std::int64_t problems, std::int64_t pairs)
      : problems(problems), pairs(pairs), rows(problems * pairs, 77), columns(rows), status(problems, 77) {}
  AssignmentOutput output() {
    return {{rows.data(), problems, pairs, pairs, {}},
            {columns.data(), problems, pairs, pairs, {}},
            {status.data(), problems, 1, 1, {}}};
  }
  void expect(std::int64_t t, Expected const& expected) const {
    EXPECT_EQ(status[t], static_cast<std::int64_t>(expected.status)) << "problem " << t;
    for (std::int64_t k = 0; k < pairs; ++k) {
      bool const is_pair = k < std::ssize(expected.rows);
      ASSERT_EQ(rows[t * pairs + k], is_pair ? expected.rows[k] : -1) << "problem " << t << " pair " << k;
      ASSERT_EQ(columns[t * pairs + k], is_pair ? expected.columns[k] : -1) << "problem " << t << " pair " << k;
    }
  }
  std::int64_t problems, pairs;
  std::vector<std::int64_t> rows, columns, status;
};

class Assignments : public BackendTest {
 protected:
  Assignments() : BackendTest(2) {}

  /// A matrix in the precision of the target, with a gap between rows.
  class Stored {
   public:
    Stored(std::vector<double> const& costs, std::int64_t n, std::int64_t m, bool single)
        : rows_(n), columns_(m), stride_(m + 3), single_(single) {
      (single ? floats_.resize(n * stride_, -kInfinity), void() : doubles_.resize(n * stride_, -kInfinity), void());
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < m; ++j) {
          if (single) floats_[i * stride_ + j] = static_cast<float>(costs[i * m + j]);
          if (!single) doubles_[i * stride_ + j] = costs[i * m + j];
        }
      }
    }
    MatrixView view() const {
      void const* const data = single_ ? static_cast<void const*>(floats_.data()) : doubles_.data();
      return {data, single_ ? DataType::float32 : DataType::float64, rows_, columns_, stride_};
    }

   private:
    std::int64_t rows_, columns_, stride_;
    bool single_;
    std::vector<float> floats_;
    std::vector<double> doubles_;
  };
};

TEST_P(Assignments, are_those_of_the_textbook) {
  // On CUDA one warp and several, whole and with columns to spare.
  constexpr std::int64_t kSizes[][2] = {{1, 1},   {1, 40},  {40, 1},   {5, 5},     {32, 33},   {33, 32},
                                        {64, 64}, {65, 65}, {64, 130}, {200, 128}, {150, 300}, {257, 257}};
  for (bool const maximize : {false, true}) {
    std::vector<Stored> stored;
    std::vector<MatrixView> views;
    std::vector<Expected> expected;
    std::int64_t pairs = 0;
    for (auto const [n, m] : kSizes) {
      for (Kind const kind : kKinds) {
        std::vector<double> costs = costs_of(kind, n, m, static_cast<unsigned>(n * m));
        if (maximize) std::transform(costs.begin(), costs.end(), costs.begin(), std::negate<>());
        stored.emplace_back(costs, n, m, !is_float64());
        expected.push_back(expected_of(costs, n, m, maximize));
        pairs = std::max(pairs, std::min(n, m));
      }
    }
    for (Stored const& matrix : stored) views.push_back(matrix.view());
    Found found(std::ssize(views), pairs + 2);
    linear_sum_assignment(context(), views, found.output(), {.maximize = maximize});
    for (std::int64_t t = 0; t < found.problems; ++t) found.expect(t, expected[t]);
    EXPECT_TRUE(std::any_of(expected.begin(), expected.end(),
                            [](Expected const& one) { return one.status == AssignmentStatus::infeasible; }));
  }
}

TEST_P(Assignments, of_a_batch_have_sizes) {
  constexpr std::int64_t kBatch = 700, kRows = 6, kColumns = 9;  // More than a launch takes of a list.
  std::vector<double> costs = costs_of(Kind::few, kBatch * kRows, kColumns, 1);
  std::vector<std::int64_t> rows, columns;
  for (std::int64_t t = 0; t < kBatch; ++t) {
    rows.push_back(t % (kRows + 1));
    columns.push_back(t % (kColumns + 1));
    for (std::int64_t e = rows.back() * kColumns; e < kRows * kColumns; ++e) costs[t * kRows * kColumns + e] = NAN;
  }
  costs[5 * kRows * kColumns] = -kInfinity;
  std::vector<float> const floats(costs.begin(), costs.end());
  void const* const data = is_float64() ? static_cast<void const*>(costs.data()) : floats.data();
  BatchView const batch(data, is_float64() ? DataType::float64 : DataType::float32, kBatch, kRows, kColumns);
  Found found(kBatch, kRows);
  linear_sum_assignment(context(), batch, found.output(),
                        {.rows = {rows.data(), kBatch, 1, {}}, .columns = {columns.data(), kBatch, 1, {}}});
  for (std::int64_t t = 0; t < kBatch; ++t) {
    std::vector<double> part;
    for (std::int64_t i = 0; i < rows[t]; ++i) {
      for (std::int64_t j = 0; j < columns[t]; ++j) part.push_back(costs[(t * kRows + i) * kColumns + j]);
    }
    found.expect(t, expected_of(part, rows[t], columns[t]));
  }
  Found whole(kBatch, kRows);
  linear_sum_assignment(context(), batch, whole.output());
  EXPECT_EQ(whole.status[0], static_cast<std::int64_t>(AssignmentStatus::invalid));
  whole.expect(
      6, expected_of({costs.begin() + 6 * kRows * kColumns, costs.begin() + 7 * kRows * kColumns}, kRows, kColumns));
}

TEST_P(Assignments, of_one_matrix_are_errors_where_there_are_none) {
  std::vector<double> const costs{4, 1, 3, 2, 0, 5, 3, 2, 2};
  Assignment const found = linear_sum_assignment(context(), {costs.data(), 3, 3});
  EXPECT_EQ(found.row_indices, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(found.column_indices, (std::vector<std::int64_t>{1, 0, 2}));
  EXPECT_TRUE(linear_sum_assignment(context(), {costs.data(), 0, 3}).row_indices.empty());
  auto const refusal = [&](double cost, bool maximize = false) {
    return refusal_of([&] { linear_sum_assignment(context(), {&cost, 1, 1}, {.maximize = maximize}); });
  };
  EXPECT_EQ(refusal(kInfinity), "cost: cost matrix is infeasible; must leave a way to pair 1 rows and columns");
  EXPECT_EQ(refusal(-kInfinity, true), refusal(kInfinity));
  EXPECT_EQ(refusal(NAN), "cost: matrix contains invalid numeric entries; must have no NaN and no -inf");
  EXPECT_EQ(refusal(kInfinity, true), "cost: matrix contains invalid numeric entries; must have no NaN and no inf");
}

TEST_P(Assignments, refuse_wrong_arguments) {
  std::vector<double> const costs(12, 1);
  std::vector<std::int64_t> const sizes{2, 3};
  Found found(2, 2);
  BatchView const batch(costs.data(), DataType::float64, 2, 2, 3);
  auto const refusal = [&](BatchView const& given, AssignmentOutput const& out, AssignmentOptions const& options = {}) {
    return refusal_of([&] { linear_sum_assignment(context(), given, out, options); });
  };
  EXPECT_EQ(refusal(batch, found.output(), {.rows = {sizes.data(), 2, 1, {}}}),
            "rows: entry 1 is 3; must be from 0 to 2");
  EXPECT_EQ(refusal(batch, found.output(), {.columns = {sizes.data(), 1, 1, {}}}),
            "columns: has 1 entries; must have 2, one for each problem");
  EXPECT_EQ(refusal(batch, Found(2, 1).output()),
            "row_indices: has 1 columns; must have at least 2, the most pairs of a problem");
  EXPECT_EQ(refusal(batch, Found(3, 2).output()), "row_indices: is 3 x 2; must be 2 x 2");
  EXPECT_EQ(refusal({costs.data(), DataType::float16, 2, 2, 3}, found.output()),
            "cost: is float16; must be float32 or float64");
  EXPECT_EQ(refusal({costs.data(), DataType::float64, 2, 2, 3, 5}, found.output()),
            "cost: has batch stride 5; must be at least 6");
}

/// An empty tensor of a framework is a null pointer.
TEST_P(Assignments, take_an_empty_batch_without_memory) {
  float const* const none = nullptr;
  linear_sum_assignment(context(), BatchView(none, 0, 3, 3),
                        {{nullptr, 0, 3, 3}, {nullptr, 0, 3, 3}, {nullptr, 0, 1, 1}});
  EXPECT_EQ(refusal_of([&] {
              linear_sum_assignment(context(), BatchView(none, 1, 3, 3),
                                    {{nullptr, 1, 3, 3}, {nullptr, 1, 3, 3}, {nullptr, 1, 1, 1}});
            }),
            "cost: is a null pointer; must point to 3 x 3 values");
}

MONGE_FOR_EACH_OF(Assignments, std::vector<Target>({{DeviceType::cpu, Precision::float32},
                                                    {DeviceType::cpu, Precision::float64},
                                                    {DeviceType::cuda, Precision::float32},
                                                    {DeviceType::cuda, Precision::float64}}));

}  // namespace
}  // namespace monge::oracle
