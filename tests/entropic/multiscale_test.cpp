// Method multiscale, against sums over all pairs and against solves over all pairs.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "geometry/validation.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/refusal.hpp"
#include "seam/backend.hpp"

namespace monge::oracle {
namespace {

/// Clouds of more pairs than the method leaves to dense solves.
constexpr std::int64_t kN = 2300, kM = 2100;

enum class CloudKind { cube, clusters, tails };

Problem cloud_problem(CloudKind kind, std::int64_t d, Weights weights = Weights::uniform, double mass = 1) {
  Random random(9);
  auto const points = [&](std::int64_t n, double power) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < n; ++i) {
      double const stretch = 1 / std::sqrt(random.uniform() + 1e-4);
      for (std::int64_t k = 0; k < d; ++k) {
        if (kind == CloudKind::cube) values.push_back(std::pow(random.uniform(), power));
        if (kind == CloudKind::clusters)
          values.push_back(static_cast<double>((i * 7 + k * 3) % (power > 1 ? 13 : 11)) / 12 + 0.01 * random.normal());
        if (kind == CloudKind::tails) values.push_back(0.5 + 0.05 * stretch * random.normal());
      }
    }
    return values;
  };
  return {.x = Stored(points(kN, 1), kN, d),
          .y = Stored(points(kM, 1.5), kM, d),
          .a = make_weights(weights, kN, mass, random),
          .b = make_weights(weights, kM, mass, random)};
}

enum class LabelKind { none, moderate, symmetric, zero, huge };

/// Six classes of uneven sizes: one of x has one point, and class 4 of x and 5 of y have no counterpart. Moderate costs
/// have no symmetry. Huge ones are 10^6 eps at a blur of 0.1 between classes of equal sizes on both sides.
Problem with_labels(Problem problem, LabelKind kind) {
  if (kind == LabelKind::none) return problem;
  bool const is_huge = kind == LabelKind::huge;
  for (std::int64_t i = 0; i < kN; ++i)
    problem.labels_x.push_back(is_huge ? i * 4 / kN : i == 77 ? 3 : std::array{0, 1, 4, 2, 2, 1, 2}[to_size(i % 7)]);
  for (std::int64_t j = 0; j < kM; ++j)
    problem.labels_y.push_back(is_huge ? j * 4 / kM : std::array{0, 2, 5, 1, 0}[to_size(j % 5)]);
  std::vector<double> costs;
  for (int k = 0; k < 6; ++k) {
    for (int l = 0; l < 6; ++l)
      costs.push_back(kind == LabelKind::zero        ? 0
                      : is_huge                      ? (k == l ? -3.0 : 1e4 + k)
                      : kind == LabelKind::symmetric ? 0.1 * std::abs(k - l)
                                                     : 0.1 * ((5 * k + 3 * l) % 7) - 0.2);
  }
  problem.label_cost = Stored(costs, 6, 6);
  problem.label_weight = is_huge ? 1 : 0.5;
  return problem;
}

SolveOptions multiscale_options(double blur, double tolerance) {
  SolveOptions options;
  options.eps = blur * blur;
  options.tolerance = tolerance;
  options.method = Method::multiscale;
  return options;
}

class Multiscale : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override { require_device(GetParam()); }
  static Context context(int threads = 2) { return make_context(GetParam(), threads); }
  /// CUDA devices take up to 8 dimensions and classes.
  static bool takes(LabelKind labels, std::int64_t d = 2) {
    return labels == LabelKind::none || d + 6 <= 8 || GetParam() == DeviceType::cpu;
  }
  static Plan solve_multiscale(Problem const& problem, SolveOptions const& options, int threads = 2) {
    return monge::solve(context(threads), problem.geometry(), problem.a, problem.b, options);
  }
};
INSTANTIATE_TEST_SUITE_P(on, Multiscale, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](testing::TestParamInfo<DeviceType> const& info) {
                           return std::string(info.param == DeviceType::cpu ? "cpu" : "cuda");
                         });

