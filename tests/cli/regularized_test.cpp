// `monge regularized`, run as a user would.
#include "program.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

namespace monge::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

constexpr std::int64_t kRows = 12, kColumns = 9;

class RegularizedProgram : public Program {
 protected:
  RegularizedProgram() { points("C.npy", kRows, kColumns, 1); }

  Outcome regularize(std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"regularized", path("C.npy"), "--out", path("result"), "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  json report() const { return json::parse(contents(path("result/report.json"))); }
  std::vector<double> numbers(std::string_view name) const {
    return std::get<std::vector<double>>(read_array("numbers", path(name)).values);
  }
  std::vector<std::int64_t> indices(std::string_view name) const {
    return read_index_array("indices", path(name)).values;
  }
  /// 0, 1, 2, 0, 1, ... for the rows.
  std::string groups() const {
    std::string text;
    for (std::int64_t i = 0; i < kRows; ++i) text += std::to_string(i % 3) + "\n";
    return file("groups.csv", text);
  }
  /// A .npy of bool, of which element k is k % `period` != 0.
  std::string mask(std::int64_t period) const {
    std::string header = "{'descr': '|b1', 'fortran_order': False, 'shape': (" + std::to_string(kRows) + ", " +
                         std::to_string(kColumns) + "), }";
    header.append(63 - (10 + header.size()) % 64, ' ').push_back('\n');
    std::string bytes = "\x93NUMPY";
    bytes += {1, 0, static_cast<char>(header.size()), 0};
    bytes += header;
    for (std::int64_t k = 0; k < kRows * kColumns; ++k) bytes.push_back(static_cast<char>(k % period != 0));
    return file("mask.npy", bytes);
  }
};

TEST_F(RegularizedProgram, WritesPlanPotentialsAndReport) {
  Outcome const outcome =
      regularize({"--regularizer", "quadratic", "--weight", "0.5", "--method", "splitting", "--tolerance", "1e-6"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  json const written = report();
  EXPECT_EQ(written["status"], "converged");
  EXPECT_EQ(written["method"], "splitting");
  EXPECT_EQ(written["regularizer"]["quadratic"], 0.5);
  std::vector<double> const plan = numbers("result/plan.npy"), cost = numbers("C.npy");
  ASSERT_EQ(plan.size(), static_cast<std::size_t>(kRows * kColumns));
  double const transport = std::inner_product(plan.begin(), plan.end(), cost.begin(), 0.0);
  double const squares = std::inner_product(plan.begin(), plan.end(), plan.begin(), 0.0);
  EXPECT_NEAR(written["transport_cost"], transport, 1e-12);
  EXPECT_NEAR(written["regularization"], 0.25 * squares, 1e-12);
  EXPECT_NEAR(written["primal"], written["dual"].get<double>() + written["gap"].get<double>(), 1e-12);
  // Mass that X lacks counts at the least cost.
  double const lacking = 1 - std::accumulate(plan.begin(), plan.end(), 0.0), least = *std::ranges::min_element(cost);
  EXPECT_NEAR(written["primal"], transport + 0.25 * squares + lacking * least, 1e-12);
  EXPECT_EQ(written["nonzeros"], std::count_if(plan.begin(), plan.end(), [](double x) { return x != 0; }));
  EXPECT_LE(std::abs(written["gap"].get<double>()), 1e-6 * written["primal"].get<double>());
  // Each entry is [u + v - C]_+ over the weight, at the optimum; here to the tolerance, of potentials of size 1.
  std::vector<double> const u = numbers("result/u.npy"), v = numbers("result/v.npy");
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) {
      std::size_t const k = static_cast<std::size_t>(i * kColumns + j);
      EXPECT_NEAR(plan[k], std::max(0.0, u[i] + v[j] - cost[k]) / 0.5, 1e-4);
    }
  }
  EXPECT_FALSE(fs::exists(path("result/map.npy")));
}

TEST_F(RegularizedProgram, WritesSparsePlansAndMaps) {
  points("V.npy", kColumns, 2, 3);
  std::vector<std::string> const common{"--regularizer", "group_lasso", "quadratic", "--weight", "0.01",
                                        "0.1",           "--groups",    groups(),    "--values", path("V.npy")};
  std::vector<std::string> sparse = common;
  sparse.push_back("--sparse");
  ASSERT_EQ(regularize(common).code, 0);
  std::vector<double> const dense = numbers("result/plan.npy");
  ASSERT_EQ(regularize(sparse).code, 0);
  EXPECT_FALSE(fs::exists(path("result/plan.npy")));
  std::vector<std::int64_t> const begin = indices("result/plan_indptr.npy"), at = indices("result/plan_indices.npy");
  std::vector<double> const data = numbers("result/plan_data.npy"), values = numbers("V.npy");
  std::vector<double> const map = numbers("result/map.npy");
  ASSERT_EQ(begin.size(), static_cast<std::size_t>(kRows + 1));
  EXPECT_EQ(report()["nonzeros"], begin.back());
  std::vector<double> rebuilt(dense.size(), 0.0);
  for (std::int64_t i = 0; i < kRows; ++i) {
    double mass = 0, mean = 0;
    for (std::int64_t k = begin[i]; k < begin[i + 1]; ++k) {
      rebuilt[static_cast<std::size_t>(i * kColumns + at[k])] = data[k];
      mass += data[k];
      mean += data[k] * values[static_cast<std::size_t>(2 * at[k])];
    }
    EXPECT_NEAR(map[static_cast<std::size_t>(2 * i)], mean / mass, 1e-14);
  }
  EXPECT_EQ(rebuilt, dense);
}

TEST_F(RegularizedProgram, TwoFilesArePoints) {
  points("x.npy", kRows, 2, 5);
  points("y.npy", kColumns, 2, 6);
  Outcome const outcome = run({"regularized", path("x.npy"), path("y.npy"), "--regularizer", "quadratic", "--weight",
                               "1", "--out", path("result"), "--device", "cpu"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(report()["method"], "newton");
  EXPECT_EQ(report()["problem"]["d"], 2);
  std::vector<double> const plan = numbers("result/plan.npy"), x = numbers("x.npy"), y = numbers("y.npy");
  double cost = 0;
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j)
      cost += plan[i * kColumns + j] * (std::pow(x[2 * i] - y[2 * j], 2) + std::pow(x[2 * i + 1] - y[2 * j + 1], 2));
  }
  EXPECT_NEAR(report()["transport_cost"], cost, 1e-12);
}

TEST_F(RegularizedProgram, PointsTakeAllTermsAndAWarmStart) {
  points("x.npy", kRows, 2, 5);
  points("y.npy", kColumns, 2, 6);
  std::vector<std::string> arguments{"regularized", path("x.npy"), path("y.npy"), "--out",  path("result"),
                                     "--device",    "cpu",         "--groups",    groups(), "--regularizer",
                                     "group_lasso", "hypentropy",  "--weight",    "0.05",   "0.02"};
  Outcome const cold = run(arguments);
  ASSERT_EQ(cold.code, 0) << cold.err;
  EXPECT_EQ(report()["method"], "splitting");
  int const without = report()["iterations"];
  EXPECT_EQ(report()["history"].back()["nonzeros"], report()["nonzeros"]);
  for (std::string const name : {"u", "v", "plan"}) {
    fs::copy_file(path("result/" + name + ".npy"), path("start_" + name + ".npy"));
    arguments.push_back("--" + name);
    arguments.push_back(path("start_" + name + ".npy"));
  }
  Outcome const warm = run(arguments);
  ASSERT_EQ(warm.code, 0) << warm.err;
  EXPECT_LT(report()["iterations"], without);
}

// Each column has groups of its own: those of the rows.
TEST_F(RegularizedProgram, GroupsOfPairsMayBeThoseOfRows) {
  std::string text;
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kColumns; ++j) text += std::to_string(j * 3 + i % 3) + (j + 1 < kColumns ? "," : "\n");
  }
  std::vector<std::string> arguments{"--regularizer", "group_lasso", "quadratic", "--weight", "0.05",
                                     "0.1",           "--tolerance", "1e-7",      "--groups", groups()};
  ASSERT_EQ(regularize(arguments).code, 0);
  std::vector<double> const of_rows = numbers("result/plan.npy");
  arguments[8] = "--pair-groups";
  arguments[9] = file("pairs.csv", text);
  ASSERT_EQ(regularize(arguments).code, 0);
  std::vector<double> const of_pairs = numbers("result/plan.npy");
  for (std::size_t k = 0; k < of_rows.size(); ++k) EXPECT_NEAR(of_pairs[k], of_rows[k], 1e-6);
}

