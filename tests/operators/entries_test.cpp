// Entries of the plan one by one, against the oracle's plan.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "operators/cases.hpp"
#include "plan/sampling.hpp"

namespace monge::oracle {
namespace {

/// n x k indices in rows of `padding` more, which hold -7.
class Indices {
 public:
  Indices(std::int64_t rows, std::int64_t columns, std::int64_t padding)
      : rows_(rows), columns_(columns), stride_(columns + padding), values_(rows * stride_, -7) {}
  MutableIndexView view() { return {values_.data(), rows_, columns_, stride_, {}}; }
  /// The first column.
  IndexView readable() const { return {values_.data(), rows_, stride_, {}}; }
  std::int64_t operator()(std::int64_t i, std::int64_t q) const { return values_[i * stride_ + q]; }
  std::int64_t& operator()(std::int64_t i, std::int64_t q) { return values_[i * stride_ + q]; }
  bool padding_untouched() const {
    for (std::size_t at = 0; at < values_.size(); ++at) {
      if (static_cast<std::int64_t>(at) % stride_ >= columns_ && values_[at] != -7) return false;
    }
    return true;
  }
  std::vector<std::int64_t> column(std::int64_t q) const {
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < rows_; ++i) result.push_back((*this)(i, q));
    return result;
  }

 private:
  std::int64_t rows_, columns_, stride_;
  std::vector<std::int64_t> values_;
};

struct TopK {
  TopK(PlanOperator& plan, Side side, std::int64_t k)
      : indices(plan.size(side), k, 2),
        stored(std::vector<double>(plan.size(side) * k), plan.size(side), k, DataType::float64, 1) {
    plan.entries().top_k(side, indices.view(), stored.mutable_view());
    EXPECT_TRUE(indices.padding_untouched());
    EXPECT_TRUE(stored.padding_untouched());
    values = stored.values();
  }
  Indices indices;
  Stored stored;
  std::vector<double> values;
};

class Entries : public OperatorTest {
 protected:
  /// Plans of tf32 problems are made in float32.
  Arithmetic arithmetic(std::int64_t d) const {
    Precision const own = precision() == Precision::tf32 ? Precision::float32 : precision();
    return oracle::arithmetic({GetParam().device}, own, d, GetParam().costs);
  }
  /// With the geometry of the target.
  Case make_case(Recipe recipe) const {
    recipe.costs = GetParam().costs;
    return Case(recipe, arithmetic(recipe.d));
  }
  /// ln P_ij, i of `side`; minus infinity where a weight is 0.
  static Vector logarithms(Case const& test, Side side, std::int64_t i) {
    Vector result(test.dense.size(other(side)));
    for (std::size_t j = 0; j < result.size(); ++j) {
      Real const weight = Real(test.dense.weights(side)[i]) * test.dense.weights(other(side))[j];
      result[j] = weight == 0 ? -std::numeric_limits<Real>::infinity()
                              : std::log(weight) + (test.potentials.of(side)[i] + test.potentials.of(other(side))[j] -
                                                    test.dense.cost(side, i, j)) /
                                                       test.eps;
    }
    return result;
  }
  /// Error of ln P_ij: logit and the rounding of its difference to the row's reference, which is not above it by more
  /// than `depth` nats.
  Real logarithm_error(Case const& test, Real plan_error, Real depth) const {
    return std::log1p(plan_error) + 2 * arithmetic(test.problem.d()).unit * (1 + depth);
  }