/// Certified values against those of all pairs at the plan's potentials.
void expect_certificate_holds(Plan const& plan, Problem const& problem, double tolerance) {
  Report const& report = plan.report();
  Dense const dense(problem);
  Potentials const potentials{widen(plan.f()), widen(plan.g())};
  Penalties const penalties{report.penalty_a, report.penalty_b};
  DenseEvaluation const truth = evaluate(dense, report.eps, potentials, penalties);
  double const error = static_cast<double>(truth.row_error + truth.column_error), mass = report.mass;
  EXPECT_TRUE(report.certified);
  EXPECT_GE(report.marginal_error, error - 1e-9 * mass);
  EXPECT_LE(report.marginal_error, error + 0.25 * tolerance * mass + 1e-9 * mass);
  EXPECT_GE(report.transported_mass + report.left_out, static_cast<double>(truth.mass) - 1e-9 * mass);
  EXPECT_LE(report.transported_mass, static_cast<double>(truth.mass) + 1e-9 * mass);
  EXPECT_LE(report.dual, static_cast<double>(truth.dual) + 1e-9 * mass);
  EXPECT_GE(report.dual, static_cast<double>(truth.dual) - report.eps * report.left_out - 1e-9 * mass);
}

TEST_P(Multiscale, converges_with_a_certificate_that_holds) {
  struct Given {
    CloudKind kind;
    std::int64_t d;
    double blur;
    Weights weights = Weights::uniform;
    LabelKind labels = LabelKind::none;
  };
  for (Given const& given :
       {Given{CloudKind::cube, 2, 0.05}, Given{CloudKind::cube, 3, 0.1}, Given{CloudKind::cube, 1, 0.02},
        Given{CloudKind::cube, 2, 0.05, Weights::with_zeros}, Given{CloudKind::clusters, 3, 0.05, Weights::skewed},
        Given{CloudKind::clusters, 3, 0.03}, Given{CloudKind::clusters, 3, 0.01}, Given{CloudKind::tails, 3, 0.1},
        Given{CloudKind::tails, 3, 0.03}, Given{CloudKind::tails, 3, 0.01},
        Given{CloudKind::cube, 2, 0.05, Weights::uniform, LabelKind::moderate},
        Given{CloudKind::clusters, 3, 0.05, Weights::with_zeros, LabelKind::moderate},
        Given{CloudKind::cube, 2, 0.1, Weights::skewed, LabelKind::zero},
        Given{CloudKind::cube, 3, 0.1, Weights::uniform, LabelKind::huge}}) {
    if (!takes(given.labels, given.d)) continue;
    SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(given.kind) << ", d " << given.d << ", blur "
                                    << given.blur << ", weights " << static_cast<int>(given.weights) << ", labels "
                                    << static_cast<int>(given.labels));
    Problem const problem = with_labels(cloud_problem(given.kind, given.d, given.weights), given.labels);
    for (double const tolerance : {1e-2, 1e-4}) {
      Plan const plan = solve_multiscale(problem, multiscale_options(given.blur, tolerance));
      EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
      expect_certificate_holds(plan, problem, tolerance);
    }
  }
}

TEST_P(Multiscale, has_the_values_and_gradients_of_all_pairs) {
  for (LabelKind const labels : {LabelKind::none, LabelKind::moderate}) {
    Problem const problem = with_labels(cloud_problem(CloudKind::cube, 2), labels);
    SolveOptions options = multiscale_options(0.05, 1e-5);
    Plan const plan = solve_multiscale(problem, options);
    options.method = Method::newton;
    options.tolerance = 1e-8;
    Plan const whole = solve_multiscale(problem, options);
    EXPECT_GT(plan.report().left_out, whole.report().left_out);
    // The primal value of a plan with a marginal error is below the optimum by at most this error times the largest
    // potential, which is at most the largest cost, below 2.
    EXPECT_LE(plan.report().dual, whole.report().primal + 2 * whole.report().marginal_error);
    // To first order the value of a plan is off by its gap.
    EXPECT_NEAR(plan.report().primal, whole.report().primal, 2 * std::abs(plan.report().gap) + 1e-10);
    std::vector<double> x(kN * 2), all(kN * 2);
    auto const of_plan = plan.gradients({.x = MutableMatrixView(x.data(), kN, 2)});
    auto const of_whole = whole.gradients({.x = MutableMatrixView(all.data(), kN, 2)});
    // 2 sum_j P_ij (x_i - y_j): |x - y| <= sqrt(2), and the plans differ by at most the marginal errors and what mass
    // is misplaced between them, which is near the marginal error over the rate of the last sweeps.
    double difference = 0;
    for (std::size_t e = 0; e < x.size(); ++e) difference += std::abs(x[e] - all[e]);
    EXPECT_LE(difference, 100 * 1e-5);
    if (labels == LabelKind::none) continue;
    EXPECT_NEAR(of_plan.label_weight, of_whole.label_weight, 100 * 1e-5);  // sum_ij P_ij W, and W is at most 0.4.
  }
}

