// Operators that leave pairs out, against sums over all pairs in long double: the mass of the pairs left out has a
// bound, and the certificate allows for it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "operators/cases.hpp"
#include "oracle/derivatives.hpp"
#include "plan/plan_derivatives.hpp"

namespace monge::oracle {
namespace {

/// Two clouds, weights and the blur, in units of the diameter of the clouds.
struct HardCase {
  std::string name;
  Problem problem;
  double blur;
};

template <class Coordinate>
Stored cloud_of(std::int64_t n, std::int64_t d, Coordinate const& coordinate) {
  std::vector<double> points;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t k = 0; k < d; ++k) points.push_back(coordinate(i, k));
  }
  return Stored(points, n, d);
}

std::vector<HardCase> all_hard_cases() {
  Random random(44);
  std::vector<HardCase> cases;
  auto const weights = [&](Weights kind, std::int64_t n) { return make_weights(kind, n, 1, random); };
  auto const add = [&](std::string name, Stored x, Stored y, std::initializer_list<double> blurs,
                       Weights kind = Weights::uniform) {
    for (double const blur : blurs) {
      Problem problem{.x = x, .y = y, .a = weights(kind, x.rows()), .b = weights(kind, y.rows())};
      cases.push_back({name + ", blur " + std::to_string(blur), std::move(problem), blur});
    }
  };
  auto const uniform = [&](std::int64_t, std::int64_t) { return random.uniform(); };
  auto const bent = [&](std::int64_t, std::int64_t) { return std::pow(random.uniform(), 1.5); };
  for (std::int64_t const d : {1, 2, 3, 6, 10})
    add("cube " + std::to_string(d), cloud_of(700, d, uniform), cloud_of(650, d, bent), {1, 0.1, 0.02});
  auto const clusters = [&](std::int64_t i, std::int64_t k) {
    return static_cast<double>((i * 7 + k * 3) % 11) / 11 + 1e-3 * random.normal();
  };
  auto const others = [&](std::int64_t i, std::int64_t k) {
    return static_cast<double>((i * 5 + k * 4) % 13) / 13 + 1e-3 * random.normal();
  };
  for (Weights const kind : {Weights::uniform, Weights::skewed, Weights::with_zeros})
    add("clusters", cloud_of(600, 3, clusters), cloud_of(500, 3, others), {0.1, 0.01}, kind);
  auto const tail = [&](std::int64_t, std::int64_t) { return 0.05 * random.normal() / (random.uniform() + 1e-3); };
  add("heavy tails", cloud_of(800, 3, tail), cloud_of(800, 3, tail), {0.1, 0.03});
  auto const line = [](std::int64_t i, std::int64_t k) { return static_cast<double>((i * 37) % 400 * (k + 1)) / 1200; };
  add("line", cloud_of(400, 3, line), cloud_of(300, 3, uniform), {0.1, 0.01}, Weights::with_zeros);
  auto const twice = [](std::int64_t i, std::int64_t k) { return std::sin(static_cast<double>(i / 4 + 50 * k)); };
  add("four times", cloud_of(400, 2, twice), cloud_of(200, 2, twice), {0.3, 0.01});
  auto const lattice = [](std::int64_t i, std::int64_t k) { return static_cast<double>((i >> (3 * k)) & 7) / 8; };
  add("lattice", cloud_of(512, 3, lattice), cloud_of(512, 3, lattice), {0.2, 0.125 / 3});
  auto const far = [&](std::int64_t i, std::int64_t) { return (i % 3 == 0 ? 100.0 : 0.0) + random.uniform(); };
  add("far apart", cloud_of(300, 2, far), cloud_of(301, 2, far), {1, 0.1}, Weights::skewed);
  for (std::int64_t const n : {1, 31, 33})
    add("few", cloud_of(n, 2, uniform), cloud_of(64 - n, 2, bent), {0.3, 0.03}, Weights::skewed);
  for (std::int64_t const d : {4, 5, 7, 8, 9})
    add("cube " + std::to_string(d), cloud_of(300, d, uniform), cloud_of(310, d, bent), {0.1});
  // Classes of uneven sizes: one point of x has class 3, and no point of y. Costs have no symmetry and are of both
  // signs.
  for (double const largest : {0.0, 0.3, 1e4}) {
    std::size_t const first = cases.size();
    add("labels up to " + std::to_string(largest), cloud_of(340, 2, uniform), cloud_of(330, 2, bent), {0.2, 0.1},
        Weights::with_zeros);
    for (std::size_t k = first; k < cases.size(); ++k) {
      Problem& problem = cases[k].problem;
      for (std::int64_t i = 0; i < problem.n(); ++i) problem.labels_x.push_back(i == 77 ? 3 : i * i % 7 % 3);
      for (std::int64_t j = 0; j < problem.m(); ++j) problem.labels_y.push_back(j * j % 5 % 3);
      std::vector<double> const costs{0, 1, -0.5, 0.2, 0.7, 0, 0.3, 1, 1, 0.1, 0, 0, 0.4, 0.3, 0.2, 0.1};
      problem.label_cost = Stored(costs, 4, 4);
      problem.label_weight = largest;
    }
  }
  return cases;
}

