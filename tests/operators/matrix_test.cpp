// What only cost matrices have: layouts, forbidden pairs, rows and columns without a partner, offsets and ranges of any
// size. The other tests of operators run for matrices too.
#include <cmath>
#include <limits>
#include <numeric>

#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Matrix : public OperatorTest {
 protected:
  static constexpr std::int64_t kRows = 37, kColumns = 70;

  /// Costs of the arithmetic of a matrix, whatever the target says.
  Arithmetic arithmetic() const { return oracle::arithmetic({GetParam().device}, precision(), 0); }

  static std::vector<double> uniform_costs(std::int64_t n = kRows, std::int64_t m = kColumns, std::uint64_t seed = 3) {
    Random random(seed);
    std::vector<double> costs(n * m);
    for (double& cost : costs) cost = static_cast<float>(random.uniform(-1, 2));
    return costs;
  }

  static std::vector<double> weights(std::int64_t size, std::uint64_t seed) {
    Random random(seed);
    return make_weights(Weights::skewed, size, 1, random);
  }

  /// Sweeps, the certificate and products against the oracle, from potentials of zero, with kept scores and without.
  void expect_right(Problem const& problem, double eps) const {
    for (double const cache_bytes : {0.0, 1e9}) expect_right(problem, eps, cache_bytes);
  }
  void expect_right(Problem const& problem, double eps, double cache_bytes) const {
    Dense const dense(problem);
    Tolerance const tolerance(problem, eps, arithmetic());
    auto const entropic = make_operator(problem, cache_bytes);
    entropic->set_potentials({}, {});
    Sweep const kind{eps};
    SweepResult const expected = sweep(dense, kind, 3, {Vector(problem.n(), 0), Vector(problem.m(), 0)});
    entropic->sweep(kind, 3);
    Potentials const potentials = potentials_of(*entropic);
    expect_iterates(dense, tolerance, eps, potentials, expected.potentials, tolerance.sweeps(kind, 3, expected));

    Evaluation const actual = entropic->evaluate(eps);
    DenseEvaluation const truth = evaluate(dense, eps, potentials);
    EvaluationTolerance const allowed = tolerance.evaluation(dense, potentials);
    expect_close("row_error", actual.row_error, truth.row_error, allowed.row_error);
    expect_close("column_error", actual.column_error, truth.column_error, allowed.column_error);
    expect_close("transport_cost", actual.transport_cost, truth.transport_cost, allowed.transport_cost);

    auto const plan = entropic->plan(eps);
    Random random(4);
    for (Side const side : {Side::rows, Side::columns}) {
      for (std::int64_t const p : {1, 3, 70}) {
        std::int64_t const count = plan->size(other(side));
        Stored const v(gaussian_points(count, p, random), count, p);
        Stored out(std::vector<double>(plan->size(side) * p), plan->size(side), p);
        plan->multiply(side, Scaling::plan, v.view(), out.mutable_view());
        expect_close("product", out.values(), dense.average(side, eps, potentials, v.values(), p, false),
                     tolerance.product(dense, side, potentials, v.values(), p, false));
      }
    }
  }

  void expect_error(Problem const& problem, std::vector<std::string> const& parts) const {
    try {
      make_operator(problem);
      ADD_FAILURE() << "no error";
    } catch (Error const& error) {
      std::string const message = error.what();
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << message;
      EXPECT_EQ(message.find("cost: "), 0u) << message;
      for (std::string const& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message << ": " << part;
    }
  }
};
MONGE_FOR_EACH_OF(Matrix, all_targets());

TEST_P(Matrix, of_any_layout_equals_the_oracle) {
  for (DataType const storage : {DataType::float32, DataType::float64}) {
    for (bool const transposed : {false, true}) {
      for (std::int64_t const padding : {0, 1, 6}) {
        SCOPED_TRACE(testing::Message() << name(storage) << (transposed ? ", transposed" : "") << ", padding "
                                        << padding);
        expect_right(
            make_matrix_problem(uniform_costs(), weights(kRows, 1), weights(kColumns, 2), storage, padding, transposed),
            0.1);
      }
    }
  }
}

// The memory is the caller's, at any address that its type may have.
TEST_P(Matrix, at_any_address_equals_the_oracle) {
  std::vector<double> const costs = uniform_costs();
  Problem const problem = make_matrix_problem(costs, weights(kRows, 1), weights(kColumns, 2), DataType::float32);
  std::vector<float> memory(costs.size() + 1);
  std::copy(costs.begin(), costs.end(), memory.begin() + 1);
  auto const swept = [&](MatrixView cost) {
    auto const entropic =
        backend_of(context()).entropic_operator(CostMatrix{cost}, {problem.a, problem.b}, {precision(), 0});
    entropic->sweep({0.1}, 3);
    return potentials_of(*entropic);
  };
  Potentials const expected = swept(problem.cost.view());
  Potentials const actual = swept(MatrixView(memory.data() + 1, kRows, kColumns));
  EXPECT_EQ(actual.f, expected.f);
  EXPECT_EQ(actual.g, expected.g);
}