TEST_F(RegularizedProgram, MasksForbidPairs) {
  ASSERT_EQ(regularize({"--regularizer", "mask", "--mask", mask(4), "--method", "splitting"}).code, 0);
  std::vector<double> const plan = numbers("result/plan.npy");
  for (std::size_t k = 0; k < plan.size(); k += 4) EXPECT_EQ(plan[k], 0);
  EXPECT_GT(std::accumulate(plan.begin(), plan.end(), 0.0), 0.99);
}

TEST_F(RegularizedProgram, SlopesMayBoundEachEntry) {
  std::string const table = file("slopes.csv", "0,0\n0.02,0\n0.02,inf\n");
  Outcome const outcome = regularize({"--regularizer", "slopes", "--slopes", table});
  ASSERT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr(", slopes\n"));
  EXPECT_EQ(report()["regularizer"]["slopes"], true);
  for (double const x : numbers("result/plan.npy")) EXPECT_LE(x, 0.02 * (1 + 1e-6));
}

TEST_F(RegularizedProgram, EndingShortIsCode3WithResults) {
  EXPECT_EQ(regularize({"--regularizer", "none", "--method", "splitting", "--iterations", "3"}).code, 3);
  EXPECT_EQ(report()["status"], "iteration_limit");
  EXPECT_EQ(report()["iterations"], 3);
  EXPECT_TRUE(fs::exists(path("result/plan.npy")));
}

