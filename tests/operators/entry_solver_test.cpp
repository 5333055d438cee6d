// Solving with a plan's largest entries.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>

#include "cpu/second_order/entry_solver.hpp"
#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class EntrySolverTest : public OperatorTest {
 protected:
  /// E, a and c of a problem with `per_row` random pairs a row, of random entries, whose matrix has the eigenvalues of
  /// diag(1/c) S in [least, 1]: no row or column has more than the root of 1 - least in its entries.
  struct System {
    std::int64_t n, m;
    std::vector<std::int64_t> rows, columns;
    std::vector<double> entries, a, c;

    std::vector<double> apply(std::vector<double> const& x) const {
      std::vector<double> between(n), out(m);
      for (std::size_t k = 0; k < entries.size(); ++k) between[rows[k]] += entries[k] * x[columns[k]];
      for (std::int64_t j = 0; j < m; ++j) out[j] = c[j] * x[j];
      for (std::size_t k = 0; k < entries.size(); ++k) out[columns[k]] -= entries[k] * between[rows[k]] / a[rows[k]];
      return out;
    }
  };
  static System make_system(std::int64_t n, std::int64_t m, std::int64_t per_row, double least, std::uint64_t seed) {
    System system{n, m, {}, {}, {}, std::vector<double>(n), std::vector<double>(m)};
    Random random(seed);
    for (std::int64_t i = 0; i < n; ++i) {
      std::vector<std::int64_t> all(m);
      std::iota(all.begin(), all.end(), 0);
      for (std::int64_t k = 0; k < std::min(per_row, m); ++k) {
        std::swap(all[k], all[k + static_cast<std::int64_t>(random.uniform(0, static_cast<double>(m - k)))]);
        system.rows.push_back(i);
        system.columns.push_back(all[k]);
        system.entries.push_back(random.uniform(0.1, 1));
        system.a[i] += system.entries.back();
        system.c[all[k]] += system.entries.back();
      }
    }
    double const share = std::sqrt(1 - least);
    for (double& a : system.a) a = a > 0 ? a / share : 1;
    for (double& c : system.c) c = c > 0 ? c / share : 1;
    return system;
  }

  std::vector<double> solve(PlanOperator const& plan, EntrySolver& solver, std::vector<double> const& right) const {
    VectorOperations const& vectors = plan.vectors();
    auto const in = vectors.make(Side::columns), out = vectors.make(Side::columns);
    vectors.read(VectorView(right), *in);
    solver.solve(nullptr, *in, *out);
    std::vector<double> result(right.size());
    vectors.write(*out, MutableVectorView(result));
    return result;
  }
  /// The solution for both sides, in place.
  struct Pair {
    std::vector<double> rows, columns;
  };
  Pair solve(PlanOperator const& plan, EntrySolver& solver, Pair const& right) const {
    VectorOperations const& vectors = plan.vectors();
    auto const rows = vectors.make(Side::rows), columns = vectors.make(Side::columns);
    vectors.read(VectorView(right.rows), *rows);
    vectors.read(VectorView(right.columns), *columns);
    solver.solve(rows.get(), *columns, *columns);
    Pair result = right;
    vectors.write(*rows, MutableVectorView(result.rows));
    vectors.write(*columns, MutableVectorView(result.columns));
    return result;
  }

  /// A plan with the entries of the system to rounding: costs -log E, eps 1, weights 1.
  std::unique_ptr<PlanOperator> plan_of(System const& system) {
    std::vector<double>& costs = costs_.emplace_back(system.n * system.m, std::numeric_limits<double>::infinity());
    Marginals marginals{std::vector<double>(system.n), std::vector<double>(system.m)};
    for (std::size_t k = 0; k < system.entries.size(); ++k) {
      costs[system.rows[k] * system.m + system.columns[k]] = -std::log(system.entries[k]);
      marginals.a[system.rows[k]] = marginals.b[system.columns[k]] = 1;
    }
    auto const entropic = backend_of(context()).entropic_operator(
        CostMatrix{MatrixView(costs.data(), system.n, system.m)}, marginals, {Precision::float64});
    entropic->set_potentials({}, {});
    return entropic->plan(1);
  }
  /// A solver for the pairs of the system, which have the only entries of `plan`. On the CPU fewer might be chosen.
  std::unique_ptr<EntrySolver> solver_of(PlanOperator& plan, System const& system) const {
    double const per_row = static_cast<double>(system.entries.size()) / static_cast<double>(system.n);
    if (context().device().type == DeviceType::cuda) return plan.entries().entry_solver(per_row);
    return std::make_unique<cpu::EntrySolver>(system.n, system.m, system.rows, system.columns, per_row);
  }
  static void set(EntrySolver& solver, PlanOperator& plan, System const& system) {
    auto const a = plan.vectors().make(Side::rows), c = plan.vectors().make(Side::columns);
    plan.vectors().read(VectorView(system.a), *a);
    plan.vectors().read(VectorView(system.c), *c);
    solver.set(plan.entries(), *a, *c);
  }

 private:
  std::deque<std::vector<double>> costs_;  // Costs of the plans, which read them where they are.
};
MONGE_FOR_EACH_POINT_TARGET(EntrySolverTest);