class Truncation : public OperatorTest {
 protected:
  static constexpr double kShare = 1e-4;
  /// Those that an operator of the device takes.
  static std::vector<HardCase> hard_cases() {
    std::vector<HardCase> cases = all_hard_cases();
    if (GetParam().device == DeviceType::cuda)
      std::erase_if(cases, [](HardCase const& one) { return one.problem.d() > 8; });
    return cases;
  }
  /// Those of the smallest blur of each cloud, where most is left out.
  static std::vector<HardCase> hardest_cases() {
    std::vector<HardCase> cases = hard_cases(), hardest;
    for (std::size_t k = 0; k < cases.size(); ++k) {
      if (k + 1 == cases.size() || cases[k + 1].blur >= cases[k].blur) hardest.push_back(std::move(cases[k]));
    }
    return hardest;
  }
  std::unique_ptr<EntropicOperator> make(Problem const& problem, double share, int threads = 3,
                                         Penalties const& penalties = {}) {
    contexts_.push_back(make_context(GetParam().device, threads));
    return backend_of(contexts_.back())
        .entropic_operator(problem.geometry(), {problem.a, problem.b}, {precision(), 0, penalties, share});
  }
  /// The operator after some sweeps down a ladder, near a solution.
  std::unique_ptr<EntropicOperator> solved(HardCase const& test, int threads = 3, Penalties const& penalties = {}) {
    auto entropic = make(test.problem, kShare, threads, penalties);
    double const eps = test.blur * test.blur;
    entropic->set_potentials({}, {});
    for (double const factor : {64.0, 16.0, 4.0, 1.0}) entropic->sweep({factor * eps}, 3);
    entropic->sweep({eps}, 12);
    return entropic;
  }

  /// The relative error of entries. Some of these problems are harder than those that set the constants of a tolerance.
  static Vector rounding(Tolerance const& tolerance, Side side, Potentials const& potentials) {
    Vector error = tolerance.plan(side, potentials);
    for (Real& value : error) value *= 2;
    return error;
  }

 private:
  std::vector<Context> contexts_;
};
MONGE_FOR_EACH_OF(Truncation, (std::vector<Target>{{DeviceType::cpu, Precision::float32},
                                                   {DeviceType::cpu, Precision::float64},
                                                   {DeviceType::cuda, Precision::float32},
                                                   {DeviceType::cuda, Precision::float64}}));

TEST_P(Truncation, certificates_are_never_below_the_truth) {
  for (HardCase const& test : hard_cases()) {
    SCOPED_TRACE(test.name);
    double const eps = test.blur * test.blur;
    Dense const dense(test.problem);
    auto const entropic = solved(test);
    std::int64_t const n = test.problem.n(), m = test.problem.m();
    auto const rows = entropic->vectors().make(Side::rows), columns = entropic->vectors().make(Side::columns);
    Evaluation const value = entropic->evaluate(eps, rows.get(), columns.get());
    Potentials const potentials = potentials_of(*entropic);
    DenseEvaluation const truth = evaluate(dense, eps, potentials);
    Tolerance const arithmetic_error(test.problem, eps, arithmetic(test.problem.d()));
    EvaluationTolerance const tolerance = arithmetic_error.evaluation(dense, potentials);
    EXPECT_GE(value.row_error, truth.row_error - tolerance.row_error);
    EXPECT_GE(value.column_error, truth.column_error - tolerance.column_error);
    // Each row and each column lacks at most the share of what it holds.
    EXPECT_LE(value.row_error, truth.row_error + kShare * truth.mass + tolerance.row_error);
    EXPECT_LE(value.column_error, truth.column_error + kShare * truth.mass + tolerance.column_error);
    EXPECT_LE(value.mass, truth.mass + tolerance.mass);
    EXPECT_GE(value.mass + value.left_out, truth.mass - tolerance.mass);
    EXPECT_LE(value.left_out, kShare * truth.mass * 1.001);
    EXPECT_LE(value.dual, truth.dual + tolerance.dual);
    EXPECT_GE(value.dual, truth.dual - eps * value.left_out - tolerance.dual);
    for (Side const side : {Side::rows, Side::columns}) {
      std::int64_t const size = side == Side::rows ? n : m;
      std::vector<double> marginal(size);
      entropic->vectors().write(side == Side::rows ? *rows : *columns, MutableVectorView(marginal));
      Vector const expected = dense.marginal(side, eps, potentials);
      Vector const error = rounding(arithmetic_error, side, potentials);
      for (std::int64_t i = 0; i < size; ++i) {
        EXPECT_LE(marginal[i], expected[i] * (1 + error[i])) << i;
        EXPECT_GE(marginal[i], expected[i] * (1 - kShare - error[i])) << i;
      }
    }
  }
}