// Sums of an offset of 2^20 and costs in steps of 2^-20 are exact, and so is what is left when it is taken off again.
TEST_P(Matrix, offset_costs_no_digits) {
  std::vector<double> costs = uniform_costs();
  for (double& cost : costs) cost = std::ldexp(std::round(std::ldexp(cost, 20)), -20);
  auto const swept = [&](double offset) {
    std::vector<double> moved = costs;
    for (double& cost : moved) cost += offset;
    Problem const problem = make_matrix_problem(moved, weights(kRows, 1), weights(kColumns, 2));
    auto const entropic = make_operator(problem);
    entropic->sweep({0.01}, 5);
    return potentials_of(*entropic);
  };
  Potentials const expected = swept(0);
  for (double const offset : {0x1p20, -0x1p20}) {
    Potentials const actual = swept(offset);
    // Each side takes half of the offset.
    for (std::int64_t i = 0; i < kRows; ++i) EXPECT_NEAR(actual.f[i], expected.f[i] + offset / 2, 0x1p-30) << i;
    for (std::int64_t j = 0; j < kColumns; ++j) EXPECT_NEAR(actual.g[j], expected.g[j] + offset / 2, 0x1p-30) << j;
  }
}

TEST_P(Matrix, constant_has_the_product_of_the_weights) {
  for (double const cost : {3.5, 0.0, -1e6}) {
    SCOPED_TRACE(testing::Message() << "cost " << cost);
    std::vector<double> const a = weights(kRows, 1), b = weights(kColumns, 2);
    Problem const problem = make_matrix_problem(std::vector<double>(kRows * kColumns, cost), a, b);
    auto const entropic = make_operator(problem);
    EXPECT_EQ(entropic->cost_size().centred_bound, 0);
    EXPECT_NEAR(entropic->cost_size().mean, cost, 0x1p-50 * std::abs(cost));
    expect_right(problem, 0.1);
  }
}

// A row or a column whose best cost is a million eps above all the rest.
TEST_P(Matrix, row_and_column_far_above_the_rest_equal_the_oracle) {
  double const eps = 0.125;
  std::vector<double> costs = uniform_costs();
  for (std::int64_t j = 0; j < kColumns; ++j) costs[5 * kColumns + j] += 1e6 * eps;
  for (std::int64_t i = 0; i < kRows; ++i) costs[i * kColumns + 11] += 1e6 * eps;
  for (bool const transposed : {false, true}) {
    expect_right(make_matrix_problem(costs, weights(kRows, 1), weights(kColumns, 2), DataType::float64, 0, transposed),
                 eps);
  }
}

// float32 holds numbers up to 3e38, but scores need only be so far apart as the costs are in units of eps.
TEST_P(Matrix, of_any_range_equals_the_oracle) {
  for (double const unit : {1e-30, 1e30}) {
    for (DataType const storage : {DataType::float32, DataType::float64}) {
      SCOPED_TRACE(testing::Message() << "unit " << unit << ", " << name(storage));
      std::vector<double> costs = uniform_costs();
      for (double& cost : costs) cost *= unit;
      expect_right(make_matrix_problem(costs, weights(kRows, 1), weights(kColumns, 2), storage), 0.1 * unit);
    }
  }
}

TEST_P(Matrix, single_rows_and_columns_equal_the_oracle) {
  for (auto const& [n, m] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 2051}, {2051, 1}, {2, 3}}) {
    for (bool const transposed : {false, true}) {
      SCOPED_TRACE(testing::Message() << n << " x " << m << (transposed ? ", transposed" : ""));
      expect_right(
          make_matrix_problem(uniform_costs(n, m), weights(n, 1), weights(m, 2), DataType::float32, 1, transposed),
          0.1);
    }
  }
}

/// Pairs of an even and an odd index are forbidden: two problems in one, each with its mass.
Problem two_blocks(bool transposed) {
  std::int64_t const n = 40, m = 50;
  Random random(6);
  std::vector<double> costs(n * m);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) costs[i * m + j] = (i + j) % 2 == 0 ? random.uniform(-1, 2) : kInfinity;
  }
  return make_matrix_problem(costs, std::vector<double>(n, 1.0 / n), std::vector<double>(m, 1.0 / m), DataType::float64,
                             0, transposed);
}