  void check_top_k(Case const& test, PlanOperator& plan, Side side, std::int64_t k) {
    TopK const top(plan, side, k);
    Vector const plan_error = test.tolerance.plan(side, test.potentials);
    Vector const marginal = test.dense.marginal(side, test.eps, test.potentials);
    for (std::int64_t i = 0; i < plan.size(side); ++i) {
      SCOPED_TRACE(testing::Message() << (side == Side::rows ? "row " : "column ") << i << ", k " << k);
      Vector const exact = logarithms(test, side, i);
      Vector sorted = exact;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      std::vector<bool> seen(exact.size());
      for (std::int64_t q = 0; q < k; ++q) {
        std::int64_t const j = top.indices(i, q);
        ASSERT_TRUE(j >= 0 && j < static_cast<std::int64_t>(exact.size())) << j;
        ASSERT_FALSE(seen[j]) << j;
        seen[j] = true;
        double const value = top.values[i * k + q];
        ASSERT_TRUE(q == 0 || value <= top.values[i * k + q - 1]) << q;
        if (std::isinf(sorted[q])) {
          // From here on there are no entries: indices ascend among those that are left.
          ASSERT_EQ(value, 0);
          ASSERT_TRUE(std::isinf(exact[j])) << "an entry comes after pairs that have none";
          ASSERT_TRUE(q == 0 || !std::isinf(sorted[q - 1]) || j > top.indices(i, q - 1)) << q;
          continue;
        }
        Real const depth = std::abs(sorted[q] - std::log(marginal[i]));
        // Entries that the operator may leave out rank by index.
        if (GetParam().truncation > 0 && depth >= -std::log(Real(GetParam().truncation))) break;
        Real const error = logarithm_error(test, plan_error[i], depth);
        // A column may stand in the place of another if their logarithms are within the errors of both.
        ASSERT_NEAR(exact[j], sorted[q], static_cast<double>(2 * error)) << "rank " << q;
        Real const entry = std::exp(exact[j]);
        ASSERT_NEAR(value, entry, static_cast<double>(std::expm1(error) * entry) + 1e-307) << "rank " << q;
      }
    }
  }
};
MONGE_FOR_EACH_COST_TARGET(Entries);
MONGE_FOR_EACH_ORDERED(Entries);

class EntriesOfPoints : public Entries {};
MONGE_FOR_EACH_POINT_TARGET(EntriesOfPoints);
MONGE_FOR_EACH_ORDERED(EntriesOfPoints);

TEST_P(Entries, largest_of_rows_and_columns_equal_the_oracle) {
  int index = 0;
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const plan = make_plan(test, index % 2 == 0 ? 1e9 : 0);
    for (Side const side : {Side::rows, Side::columns}) {
      std::int64_t const most = plan->size(other(side));
      std::int64_t const ks[] = {1, 5, 32, 64, 65, 200, most};
      check_top_k(test, *plan, side, std::min(ks[index % 7], most));
      check_top_k(test, *plan, side, std::min(ks[(index + 3) % 7], most));
      if (HasFatalFailure()) return;
    }
    ++index;
  }
}

// The first rows of a larger k are those of a smaller one, whichever way they are found; and two calls agree.
TEST_P(Entries, the_largest_do_not_depend_on_how_many_are_asked_for) {
  Case const test = make_case({90, 1500, 9, Weights::with_zeros});
  auto const plan = make_plan(test);
  TopK const all(*plan, Side::rows, 1500);
  for (std::int64_t const k : {1, 2, 63, 64, 65, 128, 700, 1500}) {
    TopK const some(*plan, Side::rows, k);
    for (std::int64_t i = 0; i < 90; ++i) {
      for (std::int64_t q = 0; q < k; ++q) {
        ASSERT_EQ(some.indices(i, q), all.indices(i, q)) << "row " << i << ", rank " << q << ", k " << k;
        ASSERT_EQ(some.values[i * k + q], all.values[i * 1500 + q]);
      }
    }
  }
}

// y_j are copies of few points, so many columns tie with exactly equal logits; their weights are equal too.
TEST_P(EntriesOfPoints, that_are_equal_rank_by_index) {
  std::int64_t const n = 30, m = 1100, kinds = 3;
  for (std::int64_t const d : {2, 20}) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    Problem problem = make_problem({n, m, d});
    std::vector<double> y = problem.y.values();
    for (std::int64_t j = kinds; j < m; ++j) std::copy_n(y.begin() + j % kinds * d, d, y.begin() + j * d);
    problem.y = Stored(y, m, d);
    auto const entropic = make_operator(problem);
    entropic->set_potentials({}, {});
    auto const plan = entropic->plan(0.5 * Magnitudes(problem).spread());
    for (std::int64_t const k : {1, 40, 500, 1100}) {
      TopK const top(*plan, Side::rows, k);
      for (std::int64_t i = 0; i < n; ++i) {
        // Kind after kind, each in the order of its columns.
        std::int64_t kind = top.indices(i, 0), next = kind;
        ASSERT_LT(kind, kinds);
        for (std::int64_t q = 0; q < k; ++q) {
          if (next >= m) next = kind = top.indices(i, q);
          ASSERT_LT(kind, kinds);
          ASSERT_EQ(top.indices(i, q), next) << "row " << i << ", rank " << q << ", k " << k;
          next += kinds;
        }
      }
    }
  }
}