TEST_P(Truncation, products_lack_at_most_the_share_of_a_row) {
  for (HardCase const& test : hard_cases()) {
    SCOPED_TRACE(test.name);
    double const eps = test.blur * test.blur;
    Dense const dense(test.problem);
    auto const entropic = solved(test);
    Potentials const potentials = potentials_of(*entropic);
    auto const plan = entropic->plan(eps);
    Tolerance const tolerance(test.problem, eps, arithmetic(test.problem.d()));
    Random random(3);
    constexpr std::int64_t kWidth = 3;
    for (Side const side : {Side::rows, Side::columns}) {
      std::int64_t const size = plan->size(side), others = plan->size(other(side));
      std::vector<double> v(others * kWidth), out(size * kWidth);
      for (double& value : v) value = random.uniform(-1, 1);
      plan->multiply(side, Scaling::plan, MatrixView(v.data(), others, kWidth),
                     MutableMatrixView(out.data(), size, kWidth));
      Vector const expected = dense.average(side, eps, potentials, v, kWidth, false);
      Vector allowed = tolerance.product(dense, side, potentials, v, kWidth, false);
      Vector const marginal = dense.marginal(side, eps, potentials), error = rounding(tolerance, side, potentials);
      for (std::int64_t e = 0; e < size * kWidth; ++e) allowed[e] += kShare * marginal[e / kWidth];
      expect_close("P V", out, expected, allowed);

      std::vector<double> entries(size * others);
      plan->entries().all(side, MutableMatrixView(entries.data(), size, others));
      for (std::int64_t i = 0; i < size; ++i) {
        double const sum = std::accumulate(entries.begin() + i * others, entries.begin() + (i + 1) * others, 0.0);
        EXPECT_NEAR(sum, static_cast<double>(marginal[i]), static_cast<double>(marginal[i] * (kShare + error[i]))) << i;
      }
    }
  }
}