TEST_P(Multiscale, takes_penalties) {
  for (LabelKind const labels : {LabelKind::none, LabelKind::moderate, LabelKind::huge}) {
    Problem const problem = with_labels(cloud_problem(CloudKind::cube, 2), labels);
    SolveOptions options = multiscale_options(0.05, 1e-4);
    options.penalty_a = 0.3;
    Plan const plan = solve_multiscale(problem, options);
    EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
    expect_certificate_holds(plan, problem, 1e-4);
  }
}

TEST_P(Multiscale, is_bitwise_repeatable) {
  Problem const problem = cloud_problem(CloudKind::clusters, 3);
  for (int const threads : {1, 3}) {
    Plan const first = solve_multiscale(problem, multiscale_options(0.05, 1e-3), threads);
    Plan const second = solve_multiscale(problem, multiscale_options(0.05, 1e-3), threads);
    EXPECT_EQ(first.f(), second.f());
    EXPECT_EQ(first.g(), second.g());
  }
}

TEST_P(Multiscale, solvers_solve_again) {
  Problem const problem = cloud_problem(CloudKind::cube, 2);
  SolveOptions options = multiscale_options(0.05, 1e-3);
  Solver solver(context(), problem.geometry(), options);
  Plan const first = solver.solve(), second = solver.solve();
  EXPECT_EQ(first.f(), second.f());
  options.tolerance = 1e-5;
  EXPECT_EQ(solver.solve(options).status(), Status::converged);
}

// Self terms have the order of the points of OT(a, b). With weights that differ, another order would give other values.
TEST_P(Multiscale, divergences_equal_those_of_all_pairs) {
  constexpr double kBalanced = std::numeric_limits<double>::infinity();
  for (auto const& [penalty, labels] : {std::pair{kBalanced, LabelKind::none},
                                        {1.0, LabelKind::none},
                                        {kBalanced, LabelKind::symmetric},
                                        {1.0, LabelKind::symmetric}}) {
    Problem const problem = with_labels(cloud_problem(CloudKind::cube, 2, Weights::skewed), labels);
    SolveOptions options = multiscale_options(0.05, 1e-5);
    options.penalty_a = options.penalty_b = penalty;
    std::vector<double> gradients[2];
    double values[2];
    for (int const all : {0, 1}) {
      if (all == 1) options.method = Method::sinkhorn;
      Divergence const divergence = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
      EXPECT_EQ(divergence.status(), Status::converged);
      EXPECT_EQ(divergence.aa.report().left_out > 0, all == 0);
      // A self problem starts from small coarse clouds alone, and labels make these larger.
      if (labels == LabelKind::none) {
        EXPECT_EQ(divergence.aa.report().coarse_iterations > 0, all == 0);
      }
      values[all] = divergence.value;
      gradients[all].resize(to_size(kN * 2));
      divergence.gradients({.x = MutableMatrixView(gradients[all].data(), kN, 2)});
    }
    // Three values, each within eps times its error of the optimum. A gradient moves by the mass that moves.
    EXPECT_NEAR(values[0], values[1], 6 * options.eps * options.tolerance);
    for (std::size_t e = 0; e < gradients[0].size(); ++e) EXPECT_NEAR(gradients[0][e], gradients[1][e], 1e-5);
  }
}

