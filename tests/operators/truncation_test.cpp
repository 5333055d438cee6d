// Operators that leave pairs out, against sums over all pairs in long double: the mass of the pairs left out has a
// bound, and the certificate allows for it.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "operators/cases.hpp"

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
  std::unique_ptr<EntropicOperator> make(Problem const& problem, double share, int threads = 3) {
    contexts_.push_back(make_context(GetParam().device, threads));
    return backend_of(contexts_.back())
        .entropic_operator(problem.geometry(), {problem.a, problem.b}, {precision(), 0, {}, share});
  }
  /// The operator after some sweeps down a ladder, near a solution.
  std::unique_ptr<EntropicOperator> solved(HardCase const& test, int threads = 3) {
    auto entropic = make(test.problem, kShare, threads);
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

TEST_P(Truncation, sweeps_go_where_those_over_all_pairs_go) {
  for (HardCase const& test : hard_cases()) {
    SCOPED_TRACE(test.name);
    double const eps = test.blur * test.blur;
    auto const listed = solved(test);
    auto const whole = make(test.problem, 0);
    Potentials const start = potentials_of(*listed);
    whole->set_potentials(narrow(start.f), narrow(start.g));
    for (EntropicOperator* entropic : {listed.get(), whole.get()}) entropic->sweep({eps}, 1);
    Dense const dense(test.problem);
    Tolerance const tolerance(test.problem, eps, arithmetic(test.problem.d()));
    SweepResult const expected = sweep(dense, {eps}, 1, start);
    // Where each sum lacks a share s, a half-step is off by -eps log(1 - s). The columns are off by the rows' part,
    // too.
    Real const allowed = 2 * tolerance.sweeps({eps}, 1, expected) + 3 * kShare * eps;
    Potentials const one = potentials_of(*listed), all = potentials_of(*whole);
    for (Side const side : {Side::rows, Side::columns}) {
      for (std::size_t i = 0; i < one.of(side).size(); ++i)
        EXPECT_NEAR(static_cast<double>(one.of(side)[i] - all.of(side)[i]), 0, static_cast<double>(allowed)) << i;
    }
  }
}

TEST_P(Truncation, new_points_get_their_transform) {
  for (HardCase const& test : hard_cases()) {
    SCOPED_TRACE(test.name);
    double const eps = test.blur * test.blur;
    auto const entropic = solved(test);
    auto const plan = entropic->plan(eps);
    // The old points as new ones.
    auto const at = plan->points().at(Side::rows, test.problem.x.view());
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