// A pair has its entry or 0. Ranks, thresholds and draws see the same entries, so an entry of a row that they miss is
// at most the share of the row. The entry of a given pair needs no list.
TEST_P(Truncation, entries_lack_at_most_the_share_of_a_row) {
  for (HardCase const& test : hardest_cases()) {
    SCOPED_TRACE(test.name);
    double const eps = test.blur * test.blur;
    Dense const dense(test.problem);
    auto const entropic = solved(test);
    auto const plan = entropic->plan(eps);
    Potentials const potentials = potentials_of(*entropic);
    Tolerance const tolerance(test.problem, eps, arithmetic(test.problem.d()));
    std::int64_t const n = test.problem.n(), m = test.problem.m(), k = std::min<std::int64_t>(5, m);
    Vector const exact = dense.plan(eps, potentials), marginal = dense.marginal(Side::rows, eps, potentials);
    Vector error = rounding(tolerance, Side::rows, potentials);
    // Logarithms are rounded relative to their size, beside which entries above the share are within 10 of their row.
    for (Real& value : error) value += 32 * arithmetic(test.problem.d()).unit;
    Real const lost_in_arithmetic = is_float64() ? 1e-300L : 0x1p-122L;  // Of shares below the least normal number.
    std::vector<double> kept(n * m), largest(n * k), values;
    plan->entries().all(Side::rows, MutableMatrixView(kept.data(), n, m));
    std::vector<std::int64_t> ranked(n * k), row_begin(n + 1), columns;
    plan->entries().top_k(Side::rows, {ranked.data(), n, k, k}, MutableMatrixView(largest.data(), n, k));
    double const threshold = 3 * kShare * static_cast<double>(*std::ranges::max_element(marginal));
    columns.resize(plan->entries().count_above(threshold, {row_begin.data(), n + 1, 1, 1}));
    values.resize(columns.size());
    std::int64_t const count = std::ssize(columns);
    EXPECT_EQ(plan->entries().entries_above(threshold, {row_begin.data(), n + 1, 1, 1}, {columns.data(), count, 1, 1},
                                            MutableVectorView(values)),
              n);
    for (std::int64_t i = 0; i < n; ++i) {
      Real lost = 0;
      Vector sorted;
      for (std::int64_t j = 0; j < m; ++j) {
        Real const entry = exact[i * m + j];
        sorted.push_back(entry);
        if (kept[i * m + j] == 0) {
          lost += entry;
        } else {
          EXPECT_NEAR(kept[i * m + j], entry, static_cast<double>(error[i] * entry + lost_in_arithmetic * marginal[i]))
              << i << ", " << j;
        }
        auto const begin = columns.begin() + row_begin[i], end = columns.begin() + row_begin[i + 1];
        bool const is_found = std::find(begin, end, j) != end;
        EXPECT_TRUE(is_found ? entry >= threshold * (1 - error[i])
                             : entry <= threshold * (1 + error[i]) + kShare * marginal[i])
            << i << ", " << j << ", " << static_cast<double>(entry);
      }
      EXPECT_LE(lost, kShare * marginal[i] * (1 + error[i]) + 1e-300) << i;
      if (test.problem.a[i] == 0) continue;
      std::ranges::sort(sorted, std::greater<>());
      for (std::int64_t q = 0; q < k; ++q) {
        Real const entry = exact[i * m + ranked[i * k + q]];
        Real const off = error[i] * sorted[q] + kShare * marginal[i];
        EXPECT_NEAR(entry, sorted[q], static_cast<double>(2 * off)) << i << ", rank " << q;
        EXPECT_NEAR(largest[i * k + q], sorted[q], static_cast<double>(off)) << i << ", rank " << q;
      }
    }

    Random random(8);
    constexpr std::int64_t kDraws = 4000;
    std::vector<std::int64_t> pairs(2 * kDraws), rows, others;
    plan->entries().sample(17, {pairs.data(), kDraws, 2, 2});
    std::vector<double> u(n), v(m);
    for (double& value : u) value = random.uniform() < 0.5 ? -1 : 1;
    for (double& value : v) value = random.uniform() < 0.5 ? -1 : 1;
    Real mean = 0, expected = 0, mass = 0;
    for (std::int64_t p = 0; p < kDraws; ++p) {
      rows.push_back(pairs[2 * p]);
      others.push_back(pairs[2 * p + 1]);
      EXPECT_GT(kept[rows[p] * m + others[p]], 0);
      mean += Real(u[rows[p]]) * v[others[p]] / kDraws;
    }
    for (std::int64_t e = 0; e < n * m; ++e) {
      expected += u[e / m] * exact[e] * v[e % m];
      mass += exact[e];
    }
    // Five standard deviations of a mean of signs, and what is left out.
    EXPECT_NEAR(mean, expected / mass, 5 / std::sqrt(kDraws) + 2 * kShare);

    for (std::int64_t p = 0; p < kDraws; p += 2) others[p] = (others[p] * 7 + p) % m;  // Any pairs.
    std::vector<double> at(kDraws);
    plan->entries().entries_at({rows.data(), kDraws}, {others.data(), kDraws}, MutableVectorView(at));
    for (std::int64_t p = 0; p < kDraws; ++p) {
      Real const entry = exact[rows[p] * m + others[p]];
      EXPECT_NEAR(at[p], entry, static_cast<double>(error[rows[p]] * entry) + 1e-300) << p;
    }
  }
}