TEST_P(Multiscale, divergences_stop_in_a_stage) {
  Problem const problem = cloud_problem(CloudKind::cube, 2);
  SolveOptions options = multiscale_options(0.05, 1e-5);
  int calls = 0;
  options.progress = [&](Progress const&) { return ++calls != 2; };
  Divergence const divergence = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
  EXPECT_EQ(divergence.status(), Status::stopped);
  EXPECT_EQ(calls, 2);
}

// One far point: coarse clouds would tell little about its potential.
TEST_P(Multiscale, auto_leaves_out_pairs_of_compact_clouds_alone) {
  Random random(5);
  std::vector<double> x, y;
  for (int k = 0; k < 2 * 4000; ++k) {
    x.push_back(random.uniform());
    y.push_back(random.uniform());
  }
  SolveOptions options;
  options.eps = 0.01;
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < 4000; ++i) labels.push_back(i % 3);
  std::vector<double> const costs{0, 0.1, 0.2, 0.1, 0, 0.1, 0.2, 0.1, 0};
  IndexView const of_points{labels.data(), 4000};
  for (double const place : {0.5, 10.0}) {
    x[0] = place;
    for (Labels const& given : {Labels{}, Labels{of_points, of_points, MatrixView(costs.data(), 3, 3)}}) {
      PointCloud clouds{MatrixView(x.data(), 4000, 2), MatrixView(y.data(), 4000, 2)};
      clouds.labels = given;
      Report const report = monge::solve(context(), clouds, {}, {}, options).report();
      EXPECT_EQ(report.status, Status::converged);
      EXPECT_EQ(report.left_out > 0, place < 1 && GetParam() == DeviceType::cpu);
    }
  }
  options.method = Method::multiscale;
  options.certificate = false;
  PointCloud const clouds{MatrixView(x.data(), 4000, 2), MatrixView(y.data(), 4000, 2)};
  EXPECT_TRUE(std::isnan(monge::solve(context(), clouds, {}, {}, options).report().left_out));
}

// The line through the potentials of two stages may be far off for points that are far from all others.
TEST_P(Multiscale, a_poor_start_gets_the_ladder) {
  std::int64_t const n = 2400;
  int passes = 0, of_auto = 0;
  for (std::uint64_t const seed : {1, 2, 3, 4}) {
    Random random(seed);
    std::vector<double> x, y;
    for (std::int64_t k = 0; k < 3 * n; ++k) {
      x.push_back(random.normal() / std::pow(random.uniform() + 1e-9, 1 / 1.2));
      y.push_back(random.normal());
    }
    std::vector<double> const weights(n, 1.0 / n);
    Problem const problem{.x = Stored(x, n, 3), .y = Stored(y, n, 3), .a = weights, .b = weights};
    double square = 0;
    for (double const value : x) square += value * value / n;
    SolveOptions options = multiscale_options(std::sqrt(2e-3 * square), 1e-3);
    Plan const plan = solve_multiscale(problem, options);
    EXPECT_EQ(plan.status(), Status::converged);
    expect_certificate_holds(plan, problem, 1e-3);
    passes += plan.report().iterations;
    options.method = Method::automatic;
    of_auto += solve_multiscale(problem, options).report().iterations;
  }
  EXPECT_LE(passes, 2 * of_auto + 40);
}

TEST_P(Multiscale, refuses_what_it_cannot_take) {
  SolveOptions const options = multiscale_options(1, 1e-3);
  auto const message = [&](Problem const& given) -> std::string {
    try {
      solve_multiscale(given, options);
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      return error.what();
    }
    return "";
  };
  auto const of_costs = [](Costs costs, std::int64_t d = 2) {
    Recipe recipe{20, 30, d};
    recipe.costs = costs;
    return make_problem(recipe);
  };
  auto const expect = [&](Problem const& given, std::string const& found) {
    EXPECT_NE(message(given).find("method: is multiscale, given " + found), std::string::npos) << message(given);
  };
  expect(of_costs(Costs::distances), "a cost matrix");
  expect(of_costs(Costs::euclidean), "a cost function other than sqeuclidean");
  if (GetParam() == DeviceType::cuda)  // 4 dimensions, and classes of 7 x 5.
    expect(of_costs(Costs::labels, 4), "more than 8 dimensions and classes of labels on a CUDA device");
}