// One column takes each row's mass by thousands of powers of two; its followers underflow and still rank.
TEST_P(EntriesOfPoints, that_underflow_rank_by_their_logarithms) {
  std::int64_t const m = 700;
  std::vector<double> y(m);
  for (std::int64_t j = 0; j < m; ++j) y[j] = 1 + static_cast<double>((j * 257) % m);
  Problem problem = make_problem({3, m, 1});
  problem.x = Stored(std::vector<double>(3, 0.0), 3, 1);
  problem.y = Stored(y, m, 1);
  auto const entropic = make_operator(problem);
  entropic->set_potentials({}, {});
  auto const plan = entropic->plan(1e-3);
  TopK const top(*plan, Side::rows, 50);
  for (std::int64_t q = 0; q < 50; ++q) {
    EXPECT_EQ(y[top.indices(1, q)], 1 + q);
    EXPECT_TRUE(q == 0 || top.values[50 + q] == 0) << q;
  }
}

TEST_P(Entries, of_points_of_no_weight_are_zero_and_last) {
  Case const test = make_case({40, 300, 3, Weights::with_zeros});
  auto const plan = make_plan(test);
  for (std::int64_t const k : {7, 300}) {
    TopK const top(*plan, Side::rows, k);
    for (std::int64_t i = 0; i < 40; ++i) {
      if (test.problem.a[i] > 0) continue;
      for (std::int64_t q = 0; q < k; ++q) {
        EXPECT_EQ(top.indices(i, q), q);
        EXPECT_EQ(top.values[i * k + q], 0);
      }
    }
  }
}

// A potential that is NaN: rows that it reaches are NaN in the order of the columns, whatever k; others are as without.
TEST_P(Entries, that_are_not_numbers_rank_by_index) {
  std::int64_t const n = 40, m = 1100, bad = 5;
  Case const test = make_case({n, m, 3});
  std::vector<double> f(test.potentials.f.begin(), test.potentials.f.end());
  std::vector<double> g(test.potentials.g.begin(), test.potentials.g.end());
  g[bad] = std::numeric_limits<double>::quiet_NaN();
  auto const entropic = make_operator(test.problem);
  entropic->set_potentials(f, g);
  auto const plan = entropic->plan(test.eps);
  auto const without = make_plan(test);
  for (Side const side : {Side::rows, Side::columns}) {
    for (std::int64_t const k : {1, 30, 64, 65, 1100}) {
      if (k > plan->size(other(side))) continue;
      TopK const top(*plan, side, k), expected(*without, side, k);
      for (std::int64_t i = 0; i < plan->size(side); ++i) {
        bool const is_number = side == Side::columns && i != bad;
        for (std::int64_t q = 0; q < k; ++q) {
          ASSERT_EQ(top.indices(i, q), is_number ? expected.indices(i, q) : q) << i << ", rank " << q << ", k " << k;
          ASSERT_EQ(std::isnan(top.values[i * k + q]), !is_number) << i << ", rank " << q << ", k " << k;
        }
      }
    }
  }
}