TEST_P(Truncation, weighted_products_lack_at_most_the_share_of_a_row) {
  for (HardCase const& test : hardest_cases()) {
    SCOPED_TRACE(test.name);
    double const eps = test.blur * test.blur;
    Dense const dense(test.problem);
    auto const entropic = solved(test);
    auto const plan = entropic->plan(eps);
    Potentials const potentials = potentials_of(*entropic);
    Tolerance const tolerance(test.problem, eps, arithmetic(test.problem.d()));
    Random random(6);
    constexpr std::int64_t kFactors = 3;
    auto const numbers = [&](std::int64_t count) {
      std::vector<double> result(count);
      for (double& value : result) value = random.uniform(-1, 1);
      return result;
    };
    for (Side const side : {Side::rows, Side::columns}) {
      std::int64_t const size = plan->size(side), others = plan->size(other(side));
      Vector const marginal = dense.marginal(side, eps, potentials), far = dense.marginal(other(side), eps, potentials);
      std::vector<double> const l = numbers(size * kFactors), r = numbers(others * kFactors), v = numbers(others);
      std::vector<double> out(size);
      plan->multiply_hadamard(side, MatrixView(l.data(), size, kFactors), MatrixView(r.data(), others, kFactors),
                              MatrixView(v.data(), others, 1), MutableMatrixView(out.data(), size, 1));
      Vector allowed = tolerance.hadamard(dense, side, potentials, l, r, kFactors, v, 1, arithmetic(kFactors));
      for (std::int64_t i = 0; i < size; ++i) allowed[i] = 2 * allowed[i] + kFactors * kShare * marginal[i];
      expect_close("(P o L R^T) v", out, dense.hadamard(side, eps, potentials, l, r, kFactors, v, 1), allowed);

      // P (w o P^T u), |w_j| sum_i P_ij <= 1: either product lacks the share.
      std::vector<double> const u = numbers(size);
      std::vector<double> w = numbers(others);
      for (std::int64_t j = 0; j < others; ++j) w[j] = far[j] > 0 ? static_cast<double>(w[j] / far[j]) : 0;
      Vector inner = dense.average(other(side), eps, potentials, u, 1, false);
      for (std::int64_t j = 0; j < others; ++j) inner[j] *= w[j];
      auto const in = plan->vectors().make(side), weights = plan->vectors().make(other(side)),
                 result = plan->vectors().make(side);
      plan->vectors().read(u, *in);
      plan->vectors().read(w, *weights);
      plan->multiply_gram(side, *weights, *in, *result);
      plan->vectors().write(*result, MutableVectorView(out));
      allowed = tolerance.gram(dense, side, potentials, w, u);
      for (std::int64_t i = 0; i < size; ++i) allowed[i] = 2 * allowed[i] + 2 * kShare * marginal[i];
      expect_close("P diag(w) P^T u", out, dense.average(side, eps, potentials, narrow(inner), 1, false), allowed);
    }
  }
}

// A row lacks at most the share of its mass, which meets slopes of at most 2 |x_i - y_j|.
TEST_P(Truncation, gradients_lack_at_most_the_share_of_a_row) {
  for (HardCase const& test : hardest_cases()) {
    SCOPED_TRACE(test.name);
    double const eps = test.blur * test.blur;
    std::int64_t const d = test.problem.d();
    PointProblem const problem(test.problem, eps);
    Dense const dense(test.problem);
    auto const entropic = solved(test);
    auto const plan = entropic->plan(eps);
    Potentials const potentials = potentials_of(*entropic);
    PlanDerivatives derivatives(*plan, nullptr, eps, {}, d, precision());
    Tolerance const tolerance(test.problem, eps, arithmetic(d));
    for (Side const side : {Side::rows, Side::columns}) {
      std::int64_t const size = plan->size(side);
      auto const gradient = plan->vectors().make(side, d);
      derivatives.gradient(side, *gradient);
      std::vector<double> out(size * d);
      plan->vectors().write(*gradient, MutableMatrixView(out.data(), size, d));
      Vector const marginal = dense.marginal(side, eps, potentials), error = rounding(tolerance, side, potentials);
      Vector allowed;
      for (std::int64_t i = 0; i < size; ++i) {
        Real farthest = 0;
        for (std::int64_t j = 0; j < plan->size(other(side)); ++j) {
          Real square = 0;
          for (std::int64_t k = 0; k < d; ++k) square += std::pow(problem.slope(side, i, j, k) / 2, 2.0L);
          farthest = std::max(farthest, std::sqrt(square));
        }
        Real const part = kShare + 2 * error[i] + 2 * tolerance.sum_error(side) + 8 * arithmetic(d).unit;
        // The slope is the difference of two terms, each of the size of the cloud.
        Real const terms = farthest + 2 * std::sqrt(Real(tolerance.magnitudes().spread()));
        allowed.insert(allowed.end(), d, 2 * marginal[i] * part * terms + 1e-300L);
      }
      expect_close("gradient", out, problem.gradient(side, potentials), allowed);
    }
  }
}