// The last tile of each side has both labels and room for more points.
TEST_P(Multiscale, takes_tiles_of_several_labels) {
  Random random(2);
  std::int64_t const n = 40;
  std::vector<double> points[2];
  for (std::int64_t k = 0; k < 2 * n; ++k) {
    for (std::vector<double>& of_side : points) of_side.push_back(random.uniform());
  }
  std::vector<double> const weights(to_size(n), 1.0 / static_cast<double>(n)), costs{0, 0.3, 0.2, 0};
  Problem problem{.x = Stored(points[0], n, 2), .y = Stored(points[1], n, 2), .a = weights, .b = weights};
  for (std::int64_t i = 0; i < n; ++i) {
    problem.labels_x.push_back(i % 10 == 3);
    problem.labels_y.push_back(i % 8 == 5);
  }
  problem.label_cost = Stored(costs, 2, 2);
  Plan const plan = solve_multiscale(problem, multiscale_options(0.2, 1e-6));
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  expect_certificate_holds(plan, problem, 1e-6);
}

// A sum over a node, put at its centre, is off by the variance of the logit over the node. At pairs a blur apart the
// slope of a cost s |x - y|^2 is 2 s blur, and the mean square radius is at most a ninth of the blur's square, so half
// of the variance is 2 / 9. Label costs are many eps.
TEST_P(Multiscale, coarse_clouds_have_labels) {
  for (double const blur : {0.4, 1.5}) {  // At the second all points of a class are one coarse point.
    Problem problem = with_labels(cloud_problem(CloudKind::cube, 2), LabelKind::moderate);
    problem.label_weight = 30 * blur * blur;
    SolveOptions options = multiscale_options(blur, 1e-4);
    std::vector<std::pair<int, monge::Potentials>> checks;
    options.progress = [&](Progress const& check) {
      checks.emplace_back(check.iteration, check.potentials());
      return true;
    };
    Plan const plan = solve_multiscale(problem, options);
    int const coarse = plan.report().coarse_iterations;
    auto const last = std::ranges::find_if(checks, [&](auto const& check) { return check.first > coarse; }) - 1;
    for (auto const& [found, wanted] :
         {std::pair{last->second.f, widen(plan.f())}, {last->second.g, widen(plan.g())}}) {
      double mean = 0, largest = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i) mean += found[i] - static_cast<double>(wanted[i]);
      mean /= static_cast<double>(wanted.size());
      for (std::size_t i = 0; i < wanted.size(); ++i)
        largest = std::max(largest, std::abs(found[i] - static_cast<double>(wanted[i]) - mean));
      EXPECT_LE(largest, 2 * options.eps / 9);
    }
  }
}

/// The mass, its first moments and its second moment, of all points and of those with each label.
struct Moments {
  double mass = 0, second = 0;
  std::vector<double> first;

  /// The second moment about the centre.
  double inertia() const {
    double square = 0;
    for (double const value : first) square += value * value;
    return mass > 0 ? second - square / mass : 0;
  }
};
std::map<std::int64_t, Moments> moments_of(std::vector<double> const& points, std::vector<double> const& mass,
                                           std::vector<std::int64_t> const& labels) {
  std::size_t const d = points.size() / mass.size();
  std::map<std::int64_t, Moments> result;
  for (std::size_t i = 0; i < mass.size(); ++i) {
    Moments& of = result[labels.empty() ? 0 : labels[i]];
    of.first.resize(d);
    of.mass += mass[i];
    for (std::size_t k = 0; k < d; ++k) {
      of.first[k] += mass[i] * points[i * d + k];
      of.second += mass[i] * points[i * d + k] * points[i * d + k];
    }
  }
  return result;
}