TEST_P(Entries, above_a_threshold_equal_the_oracle) {
  int index = 0;
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const plan = make_plan(test);
    std::int64_t const n = recipe.n, m = recipe.m;
    Vector const exact = test.dense.plan(test.eps, test.potentials);
    Vector sorted = exact;
    std::sort(sorted.begin(), sorted.end());
    double const shares[] = {0.1, 0.5, 0.97};
    double const threshold = static_cast<double>(sorted[static_cast<std::size_t>(shares[index++ % 3] * (n * m - 1))]);
    Vector const plan_error = test.tolerance.plan(Side::rows, test.potentials);
    Vector const marginal = test.dense.marginal(Side::rows, test.eps, test.potentials);

    Indices row_begin(n + 1, 1, 1);
    std::int64_t const total = plan->entries().count_above(threshold, row_begin.view());
    ASSERT_EQ(row_begin(0, 0), 0);
    ASSERT_EQ(row_begin(n, 0), total);
    Indices columns(total, 1, 1);
    StoredVector stored(std::vector<double>(total), DataType::float64, 2);
    ASSERT_EQ(plan->entries().entries_above(threshold, row_begin.view(), columns.view(), stored.mutable_view()), n);
    EXPECT_TRUE(row_begin.padding_untouched() && columns.padding_untouched() && stored.padding_untouched());
    std::vector<double> const values = stored.values();
    for (std::int64_t i = 0; i < n; ++i) {
      std::int64_t at = row_begin(i, 0);
      for (std::int64_t j = 0; j < m; ++j) {
        bool const there = at < row_begin(i + 1, 0) && columns(at, 0) == j;
        Real const entry = exact[i * m + j];
        Real const depth = entry > 0 ? std::abs(std::log(entry / marginal[i])) : Real(0);
        // Float64 holds nothing of entries below 1e-308.
        Real const error = std::expm1(logarithm_error(test, plan_error[i], depth)) * entry + 1e-307L;
        ASSERT_TRUE(there || entry <= threshold + error) << i << ", " << j << ": " << static_cast<double>(entry);
        ASSERT_TRUE(!there || entry >= threshold - error) << i << ", " << j << ": " << static_cast<double>(entry);
        if (!there) continue;
        ASSERT_GT(values[at], threshold);
        ASSERT_NEAR(values[at], entry, static_cast<double>(error)) << i << ", " << j;
        ++at;
      }
      ASSERT_EQ(at, row_begin(i + 1, 0)) << "columns of row " << i << " do not ascend";
    }
  }
}

// Any pairs in any order, some more than once.
TEST_P(Entries, at_pairs_equal_the_oracle) {
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const plan = make_plan(test);
    std::int64_t const n = recipe.n, m = recipe.m, count = std::min<std::int64_t>(2 * n * m, 5000);
    Indices rows(count, 1, 2), columns(count, 1, 1);
    Random random(recipe.seed);
    for (std::int64_t k = 0; k < count; ++k) {
      rows(k, 0) = static_cast<std::int64_t>(random.uniform() * static_cast<double>(n));
      columns(k, 0) = static_cast<std::int64_t>(random.uniform() * static_cast<double>(m));
    }
    Vector const exact = test.dense.plan(test.eps, test.potentials);
    Vector const plan_error = test.tolerance.plan(Side::rows, test.potentials);
    for (DataType const type : {DataType::float64, DataType::float32}) {
      StoredVector out(std::vector<double>(count), type, 2);
      plan->entries().entries_at(rows.readable(), columns.readable(), out.mutable_view());
      EXPECT_TRUE(out.padding_untouched());
      Vector expected(count), allowed(count);
      for (std::int64_t k = 0; k < count; ++k) {
        std::int64_t const i = rows(k, 0), j = columns(k, 0);
        expected[k] = exact[i * m + j];
        bool const none =
            test.problem.a[i] == 0 || test.problem.b[j] == 0 || std::isinf(test.dense.cost(Side::rows, i, j));
        // Neither type holds anything of entries below the smallest that it has.
        bool const is_float = type == DataType::float32;
        allowed[k] = none
                         ? Real(0)
                         : (plan_error[i] + (is_float ? 0x1p-24L : 0)) * expected[k] + (is_float ? 0x1p-149L : 1e-307L);
      }
      expect_close("P_ij", out.values(), expected, allowed);
    }
  }
}

// A threshold that is an entry excludes that entry; all of them are above 0 but those that are 0.
TEST_P(Entries, above_mean_strictly_above) {
  Case const test = make_case({20, 200, 3, Weights::with_zeros});
  auto const plan = make_plan(test);
  TopK const top(*plan, Side::rows, 200);
  std::vector<double> values = top.values;
  std::int64_t const positive = std::count_if(values.begin(), values.end(), [](double value) { return value > 0; });
  Indices row_begin(21, 1, 0);
  EXPECT_EQ(plan->entries().count_above(0, row_begin.view()), positive);
  std::sort(values.begin(), values.end(), std::greater<>());
  for (std::int64_t const rank : {0, 1, 100, 700}) {
    std::int64_t const larger =
        std::lower_bound(values.begin(), values.end(), values[rank], std::greater<>()) - values.begin();
    EXPECT_EQ(plan->entries().count_above(values[rank], row_begin.view()), larger) << rank;
  }
}