TEST_P(Truncation, certificates_of_penalties_are_never_below_the_truth) {
  for (HardCase const& test : hardest_cases()) {
    double const eps = test.blur * test.blur;
    Dense const dense(test.problem);
    for (Penalties const& penalties : {Penalties{2 * eps, 50 * eps}, Penalties{kInfinity, 10 * eps}}) {
      SCOPED_TRACE(testing::Message() << test.name << ", rho_a " << penalties.a << ", rho_b " << penalties.b);
      auto const entropic = solved(test, 3, penalties);
      Evaluation const value = entropic->evaluate(eps);
      Potentials const potentials = potentials_of(*entropic);
      DenseEvaluation const truth = evaluate(dense, eps, potentials, penalties);
      EvaluationTolerance const tolerance =
          Tolerance(test.problem, eps, arithmetic(test.problem.d())).evaluation(dense, potentials, penalties);
      EXPECT_GE(value.row_error, truth.row_error - tolerance.row_error);
      EXPECT_GE(value.column_error, truth.column_error - tolerance.column_error);
      EXPECT_LE(value.row_error, truth.row_error + kShare * truth.mass + tolerance.row_error);
      EXPECT_LE(value.column_error, truth.column_error + kShare * truth.mass + tolerance.column_error);
      EXPECT_GE(value.mass + value.left_out, truth.mass - tolerance.mass);
      EXPECT_LE(value.dual, truth.dual + tolerance.dual);
      EXPECT_GE(value.dual, truth.dual - eps * value.left_out - tolerance.dual);
    }
  }
}

/// The second largest singular value of diag(r)^-1/2 P diag(c)^-1/2, by power iterations.
Real second_singular_value(Vector const& plan, Vector const& r, Vector const& c) {
  std::size_t const n = r.size(), m = c.size();
  Random random(2);
  std::vector<double> matrix(n * m), v(n), w(m);
  for (std::size_t e = 0; e < n * m; ++e)
    matrix[e] = r[e / m] > 0 && c[e % m] > 0 ? static_cast<double>(plan[e] / std::sqrt(r[e / m] * c[e % m])) : 0;
  for (double& value : v) value = random.normal();
  double norm = 0;
  for (int k = 0; k < 400; ++k) {
    double along = 0, mass = 0, square = 0;
    for (std::size_t i = 0; i < n; ++i) along += std::sqrt(static_cast<double>(r[i])) * v[i], mass += double(r[i]);
    for (std::size_t i = 0; i < n; ++i) v[i] -= along / mass * std::sqrt(static_cast<double>(r[i]));
    std::ranges::fill(w, 0.0);
    for (std::size_t e = 0; e < n * m; ++e) w[e % m] += matrix[e] * v[e / m];
    std::ranges::fill(v, 0.0);
    for (std::size_t e = 0; e < n * m; ++e) v[e / m] += matrix[e] * w[e % m];
    for (double const value : v) square += value * value;
    norm = std::sqrt(square);
    if (norm == 0) return 0;  // A matrix of rank 1.
    for (double& value : v) value /= norm;
  }
  return std::sqrt(Real(norm));
}