// A coarse point has the mass and the centre of its node. So a coarse cloud has the mass and the centre of the cloud.
// Its moment of inertia is smaller by the sum of the moments of inertia of the nodes, each about its own centre, which
// is at most the mass times the square of the radius.
TEST_P(Multiscale, coarse_clouds_keep_mass_and_centres) {
  Context const on = context();
  Backend const& backend = backend_of(on);
  for (LabelKind const labels : {LabelKind::none, LabelKind::moderate, LabelKind::zero}) {
    Problem const problem = with_labels(cloud_problem(CloudKind::clusters, 2, Weights::with_zeros, 3), labels);
    bool const has_labels = labels != LabelKind::none;
    OperatorOptions const options{.precision = Precision::float64, .truncation = 1e-6};
    Marginals const marginals{problem.a, problem.b};
    Geometry const geometry = problem.geometry();
    auto const entropic = backend.entropic_operator(geometry, marginals, options);
    for (Side const side : {Side::rows, Side::columns}) {
      bool const is_rows = side == Side::rows;
      std::vector<double> const& mass = is_rows ? problem.a : problem.b;
      std::map<std::int64_t, Moments> const given =
          moments_of((is_rows ? problem.x : problem.y).values(), mass, is_rows ? problem.labels_x : problem.labels_y);
      auto const tree = backend.tree(*entropic, {geometry, marginals, options}, side);
      for (double const radius : {0.0, 0.01, 0.05, 1e3}) {
        SCOPED_TRACE(testing::Message() << "labels " << static_cast<int>(labels) << ", rows " << is_rows << ", radius "
                                        << radius);
        std::int64_t const size = tree->cut(radius);
        Cloud const cloud = tree->cloud();
        ASSERT_EQ(cloud.size(), size);
        ASSERT_EQ(std::ssize(cloud.points), 2 * size);
        ASSERT_EQ(std::ssize(cloud.labels), has_labels ? size : 0);
        EXPECT_TRUE(std::ranges::all_of(cloud.mass, [](double value) { return value > 0; }));
        if (radius == 0) {
          EXPECT_EQ(size, std::ranges::count_if(mass, [](double value) { return value > 0; }));
        } else if (radius == 0.05) {
          EXPECT_LT(size, std::ssize(mass) / 4);
        } else if (radius == 1e3 && !has_labels) {
          EXPECT_EQ(size, 1);
        }
        std::map<std::int64_t, Moments> const found = moments_of(cloud.points, cloud.mass, cloud.labels);
        for (auto const& [label, whole] : given) {
          if (whole.mass == 0) continue;
          ASSERT_TRUE(found.contains(label)) << label;
          Moments const& part = found.at(label);
          EXPECT_NEAR(part.mass, whole.mass, 1e-12 * whole.mass) << label;
          for (int k : {0, 1}) EXPECT_NEAR(part.first[k], whole.first[k], 1e-11 * whole.mass) << label;
          EXPECT_LE(part.second, whole.second + 1e-11 * whole.mass) << label;
          EXPECT_LE(whole.inertia() - part.inertia(), (radius * radius + 1e-11) * whole.mass) << label;
        }
      }
    }
  }
}