TEST_P(Entries, that_do_not_fit_row_begin_are_found) {
  Case const test = make_case({20, 200, 3});
  auto const plan = make_plan(test);
  TopK const top(*plan, Side::rows, 3);
  double const threshold = top.values[3 * 3 + 2];  // Row 3 has two above it.
  Indices row_begin(21, 1, 0);
  std::int64_t const total = plan->entries().count_above(threshold, row_begin.view());
  Indices columns(total, 1, 0);
  std::vector<double> values(total);
  auto const fill = [&] { return plan->entries().entries_above(threshold, row_begin.view(), columns.view(), values); };
  ASSERT_EQ(fill(), 20);
  ++row_begin(4, 0);
  EXPECT_EQ(fill(), 3) << "too long";
  row_begin(4, 0) -= 2;
  EXPECT_EQ(fill(), 3) << "too short";
  ++row_begin(4, 0);
  row_begin(20, 0) = total + 1000000000;
  EXPECT_EQ(fill(), 19) << "past the end";
  row_begin(20, 0) = total;
  row_begin(0, 0) = -1000000000;
  EXPECT_EQ(fill(), 0) << "before the beginning";
}

/// Fails unless draws of pairs have the frequencies of the plan: chi-square over pairs that are expected at least 10
/// times, and all others together.
void expect_frequencies(Vector const& plan, std::vector<std::int64_t> const& counts, std::int64_t draws) {
  Real const mass = std::accumulate(plan.begin(), plan.end(), Real(0));
  Real statistic = 0, rest = 0;
  std::int64_t cells = 0, rest_count = 0;
  for (std::size_t p = 0; p < plan.size(); ++p) {
    Real const expected = plan[p] / mass * draws;
    if (expected < 10) {
      rest += expected;
      rest_count += counts[p];
      continue;
    }
    statistic += (counts[p] - expected) * (counts[p] - expected) / expected;
    ++cells;
  }
  if (rest >= 10) {
    statistic += (rest_count - rest) * (rest_count - rest) / rest;
    ++cells;
  }
  // Mean cells - 1, variance 2 (cells - 1); for this many cells nearly normal. The seed is fixed, so four standard
  // deviations either way are a test of the code and not of luck.
  ASSERT_GT(cells, 30);
  double const freedom = static_cast<double>(cells - 1);
  EXPECT_NEAR(static_cast<double>(statistic), freedom, 4 * std::sqrt(2 * freedom));
}

std::vector<std::pair<std::int64_t, std::int64_t>> draw_pairs(PlanOperator& plan, std::uint64_t seed,
                                                              std::int64_t count) {
  Indices pairs(count, 2, 1);
  plan.entries().sample(seed, pairs.view());
  EXPECT_TRUE(pairs.padding_untouched());
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (std::int64_t k = 0; k < count; ++k) result.emplace_back(pairs(k, 0), pairs(k, 1));
  return result;
}

TEST_P(Entries, are_drawn_with_the_frequencies_of_the_plan) {
  std::vector<Recipe> const recipes{{12, 9, 2, Weights::with_zeros, Place::origin, 1},
                                    {9, 130, 20, Weights::uniform, Place::origin, 0.3},
                                    {1, 300, 3, Weights::with_zeros, Place::shifted, 1},
                                    {300, 1, 3, Weights::with_zeros, Place::origin, 1}};
  for (Recipe const& recipe : recipes) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const plan = make_plan(test);
    std::int64_t const draws = 200000;
    std::vector<std::int64_t> counts(recipe.n * recipe.m);
    for (auto const& [i, j] : draw_pairs(*plan, 20260729, draws)) {
      ASSERT_TRUE(i >= 0 && i < recipe.n && j >= 0 && j < recipe.m) << i << ", " << j;
      ++counts[i * recipe.m + j];
    }
    Vector const exact = test.dense.plan(test.eps, test.potentials);
    for (std::size_t p = 0; p < exact.size(); ++p) {
      ASSERT_TRUE(exact[p] > 0 || counts[p] == 0) << "a pair of no weight";
    }
    expect_frequencies(exact, counts, draws);
  }
}