// H v = D v - B^T S^+ B v with S = [diag(r) P; P^T diag(c)]. Where each row and column of P lacks at most the share t,
// D, B and S change by at most 2 t of their size beside diag(r, c), beside which the least eigenvalue of S above 0 is
// 1 - s, s the second singular value. With k = 2 t / (1 - s) the product B^T S^+ B changes by at most 3 k of its bound,
// (4 R^2 / eps) (r_i |v_i| + ...), R the largest distance. What is compared are norms beside diag(r, c).
TEST_P(Truncation, hessian_products_change_by_the_share) {
  if (!is_float64()) GTEST_SKIP() << "conjugate gradients of float32 end above what is left out";
  for (HardCase const& test : hardest_cases()) {
    if (test.problem.n() * test.problem.m() > 120000) continue;  // The oracle eliminates (n + m)^3 / 3 numbers.
    // Several plans in one: s = 1.
    if (test.name.starts_with("far apart") || test.name.starts_with("labels up to 1")) continue;
    SCOPED_TRACE(test.name);
    double const blur = 0.3, eps = blur * blur;
    std::int64_t const d = test.problem.d(), n = test.problem.n(), m = test.problem.m();
    auto const entropic = solved({test.name, test.problem, blur});
    auto const plan = entropic->plan(eps);
    Potentials const potentials = potentials_of(*entropic);
    PointProblem const problem(test.problem, eps);
    Dense const dense(test.problem);
    Vector const r = dense.marginal(Side::rows, eps, potentials), c = dense.marginal(Side::columns, eps, potentials);
    Real const second = second_singular_value(dense.plan(eps, potentials), r, c);
    Random random(5);
    std::vector<double> v((n + m) * d), out((n + m) * d);
    for (double& value : v) value = random.normal();
    VectorPair direction, result;
    PlanDerivatives derivatives(*plan, nullptr, eps, {}, d, precision());
    for (Side const side : {Side::rows, Side::columns}) {
      double const* const from = v.data() + (side == Side::rows ? 0 : n * d);
      direction[side] = plan->vectors().make(side, d);
      result[side] = plan->vectors().make(side, d);
      plan->vectors().read(MatrixView(from, plan->size(side), d), *direction[side]);
    }
    LinearReport const report =
        derivatives.hessian_product(std::move(direction), result, {.tolerance = 1e-10, .iterations = 2000});
    EXPECT_EQ(report.status, LinearStatus::converged) << report.residual;
    for (Side const side : {Side::rows, Side::columns})
      plan->vectors().write(*result[side],
                            MutableMatrixView(out.data() + (side == Side::rows ? 0 : n * d), plan->size(side), d));
    Vector const expected = problem.hessian_product(potentials, v);
    Real change = 0, size = 0, farthest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) farthest = std::max(farthest, dense.cost(Side::rows, i, j));
    }
    for (std::int64_t e = 0; e < (n + m) * d; ++e) {
      Real const mass = e < n * d ? r[e / d] : c[e / d - n];
      if (!(mass > 0)) continue;
      change += (out[e] - expected[e]) * (out[e] - expected[e]) / mass;
      size += mass * Real(v[e]) * v[e];
    }
    Real const most = (2 + 8 * farthest / eps / (1 - second)) * (2 * kShare + 1e-9L) * 3;
    EXPECT_LE(std::sqrt(change), most * std::sqrt(size))
        << static_cast<double>(second) << ", bound " << static_cast<double>(most);
    EXPECT_LE(most, 30) << "a bound that tells little, at the second singular value " << static_cast<double>(second);
  }
}

TEST_P(Truncation, sweeps_go_where_those_over_all_pairs_go) {
  for (HardCase const& test : hard_cases()) {
    SCOPED_TRACE(test.name);
    double const eps = test.blur * test.blur;
    auto const listed = solved(test);
    auto const whole = make(test.problem, 0);
    Dense const dense(test.problem);
    Tolerance const tolerance(test.problem, eps, arithmetic(test.problem.d()));
    // The first sweep takes lists of bounds, which may lack the share. It measures their tiles. The second sweep leaves
    // out the tiles that hold least, which may be the share once more.
    for (int const shares : {1, 2}) {
      SCOPED_TRACE(shares);
      Potentials const start = potentials_of(*listed);
      whole->set_potentials(narrow(start.f), narrow(start.g));
      for (EntropicOperator* entropic : {listed.get(), whole.get()}) entropic->sweep({eps}, 1);
      SweepResult const expected = sweep(dense, {eps}, 1, start);
      // Where each sum lacks a share s, a half-step is off by -eps log(1 - s). The columns are off by the rows' part,
      // too.
      Real const allowed = 2 * tolerance.sweeps({eps}, 1, expected) + 3 * shares * kShare * eps;
      Potentials const one = potentials_of(*listed), all = potentials_of(*whole);
      for (Side const side : {Side::rows, Side::columns}) {
        for (std::size_t i = 0; i < one.of(side).size(); ++i)
          EXPECT_NEAR(static_cast<double>(one.of(side)[i] - all.of(side)[i]), 0, static_cast<double>(allowed)) << i;
      }
    }
  }
}