std::vector<double> random_vector(std::int64_t size, Random& random) {
  std::vector<double> values(size);
  for (double& value : values) value = random.uniform(-1, 1);
  return values;
}

double dot(std::vector<double> const& x, std::vector<double> const& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

/// |v| in the norm of diag(1/c), in which diag(1/c) S is symmetric.
double norm(std::vector<double> const& v, std::vector<double> const& c) {
  double sum = 0;
  for (std::size_t j = 0; j < v.size(); ++j) sum += v[j] * v[j] / c[j];
  return std::sqrt(sum);
}

TEST_P(EntrySolverTest, leaves_a_tenth_of_any_right_side_or_less) {
  Random random(1);
  for (auto const& [n, m, per_row] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {1, 9, 3}, {40, 1, 1}, {70, 50, 3}, {300, 217, 20}, {5, 600, 2}}) {
    for (double const least : {0.5, 0.05, 0.002}) {
      SCOPED_TRACE(testing::Message() << n << " x " << m << ", " << per_row << " a row, least " << least);
      System const system = make_system(n, m, per_row, least, 7);
      auto const plan = plan_of(system);
      auto const solver = solver_of(*plan, system);
      set(*solver, *plan, system);
      std::vector<double> const right = random_vector(m, random);
      std::vector<double> rest = system.apply(solve(*plan, *solver, right));
      for (std::int64_t j = 0; j < m; ++j) rest[j] = right[j] - rest[j];
      EXPECT_LE(norm(rest, system.c), 0.1 * norm(right, system.c));
    }
  }
}

// The columns solve a system with S, which leaves a tenth. The rows follow from them, to the error of a factor
// (tests/second_order/sparse_factor_test.cpp) or, on CUDA, to a few roundings of each row.
TEST_P(EntrySolverTest, solves_for_both_sides) {
  Random random(6);
  for (auto const& [n, m, per_row] : {std::array<std::int64_t, 3>{1, 1, 1}, {40, 1, 1}, {70, 50, 3}, {5, 600, 2}}) {
    SCOPED_TRACE(testing::Message() << n << " x " << m << ", " << per_row << " a row");
    System const system = make_system(n, m, per_row, 0.05, 7);
    auto const plan = plan_of(system);
    auto const solver = solver_of(*plan, system);
    set(*solver, *plan, system);
    Pair const right{random_vector(n, random), random_vector(m, random)};
    Pair const found = solve(*plan, *solver, right);
    std::vector<double> rest = right.rows, schur = right.columns, left = system.apply(found.columns);
    double size = 0;
    for (std::int64_t i = 0; i < n; ++i) size += std::sqrt(system.a[i]) * std::abs(found.rows[i]);
    for (std::int64_t j = 0; j < m; ++j) size += std::sqrt(system.c[j]) * std::abs(found.columns[j]);
    for (std::int64_t i = 0; i < n; ++i) rest[i] -= system.a[i] * found.rows[i];
    for (std::size_t k = 0; k < system.entries.size(); ++k) {
      std::int64_t const i = system.rows[k], j = system.columns[k];
      rest[i] -= system.entries[k] * found.columns[j];
      schur[j] -= system.entries[k] * right.rows[i] / system.a[i];
    }
    double const gamma = 0x1p-53 * static_cast<double>(3 * (n + m) + 1);
    for (std::int64_t i = 0; i < n; ++i) EXPECT_NEAR(rest[i], 0, gamma * std::sqrt(system.a[i]) * size) << "row " << i;
    for (std::int64_t j = 0; j < m; ++j) left[j] = schur[j] - left[j];
    EXPECT_LE(norm(left, system.c), 0.1 * norm(schur, system.c));
  }
}

TEST_P(EntrySolverTest, is_symmetric_and_positive_even_where_the_matrix_is_singular) {
  Random random(2);
  std::int64_t const n = 60, m = 45;
  for (double const least : {0.3, 1e-7, 0.0}) {
    SCOPED_TRACE(testing::Message() << "least " << least);
    System const system = make_system(n, m, 4, least, 9);
    auto const plan = plan_of(system);
    auto const solver = solver_of(*plan, system);
    set(*solver, *plan, system);
    std::vector<double> const x = random_vector(m, random), y = random_vector(m, random);
    std::vector<double> const of_x = solve(*plan, *solver, x), of_y = solve(*plan, *solver, y);
    double const size = std::sqrt(dot(x, of_x) * dot(y, of_y));
    EXPECT_GT(dot(x, of_x), 0);
    // A factor of a matrix with condition 1 / least has lost as many digits.
    EXPECT_NEAR(dot(x, of_y), dot(of_x, y), (1e-12 + 1e-15 / std::max(least, 1e-16)) * size);
    Pair const u{random_vector(n, random), x}, v{random_vector(n, random), y};
    Pair const of_u = solve(*plan, *solver, u), of_v = solve(*plan, *solver, v);
    auto const product = [](Pair const& p, Pair const& q) { return dot(p.rows, q.rows) + dot(p.columns, q.columns); };
    double const size_of_pairs = std::sqrt(product(u, of_u) * product(v, of_v));
    EXPECT_GT(product(u, of_u), 0);
    EXPECT_NEAR(product(u, of_v), product(of_u, v), (1e-12 + 1e-15 / std::max(least, 1e-16)) * size_of_pairs);
  }
}