TEST_P(Matrix, forbidden_pairs_have_no_mass) {
  for (bool const transposed : {false, true}) {
    Problem const problem = two_blocks(transposed);
    expect_right(problem, 0.05);
    auto const entropic = make_operator(problem);
    // At this eps no entry is below what two fp16 numbers hold.
    entropic->sweep({0.5}, 3);
    auto const plan = entropic->plan(0.5);
    std::vector<double> identity(problem.m() * problem.m(), 0.0);
    for (std::int64_t j = 0; j < problem.m(); ++j) identity[j * problem.m() + j] = 1;
    std::vector<double> entries(problem.n() * problem.m());
    plan->multiply(Side::rows, Scaling::plan, MatrixView(identity.data(), problem.m(), problem.m()),
                   MutableMatrixView(entries.data(), problem.n(), problem.m()));
    for (std::int64_t i = 0; i < problem.n(); ++i) {
      for (std::int64_t j = 0; j < problem.m(); ++j) {
        double const entry = entries[i * problem.m() + j];
        EXPECT_TRUE((i + j) % 2 == 0 ? entry > 0 : entry == 0) << i << ", " << j << ": " << entry;
      }
    }
  }
}

// A point without weight may have no partner at all: it has no mass to send.
TEST_P(Matrix, points_without_weight_or_partner_disturb_nothing) {
  std::vector<double> const costs = uniform_costs();
  std::vector<double> const a = weights(kRows, 1), b = weights(kColumns, 2);
  auto const lonely = [&](double alone) {
    std::vector<double> more = costs;
    std::vector<double> more_a = a, more_b = b;
    more.insert(more.end(), kColumns, alone);  // One row more, then one column more.
    more_a.push_back(0);
    more_b.push_back(0);
    std::vector<double> wide;
    for (std::int64_t i = 0; i <= kRows; ++i) {
      wide.insert(wide.end(), more.begin() + i * kColumns, more.begin() + (i + 1) * kColumns);
      wide.push_back(alone);
    }
    return make_matrix_problem(wide, more_a, more_b);
  };
  Problem const plain = make_matrix_problem(costs, a, b), problem = lonely(kInfinity);
  auto const expected = make_operator(plain), entropic = make_operator(problem);
  for (Sweep kind : {Sweep{0.1}, Sweep{0.1, true}, Sweep{0.1, false, 1.5}}) {
    SCOPED_TRACE(testing::Message() << (kind.symmetric ? "symmetric" : "alternating") << " " << kind.relaxation);
    for (EntropicOperator* const each : {expected.get(), entropic.get()}) {
      each->set_potentials({}, {});
      each->sweep(kind, 4);
    }
    Potentials const truth = potentials_of(*expected), actual = potentials_of(*entropic);
    Real const allowed = 2 * Tolerance(plain, 0.1, arithmetic()).sweeps(kind, 4, {truth});
    std::vector<double> const f = narrow(actual.f), g = narrow(actual.g);
    expect_close("f", std::span(f).first(kRows), truth.f, Vector(kRows, allowed));
    expect_close("g", std::span(g).first(kColumns), truth.g, Vector(kColumns, allowed));
    EXPECT_EQ(actual.f[kRows], kInfinity);
    EXPECT_EQ(actual.g[kColumns], kInfinity);
    EXPECT_NEAR(entropic->errors().row, expected->errors().row, 1e-4);
    EXPECT_NEAR(entropic->errors().column, expected->errors().column, 1e-4);
  }
  Evaluation const evaluation = entropic->evaluate(0.1), truth = expected->evaluate(0.1);
  EXPECT_NEAR(evaluation.transport_cost, truth.transport_cost, 1e-4);
  EXPECT_NEAR(evaluation.dual, truth.dual, 1e-4);

  auto const plan = entropic->plan(0.1);
  std::vector<double> f(kRows + 1), g(kColumns + 1);
  plan->potentials(f, g);
  EXPECT_EQ(f[kRows], kInfinity);
  EXPECT_EQ(g[kColumns], kInfinity);
  std::vector<double> transform(kRows + 1), marginal(kRows + 1);
  plan->transform(Side::rows, transform);
  EXPECT_EQ(transform[kRows], kInfinity);
  plan->vectors().write(plan->marginal(Side::rows), marginal);
  EXPECT_EQ(marginal[kRows], 0);
  EXPECT_NEAR(std::accumulate(marginal.begin(), marginal.end(), 0.0), truth.mass, 1e-4);
  for (std::int64_t const p : {1, 3, 70}) {
    for (Scaling const scaling : {Scaling::plan, Scaling::shares}) {
      std::vector<double> const ones((kColumns + 1) * p, 1.0);
      std::vector<double> out((kRows + 1) * p);
      plan->multiply(Side::rows, scaling, MatrixView(ones.data(), kColumns + 1, p),
                     MutableMatrixView(out.data(), kRows + 1, p));
      for (std::int64_t k = 0; k < p; ++k) EXPECT_EQ(out[kRows * p + k], 0) << "width " << p;
      for (double const value : out) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST_P(Matrix, mean_is_that_of_the_pairs_that_are_allowed) {
  for (bool const transposed : {false, true}) {
    Recipe recipe{61, 83, 1, Weights::with_zeros, Place::shifted, 0.05, DataType::float64, 2};
    recipe.costs = Costs::random;
    recipe.seed = transposed ? 2 : 1;
    Problem const problem = oracle::make_problem(recipe);
    std::vector<double> const costs = problem.costs();
    Real sum = 0, mass = 0;
    for (std::int64_t i = 0; i < recipe.n; ++i) {
      for (std::int64_t j = 0; j < recipe.m; ++j) {
        Real const weight = Real(problem.a[i]) * problem.b[j];
        if (weight == 0 || std::isinf(costs[i * recipe.m + j])) continue;
        sum += weight * costs[i * recipe.m + j];
        mass += weight;
      }
    }
    EXPECT_NEAR(make_operator(problem)->cost_size().mean, static_cast<double>(sum / mass), 1e-9);
  }
}

TEST_P(Matrix, costs_that_are_neither_finite_nor_infinity_are_rejected) {
  for (DataType const storage : {DataType::float32, DataType::float64}) {
    for (bool const transposed : {false, true}) {
      for (double const bad : {std::nan(""), -kInfinity}) {
        std::vector<double> costs = uniform_costs();
        costs[23 * kColumns + 65] = bad;
        costs[4 * kColumns + 7] = kInfinity;
        std::vector<double> a(kRows, 1.0 / (kRows - 1));
        a[23] = 0;
        Problem const problem =
            make_matrix_problem(costs, a, std::vector<double>(kColumns, 1.0 / kColumns), storage, 3, transposed);
        expect_error(problem, {"row 23, column 65 is " + std::string(std::isnan(bad) ? "nan" : "-inf"),
                               "must be finite or +infinity"});
      }
    }
  }
}

TEST_P(Matrix, weight_without_a_partner_is_rejected) {
  std::vector<double> a(kRows, 1.0 / kRows), b(kColumns, 1.0 / (kColumns - 2));
  b[3] = b[9] = 0;
  for (bool const transposed : {false, true}) {
    std::vector<double> costs = uniform_costs();
    for (std::int64_t j = 0; j < kColumns; ++j) {
      if (b[j] > 0) costs[30 * kColumns + j] = kInfinity;
    }
    expect_error(make_matrix_problem(costs, a, b, DataType::float32, 0, transposed),
                 {"row 30 has weight 0.027", "no finite cost to a column of positive weight"});
    std::vector<double> turned(costs.size());
    for (std::size_t k = 0; k < costs.size(); ++k) turned[k % kColumns * kRows + k / kColumns] = costs[k];
    expect_error(make_matrix_problem(turned, b, a, DataType::float64, 1, transposed),
                 {"column 30 has weight 0.027", "no finite cost to a row of positive weight"});
  }
  expect_error(make_matrix_problem(std::vector<double>(kRows * kColumns, kInfinity), a, b), {"row 0 has weight"});
}

TEST_P(Matrix, range_that_overflows_is_rejected) {
  std::vector<double> costs = uniform_costs();
  costs[0] = 1.5e308;
  costs[1] = -1.5e308;
  expect_error(make_matrix_problem(costs, weights(kRows, 1), weights(kColumns, 2)), {"1.5e+308", "finite"});
}

TEST_P(Matrix, has_no_points) {
  Problem const problem = make_matrix_problem(uniform_costs(), weights(kRows, 1), weights(kColumns, 2));
  auto const plan = make_operator(problem)->plan(0.1);
  auto const expect_unsupported = [](auto const& call) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      EXPECT_EQ(std::string(error.what()).find("points: "), 0u) << error.what();
    }
  };
  std::vector<double> points(6, 0.5), out(3 * kRows);
  expect_unsupported([&] { plan->points().at(Side::rows, {MatrixView(points.data(), 3, 2)}); });
  expect_unsupported(
      [&] { plan->points().multiply_points(Side::rows, Scaling::shares, MutableMatrixView(out.data(), kRows, 3)); });
}

}  // namespace
}  // namespace monge::oracle