// In 8 dimensions the bounds of boxes leave out nothing. But each point has mass with few of the other side.
TEST_P(Truncation, sweeps_leave_out_what_they_have_measured) {
  if (GetParam().device != DeviceType::cpu) GTEST_SKIP() << "tests/cuda/kept_tiles_test.cpp reads the lists";
  Random random(5);
  std::int64_t const n = 4000, d = 8, tiles = 125;
  Stored const x = cloud_of(n, d, [&](std::int64_t, std::int64_t) { return random.uniform(); });
  std::vector<double> const of_x = x.values();
  Stored const y =
      cloud_of(n, d, [&](std::int64_t i, std::int64_t k) { return of_x[i * d + k] + 1e-3 * random.normal(); });
  std::vector<double> const weights(n, 1.0 / n);
  Context const context = make_context(DeviceType::cpu, 3);
  Backend const& backend = backend_of(context);
  auto const bytes = [&] { return MemoryPeak(backend.memory()).bytes(); };
  auto const entropic =
      backend.entropic_operator(PointCloud{x.view(), y.view()}, {weights, weights}, {precision(), 0, {}, kShare});
  entropic->set_potentials({}, {});
  entropic->sweep({0.005}, 1);
  Potentials const start = potentials_of(*entropic);
  entropic->sweep({0.005}, 1);
  Problem const problem{.x = x, .y = y, .a = weights, .b = weights};
  SweepResult const expected = sweep(Dense(problem), {0.005}, 1, start);
  Real const allowed =
      Tolerance(problem, 0.005, arithmetic(d)).sweeps({0.005}, 1, expected) + 6 * Real(kShare) * Real(0.005);
  Potentials const found = potentials_of(*entropic);
  for (Side const side : {Side::rows, Side::columns}) {
    for (std::size_t i = 0; i < found.of(side).size(); ++i)
      EXPECT_NEAR(static_cast<double>(found.of(side)[i] - expected.potentials.of(side)[i]), 0,
                  static_cast<double>(allowed))
          << i;
  }
  // An evaluation drops the list of the sweeps, and keeps none.
  std::int64_t const before = bytes();
  (void)entropic->evaluate(0.005);
  EXPECT_GE(before - bytes(), 4 * tiles);
  EXPECT_LE(before - bytes(), 4 * tiles * tiles / 4);
}

TEST_P(Truncation, new_points_get_their_transform) {
  for (HardCase const& test : hard_cases()) {
    SCOPED_TRACE(test.name);
    double const eps = test.blur * test.blur;
    auto const entropic = solved(test);
    auto const plan = entropic->plan(eps);
    // The old points as new ones.
    auto const at = plan->points().at(Side::rows, {test.problem.x.view(), test.problem.clouds().labels.x});
    std::vector<double> transform(test.problem.n());
    at->transform(Side::rows, MutableVectorView(transform));
    Dense const dense(test.problem);
    Potentials const potentials = potentials_of(*entropic);
    Vector const expected = dense.softmin(Side::rows, eps, potentials.g);
    Tolerance const tolerance(test.problem, eps, arithmetic(test.problem.d()));
    Vector allowed = tolerance.softmin(Side::rows, potentials.g, expected);
    for (Real& value : allowed) value = 3 * value + 2 * kShare * eps;  // New points have another centre.
    expect_close("transform", transform, expected, allowed);
  }
}

// At this blur all tiles are kept. An evaluation has the lists of both sides and a transposed one together, in the
// place of the list of the sweeps, 1.1 MB more. Its other arrays, logits and stripes of few tiles, take less than 0.6
// MB.
TEST_P(Truncation, lists_count_as_memory) {
  if (GetParam().device != DeviceType::cpu) GTEST_SKIP() << "lists of a device are its arrays";
  std::int64_t const n = 12000, tiles = 375;
  auto const line = [](std::int64_t i, std::int64_t) { return static_cast<double>(i) / n; };
  std::vector<double> const weights(n, 1.0 / n);
  Context const context = make_context(DeviceType::cpu, 3);
  Backend const& backend = backend_of(context);
  auto const entropic = backend.entropic_operator(PointCloud{cloud_of(n, 1, line).view(), cloud_of(n, 1, line).view()},
                                                  {weights, weights}, {precision(), 0, {}, kShare});
  entropic->set_potentials({}, {});
  entropic->sweep({1}, 2);
  std::int64_t const before = MemoryPeak(backend.memory()).bytes();
  MemoryPeak const peak(backend.memory());
  (void)entropic->evaluate(1);
  EXPECT_GE(peak.bytes() - before, 2 * 4 * tiles * tiles);
}

TEST_P(Truncation, is_bitwise_repeatable) {
  std::vector<HardCase> const cases = hard_cases();
  for (std::size_t k = 0; k < cases.size(); k += 3) {
    SCOPED_TRACE(cases[k].name);
    for (int const threads : {1, 2}) {
      Potentials const first = potentials_of(*solved(cases[k], threads));
      Potentials const second = potentials_of(*solved(cases[k], threads));
      EXPECT_EQ(first.f, second.f);
      EXPECT_EQ(first.g, second.g);
    }
  }
}

}  // namespace
}  // namespace monge::oracle