TEST_F(RegularizedProgram, WhatIsWrongIsOneLineAndNothingIsWritten) {
  using Arguments = std::vector<std::string>;
  points("flat.npy", kRows, 2, 2);
  points("short.npy", kRows - 1, 1, 2);
  std::string const ones = file("ones.csv", "1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n1\n");
  std::string const negative = file("negative.csv", "0\n1\n-1\n0\n1\n2\n0\n1\n2\n0\n1\n2\n");
  for (auto const& [arguments, what] : std::vector<std::pair<Arguments, std::string>>{
           {{"--regularizer", "entropy", "--weight", "1"}, "regularizer: is 'entropy'; must be none, quadratic"},
           {{"--regularizer", "quadratic"}, "weight: is missing; must be given for quadratic"},
           {{"--regularizer", "quadratic", "--weight", "-1"}, "weight: is '-1'; must be a number, finite and >= 0"},
           {{"--regularizer", "quadratic", "--weight", "nan"}, "weight: is 'nan'"},
           {{"--regularizer", "quadratic", "--weight", "1", "2"}, "weight: is given 2 times"},
           {{"--regularizer", "quadratic", "quadratic", "--weight", "1", "2"}, "names quadratic twice"},
           {{"--regularizer", "group_lasso", "--weight", "1"}, "groups: is missing"},
           {{"--regularizer", "group_lasso", "--weight", "1", "--groups", negative}, "groups: entry 2 is -1; must be"},
           {{"--pair-groups", ones}, "pair_groups: is " + ones + "; is for the regularizer group_lasso"},
           {{"--regularizer", "group_lasso", "--weight", "1", "--pair-groups", ones},
            "pair_groups: is 12 x 1; must be 12 x 9"},
           {{"--groups", ones}, "groups: is " + ones + "; is for the regularizer group_lasso"},
           {{"--group-weights", ones}, "group_weights: is " + ones + "; is for the regularizer group_lasso"},
           {{"--weights", ones}, "weights: is " + ones + "; is for the regularizer l1"},
           {{"--mask", ones}, "mask: is " + ones + "; is for the regularizer mask"},
           {{"--hypentropy-width", "1"}, "hypentropy_width: is 1; is for the regularizer hypentropy"},
           {{"--regularizer", "l1", "--weight", "1"}, "weights: is missing"},
           {{"--regularizer", "l1", "--weight", "1", "--weights", path("flat.npy")}, "l1_weights: is 12 x 2; must be"},
           {{"--regularizer", "mask"}, "mask: is missing"},
           {{"--slopes", ones}, "slopes: is " + ones + "; is for the regularizer slopes"},
           {{"--regularizer", "slopes", "--slopes", ones}, "slopes: is 12 x 1; must be k x 2"},
           {{"--regularizer", "mask", "--mask", mask(1)}, "cost: row 0 has mass"},
           {{"--plan", path("flat.npy"), "--method", "splitting"}, "plan: is 12 x 2; must be"},
           {{"--plan", path("C.npy"), "--method", "newton"}, "plan: is given; must not be with method newton"},
           {{"--regularizer", "l1", "--weight", "1", "--weights", path("C.npy"), "--method", "newton"},
            "l1: is 1; must be 0 with method newton"},
           {{"--p", path("short.npy")}, "p: has 11 entries; must have 12"},
           {{"--p", ones, "--q", path("flat.npy")}, "q: has shape 12 x 2; must be 1-D"},
           {{"--tolerance", "-1"}, "tolerance: is -1; must be"},
           {{"--step", "1e-30"}, "step: is 1e-30; must be in [1e-06, 1000000]"},
           {{"--method", "newton", "--accelerate", "true"}, "accelerate: is true; must be false, the default"},
           {{"--precision", "tf32"}, "precision: is tf32"},
       }) {
    SCOPED_TRACE(what);
    expect_refused(regularize(arguments), what);
  }
  std::vector<double> costs = numbers("C.npy");
  costs[5] = std::nan("");
  write_array(path("C.npy"), {{kRows, kColumns}, costs});
  expect_refused(regularize({}), "cost: row 0, column 5 is nan; must be finite or +infinity");
}

}  // namespace
}  // namespace monge::cli