TEST_P(Entries, are_drawn_by_their_number) {
  Case const test = make_case({700, 600, 3, Weights::skewed});
  auto const plan = make_plan(test);
  auto const pairs = draw_pairs(*plan, 5, 3000);
  EXPECT_EQ(draw_pairs(*plan, 5, 3000), pairs);
  EXPECT_NE(draw_pairs(*plan, 6, 3000), pairs);
  auto const fewer = draw_pairs(*plan, 5, 1001);
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), pairs.begin()));
}

// At such an eps a unit of float32 is many powers of two. Shares need not sum to 1, nor to anything, and a row's
// marginal does not tell: it is right where f is the softmin of g.
TEST_P(EntriesOfPoints, are_drawn_from_a_plan_that_rounding_has_destroyed_or_refused) {
  std::int64_t const n = 40, m = 300;
  for (double const relative_eps : {1e-7, 1e-9, 1e-11, 1e-13}) {
    SCOPED_TRACE(testing::Message() << "eps " << relative_eps << " of the spread");
    Problem const problem = make_problem({n, m, 3, Weights::with_zeros});
    double const eps = relative_eps * Magnitudes(problem).spread();
    auto const entropic = make_operator(problem);
    entropic->set_potentials({}, {});
    std::vector<double> f(n);
    entropic->plan(eps)->transform(Side::rows, f);
    entropic->set_potentials(f, std::vector<double>(m));
    try {
      auto const pairs = draw_pairs(*entropic->plan(eps), 5, 3000);
      for (auto const& [i, j] : pairs) {
        ASSERT_TRUE(i >= 0 && i < n && j >= 0 && j < m) << i << ", " << j;
        ASSERT_TRUE(problem.a[i] > 0 && problem.b[j] > 0) << i << ", " << j;
      }
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("plan: has "), std::string::npos) << error.what();
    }
  }
}

/// Draws by the formulas of plan/sampling.hpp from the oracle's plan.
std::vector<std::pair<std::int64_t, std::int64_t>> draw_from(Vector const& plan, std::int64_t m, std::uint64_t seed,
                                                             std::int64_t count) {
  std::int64_t const n = static_cast<std::int64_t>(plan.size()) / m;
  Vector rows(n, 0), columns = plan;
  for (std::int64_t i = 0; i < n; ++i) {
    std::partial_sum(columns.begin() + i * m, columns.begin() + (i + 1) * m, columns.begin() + i * m);
    rows[i] = columns[(i + 1) * m - 1];
  }
  std::partial_sum(rows.begin(), rows.end(), rows.begin());
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (std::int64_t k = 0; k < count; ++k) {
    Draw const one = draw(seed, static_cast<std::uint64_t>(k));
    std::int64_t const i = std::upper_bound(rows.begin(), rows.end(), one.row * rows.back()) - rows.begin();
    auto const first = columns.begin() + i * m;
    result.emplace_back(i, std::upper_bound(first, first + m, one.column * first[m - 1]) - first);
  }
  return result;
}

// With entries of P off by a relative e, the boundary at a share C of the mass is off by at most 2 e C (1 - C) <= e /
// 2: what all entries share cancels. A draw between a boundary and where it should be gives another row, with n
// boundaries in n e / 2 of all draws, or another column, in m e / 2.
TEST_P(Entries, are_the_same_pairs_on_every_backend) {
  std::vector<Recipe> const recipes{{50, 70, 3, Weights::with_zeros, Place::shifted, 0.1},
                                    {200, 190, 40, Weights::uniform, Place::origin, 0.1}};
  for (Recipe const& recipe : recipes) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    auto const plan = make_plan(test);
    std::int64_t const draws = 20000;
    auto const actual = draw_pairs(*plan, 11, draws);
    auto const expected = draw_from(test.dense.plan(test.eps, test.potentials), recipe.m, 11, draws);
    std::int64_t different = 0;
    for (std::int64_t k = 0; k < draws; ++k) different += actual[k] != expected[k] ? 1 : 0;
    Vector const errors = test.tolerance.plan(Side::rows, test.potentials);
    double const error = static_cast<double>(*std::max_element(errors.begin(), errors.end()));
    double const likely = static_cast<double>(draws) * error / 2 * static_cast<double>(recipe.n + recipe.m);
    EXPECT_LE(static_cast<double>(different), likely + 4 * std::sqrt(likely));
    EXPECT_LT(likely, draws / 4) << "nothing would be tested";
  }
}

}  // namespace
}  // namespace monge::oracle