// A plan may share the packed points of another plan (NewPoints::of). Its transforms are those that it has at the same
// points without sharing. Each of the two may lack the truncation of a sum. In float32 an exponent has three rounded
// terms of the size of the costs.
TEST_P(Multiscale, plans_give_other_operators_their_transforms) {
  constexpr double kEps = 0.02, kTruncation = 1e-6;
  Context const on = context();
  Backend const& backend = backend_of(on);
  for (LabelKind const labels : {LabelKind::none, LabelKind::moderate}) {
    Problem const coarse = with_labels(cloud_problem(CloudKind::cube, 2), labels);
    Problem const fine = with_labels(cloud_problem(CloudKind::clusters, 2, Weights::with_zeros, 3), labels);
    for (auto const& [of_plan, of_points, truncation] :
         {std::tuple{Precision::float32, Precision::float32, kTruncation},
          std::tuple{Precision::float64, Precision::float64, kTruncation},
          std::tuple{Precision::float64, Precision::float32, kTruncation},
          std::tuple{Precision::float32, Precision::float32, 0.0}}) {
      SCOPED_TRACE(testing::Message() << name(of_plan) << ", " << name(of_points) << ", truncation " << truncation
                                      << ", labels " << (labels != LabelKind::none));
      auto const before = backend.entropic_operator(coarse.geometry(), {coarse.a, coarse.b},
                                                    {.precision = of_plan, .truncation = truncation});
      before->set_potentials({}, {});
      before->sweep({kEps}, 3);
      auto const plan = before->plan(kEps);
      auto const after = backend.entropic_operator(fine.geometry(), {fine.a, fine.b},
                                                   {.precision = of_points, .truncation = kTruncation});
      after->set_potentials({}, {});
      std::vector<double> expected[2], found[2];
      for (Side const side : {Side::rows, Side::columns}) {
        bool const is_rows = side == Side::rows;
        PointCloud const clouds = clouds_of(fine.geometry());
        NewPoints points{is_rows ? clouds.x : clouds.y, is_rows ? clouds.labels.x : clouds.labels.y};
        std::vector<double>& values = expected[is_rows ? 0 : 1];
        values.resize(to_size(after->size(side)));
        plan->points().at(side, points)->transform(side, MutableVectorView(values));
        auto const of = after->plan(kEps);
        points.of = of.get();
        auto const at = plan->points().at(side, points);
        backend.add_transform(side, 1.5, *at, *after);
        backend.add_transform(side, -0.25, *at, *after);
      }
      found[0].resize(expected[0].size());
      found[1].resize(expected[1].size());
      after->get_potentials(MutableVectorView(found[0]), MutableVectorView(found[1]));
      double const rounding = of_plan == Precision::float64 ? 1e-12 : 3 * 4 * 0x1p-24;
      for (int s : {0, 1}) {
        for (std::size_t i = 0; i < expected[s].size(); ++i)
          ASSERT_NEAR(found[s][i], 1.25 * expected[s][i], 1.75 * (2 * kEps * kTruncation + rounding)) << s << " " << i;
      }
    }
  }
}

TEST_P(Multiscale, names_a_label_without_class_by_its_point) {
  Problem problem = with_labels(cloud_problem(CloudKind::cube, 2), LabelKind::moderate);
  problem.labels_y[1234] = 6;
  EXPECT_EQ(refusal_of([&] { solve_multiscale(problem, multiscale_options(1, 1e-3)); }),
            "labels_y: point 1234 has label 6; must be in [0, 6)");
}

TEST_P(Multiscale, progress_has_the_checks_of_coarse_clouds_and_can_stop_them) {
  Problem const problem = cloud_problem(CloudKind::cube, 2);
  SolveOptions options = multiscale_options(0.1, 1e-3);  // At this blur coarse clouds have fewer points.
  int iteration = 0, checks = 0;
  options.progress = [&](Progress const& check) {
    EXPECT_GT(check.iteration, iteration) << "sweeps of all clouds count";
    iteration = check.iteration;
    if (++checks > 1) return true;
    monge::Potentials const present = check.potentials();
    EXPECT_EQ(std::ssize(present.f), kN);
    EXPECT_EQ(std::ssize(present.g), kM);
    return true;
  };
  Report const report = solve_multiscale(problem, options).report();
  EXPECT_EQ(report.status, Status::converged);
  EXPECT_GT(report.coarse_iterations, 2);
  EXPECT_EQ(iteration, report.coarse_iterations + report.iterations);
  EXPECT_NE(report.message.find("sweeps of coarse clouds and"), std::string::npos) << report.message;

  int calls = 0;
  options.progress = [&](Progress const&) { return ++calls < 2; };
  Plan const stopped = solve_multiscale(problem, options);
  EXPECT_EQ(stopped.status(), Status::stopped);
  EXPECT_EQ(calls, 2);
  EXPECT_GT(stopped.report().coarse_iterations, 0);
  expect_certificate_holds(stopped, problem, 1e-3);
}

}  // namespace
}  // namespace monge::oracle