TEST_P(EntrySolverTest, takes_other_values_and_gives_the_same_bits_for_the_same) {
  std::int64_t const n = 130, m = 90;
  System const first = make_system(n, m, 5, 0.2, 3);
  System second = first;
  for (double& entry : second.entries) entry *= 0.5;
  auto const plan = plan_of(first), other = plan_of(second);
  auto const solver = solver_of(*plan, first);
  Random random(5);
  std::vector<double> const right = random_vector(m, random);
  set(*solver, *plan, first);
  std::vector<double> const before = solve(*plan, *solver, right);
  set(*solver, *other, second);
  EXPECT_NE(solve(*plan, *solver, right), before);
  set(*solver, *plan, first);
  EXPECT_EQ(solve(*plan, *solver, right), before);
}

TEST_P(EntrySolverTest, without_entries_is_the_diagonal) {
  std::int64_t const n = 3, m = 5;
  System const system{n, m, {}, {}, {}, std::vector<double>(n, 0), {1, 2, 0, 4, 8}};
  std::vector<double> const right = {1, 1, 0, 1, 1};
  auto const plan = make_operator(make_case({n, m, 2}))->plan(1);
  auto const solver = solver_of(*plan, system);
  set(*solver, *plan, system);
  std::vector<double> const actual = solve(*plan, *solver, right), expected{1, 0.5, 0, 0.25, 0.125};
  for (std::size_t j = 0; j < expected.size(); ++j) EXPECT_NEAR(actual[j], expected[j], 0x1p-51 * expected[j]);
}

/// Entries that are given, in host memory; a solver asks for no others.
class GivenEntries final : public PlanEntries {
 public:
  std::vector<double> given;
  void entries_at(IndexView, IndexView, MutableVectorView values) override {
    std::copy(given.begin(), given.end(), values.as<double>());
  }
  void all(Side, MutableMatrixView) override { FAIL(); }
  void top_k(Side, MutableIndexView, MutableMatrixView) override { FAIL(); }
  std::int64_t count_above(double, MutableIndexView) override { return -1; }
  std::int64_t entries_above(double, MutableIndexView, MutableIndexView, MutableVectorView) override { return -1; }
  void sample(std::uint64_t, MutableIndexView) override { FAIL(); }
  std::unique_ptr<EntrySolver> entry_solver(double) override { return nullptr; }
};

TEST(EntrySolverOnCpu, is_the_diagonal_where_there_is_no_factor) {
  cpu::EntrySolver solver(2, 3, std::vector<std::int64_t>{0, 1, 1}, std::vector<std::int64_t>{0, 0, 1}, 2);
  std::vector<double> const a{4, 1}, c{1, 2, 0}, good{0.5, 0.5, 1};
  cpu::HostVectorOperations const operations(2, 3);
  VectorOperations const& vectors = operations;
  auto const of_rows = vectors.make(Side::rows), of_columns = vectors.make(Side::columns);
  vectors.read(VectorView(a), *of_rows);
  vectors.read(VectorView(c), *of_columns);
  auto const solve = [&](std::vector<double> const& entries) {
    std::vector<double> x{1, 1, 1}, z{1, 1};
    auto const vector = vectors.make(Side::columns), rows = vectors.make(Side::rows);
    vectors.read(VectorView(x), *vector);
    vectors.read(VectorView(z), *rows);
    GivenEntries plan;
    plan.given = entries;
    solver.set(plan, *of_rows, *of_columns);
    solver.solve(rows.get(), *vector, *vector);
    vectors.write(*vector, MutableVectorView(x));
    vectors.write(*rows, MutableVectorView(z));
    x.insert(x.end(), z.begin(), z.end());
    return x;
  };
  std::vector<double> const before = solve(good), diagonal{1, 0.5, 1, 0.25, 1};
  EXPECT_NE(before, diagonal);
  using Limits = std::numeric_limits<double>;
  for (double const bad : {2.0, Limits::infinity(), Limits::quiet_NaN()}) {
    EXPECT_EQ(solve({bad, 0.5, 1}), diagonal) << bad;
    EXPECT_EQ(solve(good), before);
  }
}

}  // namespace
}  // namespace monge::oracle
