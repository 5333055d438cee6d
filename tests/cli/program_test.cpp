// `monge solve` and `monge info`, run as a user would.
#include "program.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <set>
#include <thread>

#include <fmt/format.h>

namespace monge::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pointwise;
using testing::StartsWith;

class SolveProgram : public ProgramWithClouds {
 protected:
  Outcome solve(std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"solve",        path("x.npy"), path("y.npy"), "--out",
                                       path("result"), "--device",    "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  Outcome solve_costs(std::string const& cost, std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"solve", "--cost", cost, "--out", path("result"), "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  std::vector<double> numbers(std::string_view name) const {
    return std::get<std::vector<double>>(read_array("numbers", path(name)).values);
  }
  /// Numbers of type int64, which no input has.
  std::vector<std::int64_t> indices(std::string_view name, std::string_view shape) const {
    std::string const bytes = contents(path(name));
    EXPECT_THAT(bytes, HasSubstr(fmt::format("'descr': '<i8', 'fortran_order': False, 'shape': {}, ", shape)));
    std::size_t const begin = bytes.find('\n') + 1;
    std::vector<std::int64_t> values((bytes.size() - begin) / sizeof(std::int64_t));
    std::memcpy(values.data(), bytes.data() + begin, values.size() * sizeof(std::int64_t));
    return values;
  }
  /// Costs between x.npy and y.npy, 40 x 30.
  std::vector<double> squared_distances() const {
    std::vector<double> const x = numbers("x.npy"), y = numbers("y.npy");
    std::vector<double> costs;
    for (std::size_t i = 0; i < x.size(); i += 3) {
      for (std::size_t j = 0; j < y.size(); j += 3)
        costs.push_back(std::transform_reduce(&x[i], &x[i] + 3, &y[j], 0.0, std::plus<>(),
                                              [](double p, double q) { return (p - q) * (p - q); }));
    }
    return costs;
  }

  json report() const { return json::parse(contents(path("result/report.json"))); }

  /// A solve that, by default, Ctrl-C alone ends.
  pid_t start_long(std::vector<std::string> const& more, std::string const& iterations = "1000000") const {
    points("x.npy", 3000, 8, 1);
    points("y.npy", 3000, 8, 2);
    std::vector<std::string> arguments{"solve",       path("x.npy"), path("y.npy"),  "--eps",        "0.1",
                                       "--tolerance", "0",           "--device",     "cpu",          "--threads",
                                       "2",           "--out",       path("result"), "--iterations", iterations};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return start(arguments, &terminal_);
  }

  Terminal terminal_;
};

TEST_F(SolveProgram, WritesTheResult) {
  Outcome const outcome = solve({"--eps", "0.05"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty()) << "no progress line where there is no terminal";
  EXPECT_THAT(outcome.out, HasSubstr("converged"));

  std::set<std::string> names;
  for (auto const& entry : fs::directory_iterator(path("result"))) names.insert(entry.path().filename().string());
  EXPECT_THAT(names, ElementsAre("f.npy", "g.npy", "map.npy", "report.json"));
  Array const f = read_array("f", path("result/f.npy")), g = read_array("g", path("result/g.npy"));
  EXPECT_THAT(f.shape, ElementsAre(40));
  EXPECT_THAT(g.shape, ElementsAre(30));
  EXPECT_TRUE(std::holds_alternative<std::vector<double>>(f.values));
  EXPECT_THAT(read_array("map", path("result/map.npy")).shape, ElementsAre(40, 3));
}

TEST_F(SolveProgram, TheReportHasWhatItPromises) {
  ASSERT_EQ(solve({"--eps", "0.05", "--threads", "1"}).code, 0);
  json const written = report();
  for (auto const key : {"status",
                         "message",
                         "iterations",
                         "annealing_iterations",
                         "certified",
                         "mass",
                         "mass_b",
                         "penalty_a",
                         "penalty_b",
                         "transported_mass",
                         "marginal_error",
                         "transport_cost",
                         "primal",
                         "dual",
                         "gap",
                         "left_out",
                         "left_out_of_row",
                         "peak_bytes",
                         "seconds",
                         "problem",
                         "options",
                         "device",
                         "device_name",
                         "instruction_set",
                         "versions",
                         "history"}) {
    EXPECT_TRUE(written.contains(key)) << key;
  }
  EXPECT_EQ(written["status"], "converged");
  EXPECT_EQ(written["device"], "cpu");
  EXPECT_EQ(written["options"]["eps"], 0.05);
  EXPECT_EQ(written["options"]["schedule"], "overrelaxed");
  EXPECT_EQ(written["options"]["threads"], 1);
  EXPECT_EQ(written["problem"]["n"], 40);
  EXPECT_EQ(written["problem"]["files"]["x"], path("x.npy"));
  EXPECT_LE(written["marginal_error"].get<double>(), 1e-6);
  EXPECT_NEAR(written["gap"], written["primal"].get<double>() - written["dual"].get<double>(), 1e-12);
  EXPECT_TRUE(written["seconds"].contains("sweeps"));
  EXPECT_FALSE(written["history"].empty());
  EXPECT_FALSE(written["versions"]["monge"].get<std::string>().empty());
}

TEST_F(SolveProgram, MethodsMeetTheCriterionAndSayWhatTheyTook) {
  for (std::string const method : {"newton", "splr", "sinkhorn", "auto"}) {
    for (std::string const criterion : {"l1", "gradient", "gap"}) {
      SCOPED_TRACE(method + ", " + criterion);
      Outcome const outcome =
          solve({"--eps", "0.02", "--method", method, "--criterion", criterion, "--tolerance", "1e-9"});
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      json const written = report();
      EXPECT_EQ(written["options"]["method"], method);
      EXPECT_EQ(written["options"]["criterion"], criterion);
      double const gap = std::abs(written["gap"].get<double>()), primal = written["primal"];
      EXPECT_LE(criterion == "l1"         ? written["marginal_error"].get<double>()
                : criterion == "gradient" ? written["gradient_norm"].get<double>()
                                          : gap / primal,
                1e-9);
      bool const steps = method == "newton" || method == "splr";
      EXPECT_TRUE(method == "auto" || (written["newton_steps"].get<int>() > 0) == steps);
      EXPECT_LE(written["newton_iterations"], written["iterations"]);
      EXPECT_EQ(written["newton_on_host"], false);
      EXPECT_EQ(outcome.out.find("passes") != std::string::npos, written["newton_steps"] > 0) << outcome.out;
      double last = 0;
      for (json const& check : written["history"]) {
        EXPECT_GE(check["seconds"], last);
        last = check["seconds"];
      }
      EXPECT_TRUE(!steps || written["history"].back()["gradient_norm"].is_number());
      EXPECT_TRUE(!steps || written["history"].back()["kind"] == method);
    }
  }
}

TEST_F(SolveProgram, TheGapIsPrintedWithoutItsSign) {
  int negative = 0;
  for (std::string const eps : {"0.05", "0.1", "0.2", "0.4", "0.8", "1.6"}) {
    Outcome const outcome = solve({"--eps", eps});
    EXPECT_THAT(outcome.out, Not(HasSubstr(" -"))) << "nothing that is printed for these points is below 0";
    EXPECT_THAT(outcome.out, HasSubstr("\n|gap|  ")) << "the label says that the sign is left out";
    negative += report()["gap"].get<double>() < 0;
  }
  EXPECT_GT(negative, 0) << "one of these gaps has a sign";
}

TEST_F(SolveProgram, ThePlanIsWrittenAndGoesWithTheNextRun) {
  ASSERT_EQ(solve({"--eps", "0.05", "--plan"}).code, 0);
  Array const plan = read_array("plan", path("result/plan.npy"));
  EXPECT_THAT(plan.shape, ElementsAre(40, 30));
  std::vector<double> const& entries = std::get<std::vector<double>>(plan.values);
  for (std::size_t i = 0; i < 40; ++i)
    EXPECT_NEAR(std::accumulate(&entries[30 * i], &entries[30 * i] + 30, 0.0), 1.0 / 40, 1e-6);
  ASSERT_EQ(solve({"--eps", "0.05"}).code, 0);
  EXPECT_FALSE(fs::exists(path("result/plan.npy")));
}

TEST_F(SolveProgram, MethodsThatCannotBeHadAreRefused) {
  for (auto const& [options, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--method", "simplex"}, "method: is 'simplex'; must be auto, sinkhorn, newton, splr or multiscale"},
           {{"--criterion", "linf"}, "criterion: is 'linf'; must be l1, gradient or gap"},
           {{"--method", "splr", "--penalty-a", "2"}, "penalty_a: is 2; must be inf with method splr"},
           {{"--method", "splr", "--precision", "float32"}, "precision: is float32; must be auto or float64"},
           {{"--criterion", "gap", "--certificate", "false"}, "criterion: is gap; must be l1 without the certificate"},
           {{"--method", "splr", "--splr-density", "2"}, "splr_density: is 2; must be"},
           {{"--method", "splr", "--splr-reuse", "0"}, "splr_reuse: is 0; must be"},
           {{"--method", "splr", "--annealing", "1"}, "annealing: is 1; must be 0.25, the default, with method splr"},
           {{"--splr-reuse", "2"}, "splr_reuse: is 2; must be 30, the default, with method auto"},
           {{"--method", "newton", "--schedule", "symmetric"},
            "schedule: is symmetric; must be overrelaxed with method newton"}}) {
    std::vector<std::string> arguments{"--eps", "0.05"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    Outcome const outcome = solve(arguments);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_THAT(outcome.err, HasSubstr(text));
    EXPECT_FALSE(fs::exists(path("result")));
  }
}

TEST_F(SolveProgram, JsonIsAllThatIsPrinted) {
  Outcome const outcome = solve({"--eps", "0.05", "--json"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_EQ(json::parse(outcome.out), report());
}

TEST_F(SolveProgram, QuietPrintsNothing) {
  Outcome const outcome = solve({"--eps", "0.05", "--quiet"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out + outcome.err, IsEmpty());
}

TEST_F(SolveProgram, EndingShortIsCode3WithResults) {
  Outcome const outcome = solve({"--eps", "0.001", "--iterations", "3", "--annealing", "1"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(report()["status"], "iteration_limit");
  EXPECT_EQ(report()["iterations"], 3);
  EXPECT_TRUE(fs::exists(path("result/map.npy")));
}

TEST_F(SolveProgram, ToleranceZeroRunsTheSweepsAndSucceeds) {
  EXPECT_EQ(solve({"--eps", "0.05", "--tolerance", "0", "--iterations", "17", "--schedule", "alternating"}).code, 0);
  EXPECT_EQ(report()["status"], "completed");
  EXPECT_EQ(report()["iterations"], 17);
  EXPECT_EQ(report()["options"]["schedule"], "alternating");
}

TEST_F(SolveProgram, WithoutACertificateTheValuesAreNull) {
  solve({"--eps", "0.05", "--certificate", "false"});
  EXPECT_EQ(report()["certified"], false);
  EXPECT_TRUE(report()["gap"].is_null());
}

TEST_F(SolveProgram, ResumesFromPotentials) {
  ASSERT_EQ(solve({"--eps", "0.01", "--precision", "float64"}).code, 0);
  int const cold = report()["iterations"];
  ASSERT_EQ(
      solve({"--eps", "0.01", "--precision", "float64", "--f", path("result/f.npy"), "--g", path("result/g.npy")}).code,
      0);
  EXPECT_LT(report()["iterations"], cold);
}

TEST_F(SolveProgram, TheMapHasTheTypeOfX) {
  write_array(path("x.npy"), {{3, 2}, std::vector<float>{0, 0, 1, 0, 0, 1}});
  file("y.csv", "u;v\n5;5\n6;5\n5;6\n");
  file("a.csv", "1\n2\n1\n");
  file("b.csv", "2\n1\n1\n");
  Outcome const outcome = run({"solve", path("x.npy"), path("y.csv"), "--a", path("a.csv"), "--b", path("b.csv"),
                               "--eps", "0.1", "--out", path("result"), "--device", "cpu"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  Array const map = read_array("map", path("result/map.npy"));
  EXPECT_TRUE(std::holds_alternative<std::vector<float>>(map.values));
  EXPECT_EQ(report()["mass"], 4);
}

TEST_F(SolveProgram, OnePointAVectorAndACloudAreTheSame) {
  write_array(path("x.npy"), {{4}, std::vector<double>{0, 1, 2, 3}});
  write_array(path("y.npy"), {{4, 1}, std::vector<double>{1, 2, 3, 4}});
  EXPECT_EQ(solve({"--eps", "0.1"}).code, 0);
  EXPECT_EQ(report()["problem"]["d"], 1);
}

TEST_F(SolveProgram, EpsIs5PercentOfTheMeanCostByDefault) {
  EXPECT_EQ(solve({}).code, 0);
  EXPECT_DOUBLE_EQ(report()["eps_relative"], 0.05);
  EXPECT_EQ(report()["options"]["eps_relative"], 0.05);
  EXPECT_TRUE(report()["options"]["eps"].is_null());
  Array const f = read_array("f", path("result/f.npy"));
  for (auto const name : {"--eps_relative=0.05", "--eps-relative=0.05"}) {
    EXPECT_EQ(solve({name}).code, 0);
    EXPECT_EQ(read_array("f", path("result/f.npy")).values, f.values) << name;
  }
}

TEST_F(SolveProgram, ARelativeEpsIsAShareOfTheMeanCost) {
  Outcome const outcome = solve({"--eps-relative", "0.1", "--tolerance", "0", "--iterations", "20"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("(0.1 of the mean cost "));
  json const relative = report();
  double const eps = relative["eps"], mean_cost = relative["mean_cost"];
  EXPECT_DOUBLE_EQ(eps, 0.1 * mean_cost);
  EXPECT_DOUBLE_EQ(relative["eps_relative"], 0.1);
  EXPECT_EQ(relative["options"]["eps_relative"], 0.1);
  Array const f = read_array("f", path("result/f.npy"));

  EXPECT_EQ(solve({"--eps", json(eps).dump(), "--tolerance", "0", "--iterations", "20"}).code, 0);
  EXPECT_EQ(report()["eps"], eps);
  EXPECT_DOUBLE_EQ(report()["eps_relative"], 0.1);
  EXPECT_EQ(read_array("f", path("result/f.npy")).values, f.values);
}

// All outputs of a plan that lacks pairs, beside those of one that has all.
TEST_F(SolveProgram, LeavesPairsOut) {
  std::int64_t const n = 2300, m = 2100;
  points("x.npy", n, 2, 1);
  points("y.npy", m, 2, 2);
  std::vector<double> values[2][4];
  for (int const all : {0, 1}) {
    Outcome const outcome =
        solve({"--eps", "0.0025", "--method", all == 1 ? "newton" : "multiscale", "--gradients", "--hvp", path("x.npy"),
               "--top-k", "2", "--sample", "500", "--threshold", "1e-6", "--plan"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out.find("left out        at most ") != std::string::npos, all == 0) << outcome.out;
    EXPECT_EQ(report()["left_out"] > 0, all == 0);
    EXPECT_EQ(report()["left_out_of_row"] > 0, all == 0);
    int k = 0;
    for (auto const name : {"plan.npy", "topk_values.npy", "grad_x.npy", "hvp.npy"})
      values[all][k++] = numbers("result/" + std::string(name));
  }
  // Plans of errors of 1e-6; rows have 1 / n of the mass.
  for (int k = 0; k < 4; ++k) {
    ASSERT_EQ(values[0][k].size(), values[1][k].size());
    for (std::size_t e = 0; e < values[0][k].size(); ++e)
      ASSERT_NEAR(values[0][k][e], values[1][k][e], 2e-3 / n) << k << ", " << e;
  }
  ASSERT_EQ(solve({"--eps", "0.0025", "--method", "multiscale", "--sample", "500", "--plan"}).code, 0);
  std::vector<double> const plan = numbers("result/plan.npy");
  std::vector<std::int64_t> const pairs = indices("result/pairs.npy", "(500, 2)");
  for (std::size_t k = 0; k < pairs.size(); k += 2) EXPECT_GT(plan[pairs[k] * m + pairs[k + 1]], 0);
}

TEST_F(SolveProgram, WritesDerivatives) {
  Array const x = read_array("x", path("x.npy"));
  std::int64_t const n = x.rows(), d = x.columns();
  std::vector<double> direction(n * d);
  for (std::int64_t k = 0; k < n * d; k += d) direction[k] = 1;
  write_array(path("v.npy"), {{n, d}, direction});
  Outcome const outcome = solve({"--eps", "0.1", "--gradients", "--hvp", path("v.npy"), "--precision", "float64"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  auto const by_x = numbers("result/grad_x.npy"), by_y = numbers("result/grad_y.npy");
  auto const product = numbers("result/hvp.npy");
  ASSERT_EQ(std::ssize(by_x), n * d);
  EXPECT_EQ(std::ssize(numbers("result/grad_a.npy")), n);
  EXPECT_EQ(std::ssize(numbers("result/grad_b.npy")), 30);
  // Moving both clouds changes nothing, and moving all of x by one adds twice its weight to the gradient by a point.
  double sum = 0;
  for (double const value : by_x) sum += value;
  for (double const value : by_y) sum += value;
  EXPECT_NEAR(sum, 0, 1e-10);
  for (std::int64_t k = 0; k < n * d; ++k) EXPECT_NEAR(product[k], k % d == 0 ? 2.0 / n : 0.0, 1e-5) << k;
  EXPECT_EQ(report()["hvp"]["status"], "converged");
  EXPECT_LE(report()["hvp"]["residual"], 1e-6);
  EXPECT_GT(report()["hvp"]["iterations"], 0);
  EXPECT_GT(report()["gradients"]["scale"], 0);
  EXPECT_LT(report()["gradients"]["distance"], 1e-4);
  EXPECT_EQ(report()["problem"]["files"]["hvp"], path("v.npy"));
  ASSERT_EQ(solve({"--eps", "0.1"}).code, 0);
  for (auto const name : {"grad_x.npy", "grad_y.npy", "grad_a.npy", "grad_b.npy", "hvp.npy"})
    EXPECT_FALSE(fs::exists(path("result") / fs::path(name))) << name;

  fs::remove_all(path("result"));
  write_array(path("v.npy"), {{d, n}, direction});
  expect_refused(solve({"--eps", "0.1", "--hvp", path("v.npy")}), "hvp: is ");
  direction[1] = std::nan("");
  write_array(path("v.npy"), {{n, d}, direction});
  expect_refused(solve({"--eps", "0.1", "--hvp", path("v.npy")}), "hvp: row 0, column 1 is nan");
  EXPECT_FALSE(fs::exists(path("result")));
}

TEST_F(SolveProgram, AHessianProductThatFallsShortIsCode3WithResults) {
  Array const x = read_array("x", path("x.npy"));
  std::vector<double> direction(x.rows() * x.columns());
  for (std::size_t k = 0; k < direction.size(); ++k) direction[k] = std::sin(static_cast<double>(k));
  write_array(path("v.npy"), {{x.rows(), x.columns()}, direction});
  std::vector<std::string> const hvp{"--eps", "0.01", "--hvp", path("v.npy"), "--precision", "float64"};
  auto const with = [&](std::vector<std::string> const& more) {
    std::vector<std::string> all = hvp;
    all.insert(all.end(), more.begin(), more.end());
    return solve(all);
  };
  Outcome const outcome = with({"--hvp-iterations", "1"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("iteration_limit after 1 steps"));
  EXPECT_EQ(report()["status"], "converged");
  EXPECT_EQ(report()["hvp"]["status"], "iteration_limit");
  EXPECT_EQ(report()["options"]["hvp_iterations"], 1);
  EXPECT_EQ(std::ssize(numbers("result/hvp.npy")), std::ssize(direction));

  EXPECT_EQ(with({"--hvp-tolerance", "1e-11"}).code, 0);
  EXPECT_LE(report()["hvp"]["residual"], 1e-11);
  int const steps = report()["hvp"]["iterations"];
  EXPECT_EQ(with({"--hvp-tolerance", "1e-11", "--hvp-damping", "1"}).code, 0);
  EXPECT_LT(report()["hvp"]["iterations"], steps) << "damping brings eigenvalues together";
  fs::remove_all(path("result"));
  expect_refused(with({"--hvp-damping", "-1"}), "hvp_damping: is -1");
  expect_refused(solve({"--eps", "0.1", "--hvp-tolerance", "1"}), "hvp_tolerance: is 1; is for hvp");
}

TEST_F(SolveProgram, EveryCostOfPointsHasDerivatives) {
  for (auto const name : {"cosine", "euclidean", "p-norm"}) {
    SCOPED_TRACE(name);
    ASSERT_EQ(solve({"--eps", "0.5", "--cost-function", name, "--gradients", "--hvp", path("x.npy")}).code, 0);
    EXPECT_EQ(std::ssize(numbers("result/grad_a.npy")), 40);
    EXPECT_EQ(std::ssize(numbers("result/grad_b.npy")), 30);
    EXPECT_EQ(numbers("result/grad_x.npy").size(), numbers("x.npy").size());
    EXPECT_EQ(numbers("result/grad_y.npy").size(), numbers("y.npy").size());
    EXPECT_TRUE(report()["gradients"]["distance"].is_number());
    EXPECT_EQ(report()["hvp"]["status"], "converged");
    EXPECT_EQ(numbers("result/hvp.npy").size(), numbers("x.npy").size());
    fs::remove_all(path("result"));
  }
  file("C.csv", "1,2\n3,4\n");  // Refused before a file is read.
  expect_refused(solve_costs(path("C.csv"), {"--eps", "1", "--hvp", path("none.npy")}), "hvp: is given with cost");
  EXPECT_FALSE(fs::exists(path("result")));
}

TEST_F(SolveProgram, PenaltiesAllowOtherMasses) {
  std::string ones, twos;
  for (int i = 0; i < 40; ++i) ones += "1\n";
  for (int j = 0; j < 30; ++j) twos += "2\n";
  Outcome const outcome = solve({"--eps", "0.05", "--a", file("a.csv", ones), "--b", file("b.csv", twos), "--penalty-a",
                                 "0.5", "--penalty-b", "inf"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("transported, of"));
  json const written = report();
  EXPECT_EQ(written["penalty_a"], 0.5);
  EXPECT_TRUE(written["penalty_b"].is_null()) << "infinite";
  EXPECT_EQ(written["mass_b"], 60);
  EXPECT_NEAR(written["transported_mass"].get<double>(), 60, 1e-4);
}

TEST_F(SolveProgram, FilesOfAnEarlierSolveGo) {
  ASSERT_EQ(solve({"--eps", "0.1", "--top-k", "3"}).code, 0);
  file("result/mine.txt", "stays");
  ASSERT_TRUE(std::filesystem::exists(path("result/topk_values.npy")));
  ASSERT_EQ(solve({"--eps", "0.1"}).code, 0);
  EXPECT_FALSE(std::filesystem::exists(path("result/topk_values.npy")));
  EXPECT_FALSE(std::filesystem::exists(path("result/topk_indices.npy")));
  EXPECT_TRUE(std::filesystem::exists(path("result/map.npy")));
  EXPECT_TRUE(std::filesystem::exists(path("result/mine.txt")));
}

TEST_F(SolveProgram, ACostMatrixOfSquaredDistancesIsThePoints) {
  // Both from f = g = 0 of these costs: a cold start depends on how each geometry centres them.
  write_array(path("f.npy"), {{40}, std::vector<double>(40)});
  write_array(path("g.npy"), {{30}, std::vector<double>(30)});
  std::vector<std::string> const options{
      "--eps",        "0.05", "--precision", "float64",     "--schedule", "alternating", "--tolerance", "0",
      "--iterations", "30",   "--f",         path("f.npy"), "--g",        path("g.npy"), "--top-k",     "5"};
  ASSERT_EQ(solve(options).code, 0);
  auto const best = indices("result/topk_indices.npy", "(40, 5)");
  auto const f = numbers("result/f.npy"), g = numbers("result/g.npy"), map = numbers("result/map.npy");
  double const cost = report()["transport_cost"];

  std::vector<double> const costs = squared_distances();
  write_array(path("C.npy"), {{40, 30}, costs});
  std::vector<double> by_columns(costs.size());
  for (std::size_t i = 0; i < 40; ++i) {
    for (std::size_t j = 0; j < 30; ++j) by_columns[j * 40 + i] = costs[i * 30 + j];
  }
  write_array(path("rows.npy"), {{30, 40}, by_columns});
  std::string bytes = contents(path("rows.npy"));
  std::string const rows = "False, 'shape': (30, 40)", columns = "True,  'shape': (40, 30)";
  bytes.replace(bytes.find(rows), rows.size(), columns);
  file("fortran.npy", bytes);

  for (auto const name : {"C.npy", "fortran.npy"}) {
    SCOPED_TRACE(name);
    auto with = options;
    with.insert(with.end(), {"--values", path("y.npy")});
    Outcome const outcome = solve_costs(path(name), with);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("40 x 30 costs, eps 0.05"));
    // Float64: a half-step is off by about 10 times 2^-53 of the largest cost, 3, and there are 60; entries of the plan
    // are off by as much of themselves, divided by eps.
    EXPECT_THAT(numbers("result/f.npy"), Pointwise(testing::DoubleNear(2e-13), f));
    EXPECT_THAT(numbers("result/g.npy"), Pointwise(testing::DoubleNear(2e-13), g));
    EXPECT_THAT(numbers("result/map.npy"), Pointwise(testing::DoubleNear(1e-11), map));
    EXPECT_NEAR(report()["transport_cost"], cost, 1e-11);
    EXPECT_EQ(indices("result/topk_indices.npy", "(40, 5)"), best);
    EXPECT_TRUE(report()["problem"]["d"].is_null());
    EXPECT_EQ(report()["problem"]["m"], 30);
  }
  fs::remove_all(path("result"));
  EXPECT_EQ(solve_costs(path("C.npy"), options).code, 0);
  EXPECT_FALSE(fs::exists(path("result/map.npy"))) << "there is nothing to average";
}

TEST_F(SolveProgram, BadCostsAreCode2) {
  std::vector<double> costs = squared_distances();
  auto const with = [&](std::vector<double> const& values, std::vector<std::string> const& more = {"--eps", "0.1"}) {
    write_array(path("C.npy"), {{40, 30}, values});
    return solve_costs(path("C.npy"), more);
  };
  expect_refused(with(costs, {"--eps", "1", "--scale", "2"}), "scale: is 2; is for points");
  expect_refused(with(costs, {"--eps", "1", "--a", file("a.csv", "1\n")}),
                 "a: has 1 entries; must have 40, one for each row of C");
  costs[3 * 30 + 1] = NAN;
  expect_refused(with(costs), "row 3, column 1 is nan");
  costs[3 * 30 + 1] = -INFINITY;
  expect_refused(with(costs), "row 3, column 1 is -inf");
  std::fill(costs.begin() + 90, costs.begin() + 120, INFINITY);
  expect_refused(with(costs), "cost: row 3 has weight ");
  costs.assign(costs.size(), -1);
  expect_refused(with(costs, {"--eps-relative", "0.1"}), "eps_relative: is 0.1, of a mean cost of -1");
  expect_refused(with(costs, {}), "eps_relative: is 0.05, of a mean cost of -1");
  write_array(path("line.npy"), {{30}, std::vector<double>(30)});
  expect_refused(solve_costs(path("line.npy"), {"--eps", "1"}), "cost: has shape 30; must be 2-D");
  write_array(path("half.npy"), {{1, 2}, std::vector<Half>(2)});
  expect_refused(solve_costs(path("half.npy"), {"--eps", "1"}), "cost: is float16; must be float32 or float64");
}

class SolveLabels : public SolveProgram {
 protected:
  SolveLabels() {
    write_array(path("lx.npy"), IndexArray{{40}, labels(40, 3)});
    write_array(path("ly.npy"), IndexArray{{30}, labels(30, 2)});
    write_array(path("W.npy"), Array{{3, 2}, std::vector<double>{0, 1, 2, 3, 1, 0}});
  }
  static std::vector<std::int64_t> labels(std::int64_t size, std::int64_t classes) {
    std::vector<std::int64_t> result;
    for (std::int64_t i = 0; i < size; ++i) result.push_back(i % classes);
    return result;
  }
  /// The labels as told, the other arguments those of a solve that converges.
  Outcome solve_labels(std::string const& x, std::string const& y, std::string const& cost,
                       std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--eps", "0.1", "--precision", "float64", "--tolerance", "1e-10"});
    for (auto const& [flag, name] : {std::pair("--labels-x", x), {"--labels-y", y}, {"--label-cost", cost}}) {
      if (!name.empty()) more.insert(more.end(), {flag, path(name)});
    }
    return solve(more);
  }
};

TEST_F(SolveLabels, LeavePairsOut) {
  std::int64_t const n = 2300, m = 2100;
  points("x.npy", n, 2, 1);
  points("y.npy", m, 2, 2);
  write_array(path("lx.npy"), IndexArray{{n}, labels(n, 3)});
  write_array(path("ly.npy"), IndexArray{{m}, labels(m, 2)});
  std::vector<double> plan[2];
  for (int const all : {0, 1}) {
    Outcome const outcome =
        solve({"--eps", "0.0025", "--method", all == 1 ? "newton" : "multiscale", "--plan", "--labels-x",
               path("lx.npy"), "--labels-y", path("ly.npy"), "--label-cost", path("W.npy"), "--label-weight", "0.05"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(report()["left_out"] > 0, all == 0);
    plan[all] = numbers("result/plan.npy");
  }
  // Plans of errors of 1e-6; rows have 1 / n of the mass.
  for (std::size_t e = 0; e < plan[0].size(); ++e) ASSERT_NEAR(plan[0][e], plan[1][e], 2e-3 / n) << e;
}

TEST_F(SolveLabels, CostWhatTheTableSays) {
  Outcome const outcome = solve_labels("lx.npy", "ly.npy", "W.npy", {"--label-weight", "0.5", "--scale", "2"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<double> const f = numbers("result/f.npy"), g = numbers("result/g.npy"), squares = squared_distances();
  std::vector<double> const table{0, 1, 2, 3, 1, 0};
  double error = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    double row = -1.0 / 40;
    for (std::size_t j = 0; j < 30; ++j) {
      double const cost = 2 * squares[i * 30 + j] + 0.5 * table[i % 3 * 2 + j % 2];
      row += std::exp((f[i] + g[j] - cost) / 0.1) / (40 * 30);
    }
    error += std::abs(row);
  }
  EXPECT_LT(error, 1e-9);
  json const options = report()["options"];
  EXPECT_EQ(options["label_weight"], 0.5);
  EXPECT_EQ(options["scale"], 2);
  EXPECT_EQ(options["cost_function"], "sqeuclidean");
  EXPECT_TRUE(options["norm_p"].is_null());
  EXPECT_EQ(report()["problem"]["files"]["labels_x"], path("lx.npy"));
  EXPECT_EQ(numbers("result/map.npy").size(), 40u * 3);

  std::vector<double> const before = f;
  file("lx.csv", [] {
    std::string text;
    for (int i = 0; i < 40; ++i) text += fmt::format("{}\n", i % 3);
    return text;
  }());
  EXPECT_EQ(solve_labels("lx.csv", "ly.npy", "W.npy", {"--label-weight", "0.5", "--scale", "2"}).code, 0);
  EXPECT_EQ(numbers("result/f.npy"), before);
}

TEST_F(SolveLabels, ThatAreBadAreCode2) {
  expect_refused(solve_labels("lx.npy", "ly.npy", ""), "label_cost: is missing; labels need");
  expect_refused(solve_labels("lx.npy", "", "W.npy"), "labels_y: is missing; labels need");
  expect_refused(solve_labels("", "", "W.npy"), "labels_x: is missing; labels need");
  expect_refused(solve_labels("ly.npy", "ly.npy", "W.npy"), "labels_x: has 30 entries; must have 40");
  write_array(path("beyond.npy"), IndexArray{{30}, labels(30, 3)});
  expect_refused(solve_labels("lx.npy", "beyond.npy", "W.npy"), "labels_y: point 2 has label 2; must be in [0, 2)");
  write_array(path("nan.npy"), Array{{3, 2}, std::vector<double>{0, 1, 2, NAN, 1, 0}});
  expect_refused(solve_labels("lx.npy", "ly.npy", "nan.npy"), "label_cost: row 1, column 1 is nan; must be finite");
  write_array(path("line.npy"), Array{{6}, std::vector<double>(6)});
  expect_refused(solve_labels("lx.npy", "ly.npy", "line.npy"), "label_cost: has shape 6; must be 2-D");
  expect_refused(solve_labels("W.npy", "ly.npy", "W.npy"), "has dtype '<f8'; must be whole numbers");
  file("half.csv", "0.5\n");
  expect_refused(solve_labels("half.csv", "ly.npy", "W.npy"), "row 0, column 0 is 0.5; must be a whole number");
  expect_refused(solve({"--eps", "1", "--label-weight", "2"}), "label_weight: is 2; is for labels");
  write_array(path("C.npy"), Array{{40, 30}, squared_distances()});
  expect_refused(solve_costs(path("C.npy"), {"--eps", "1", "--labels-x", path("lx.npy")}), "labels_x: is ");
  expect_refused(solve_costs(path("C.npy"), {"--eps", "1", "--cost-function", "dot"}), "cost_function: is dot; is for");
}

TEST_F(SolveProgram, TakesOtherCostFunctions) {
  for (std::string const name : {"euclidean", "cosine", "dot", "p-norm"}) {
    Outcome const outcome = solve({"--eps", "0.1", "--cost-function", name});
    EXPECT_EQ(outcome.code, 0) << name << outcome.err;
    EXPECT_EQ(report()["options"]["cost_function"], name);
    EXPECT_EQ(report()["options"]["norm_p"].is_null(), name != "p-norm");
  }
  EXPECT_EQ(solve({"--eps", "0.1", "--cost-function", "p-norm", "--norm-p", "inf"}).code, 0);
  EXPECT_EQ(solve({"--eps-relative", "0.1", "--cost-function", "euclidean"}).code, 0);
  EXPECT_DOUBLE_EQ(report()["eps_relative"].get<double>(), 0.1);
  fs::remove_all(path("result"));
  expect_refused(solve({"--eps", "0.1", "--cost-function", "manhattan"}),
                 "cost_function: is 'manhattan'; must be sqeuclidean, euclidean, cosine, dot or p-norm");
  expect_refused(solve({"--eps", "0.1", "--norm-p", "3"}), "norm_p: is 3; is for the cost function p-norm");
  expect_refused(solve({"--eps", "0.1", "--cost-function", "p-norm", "--norm-p", "0.9"}),
                 "norm_p: is 0.9; must be >= 1");
  file("zero.csv", "0 0 0\n1 2 3\n");
  expect_refused(run({"solve", path("zero.csv"), path("y.npy"), "--out", path("result"), "--device", "cpu", "--eps",
                      "1", "--cost-function", "cosine"}),
                 "x: row 0 has length 0; must be positive for the cost function cosine");
}

TEST_F(SolveProgram, WritesEntriesOfThePlan) {
  std::vector<std::string> const options{"--eps",    "0.05", "--precision", "float64", "--top-k",     "4",
                                         "--sample", "500",  "--seed",      "7",       "--threshold", "0.002"};
  Outcome const outcome = solve(options);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("map.npy, topk_indices.npy, topk_values.npy, plan_indptr.npy, plan_indices.npy, "
                                     "plan_values.npy, pairs.npy, report.json"));
  EXPECT_EQ(report()["options"]["top_k"], 4);
  std::vector<double> const f = numbers("result/f.npy"), g = numbers("result/g.npy"), costs = squared_distances();
  std::vector<double> plan(40 * 30);
  for (std::size_t i = 0; i < 40; ++i) {
    for (std::size_t j = 0; j < 30; ++j)
      plan[i * 30 + j] = std::exp((f[i] + g[j] - costs[i * 30 + j]) / 0.05) / (40 * 30);
  }

  // An exponent of at most 100 is off by a few 2^-53 of itself.
  auto const near = [](double value, double expected) { EXPECT_NEAR(value, expected, 1e-12 * expected); };
  auto const best = indices("result/topk_indices.npy", "(40, 4)");
  auto const best_values = numbers("result/topk_values.npy");
  auto const row_begin = indices("result/plan_indptr.npy", "(41,)");
  auto const columns = indices("result/plan_indices.npy", fmt::format("({},)", row_begin.back()));
  auto const values = numbers("result/plan_values.npy");
  ASSERT_EQ(best_values.size(), 160u);
  ASSERT_EQ(values.size(), columns.size());
  std::size_t above = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    std::vector<std::int64_t> order(30);
    std::iota(order.begin(), order.end(), 0);
    auto const row = plan.begin() + static_cast<std::ptrdiff_t>(i * 30);
    std::sort(order.begin(), order.end(), [&](std::int64_t j, std::int64_t k) { return row[j] > row[k]; });
    for (std::size_t k = 0; k < 4; ++k) {
      EXPECT_EQ(best[i * 4 + k], order[k]);
      near(best_values[i * 4 + k], row[order[k]]);
    }
    EXPECT_EQ(row_begin[i], static_cast<std::int64_t>(above));
    for (std::int64_t j = 0; j < 30; ++j) {
      if (row[j] <= 0.002) continue;
      ASSERT_LT(above, columns.size());
      EXPECT_EQ(columns[above], j);
      near(values[above++], row[j]);
    }
  }
  EXPECT_EQ(above, columns.size());

  auto const pairs = indices("result/pairs.npy", "(500, 2)");
  for (std::size_t k = 0; k < pairs.size(); k += 2) {
    ASSERT_TRUE(0 <= pairs[k] && pairs[k] < 40 && 0 <= pairs[k + 1] && pairs[k + 1] < 30);
    EXPECT_GT(plan[static_cast<std::size_t>(pairs[k] * 30 + pairs[k + 1])], 1e-9) << "an unlikely pair";
  }
  solve({"--eps", "0.05", "--precision", "float64", "--sample", "500", "--seed", "7"});
  EXPECT_EQ(indices("result/pairs.npy", "(500, 2)"), pairs);
  solve({"--eps", "0.05", "--precision", "float64", "--sample", "500"});
  EXPECT_NE(indices("result/pairs.npy", "(500, 2)"), pairs) << "another seed";
}

TEST_F(SolveProgram, OutputThatCannotBeWrittenIsCode2) {
  std::string const arguments[] = {
      "info", "info --json", "--help", "--version",
      fmt::format("solve {} {} --eps 1 --json --out {}", path("x.npy"), path("y.npy"), path("result"))};
  for (std::string const& each : arguments) {
    int const status = std::system(fmt::format("'{}' {} > /dev/full 2> {}", MONGE_PROGRAM, each, path("err")).c_str());
    EXPECT_EQ(WEXITSTATUS(status), 2) << each;
    EXPECT_THAT(contents(path("err")), StartsWith("monge: error: ")) << each;
    EXPECT_THAT(contents(path("err")), HasSubstr("No space left on device")) << each;
  }
}

TEST_F(SolveProgram, AFileThatDoesNotFitLosesNothingElse) {
  points("x.npy", 60, 2, 1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = 8192;
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);  // Writing then fails, as on a full disk.
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limited), 0);
  Outcome const outcome = run({"solve", path("x.npy"), path("x.npy"), "--eps", "1", "--plan", "--out", path("result")});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("error: " + path("result/plan.npy") + ": writing failed: File too large; all other"));
  for (auto const* file : {"f.npy", "g.npy", "map.npy", "report.json"})
    EXPECT_TRUE(fs::exists(path("result") / fs::path(file)));
  EXPECT_FALSE(fs::exists(path("result/plan.npy")));
}

TEST_F(SolveProgram, WholeNumbersOfNumPyAreRead) {
  auto const write = [&](char const* name, std::string const& descr, std::vector<char> const& bytes) {
    std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (3, 2), }";
    header.resize(117, ' ');
    file(name, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" + std::string(bytes.begin(), bytes.end()));
  };
  write("x.npy", "|u1", {0, 1, 2, 3, 4, 5});
  write("y.npy", "|i1", {0, 1, 2, 3, 4, -5});
  file("x.csv", "0,1\n2,3\n4,5\n");
  file("y.csv", "0,1\n2,3\n4,-5\n");
  std::string potentials[2];
  for (std::string const extension : {"npy", "csv"}) {
    Outcome const outcome = run({"solve", path("x." + extension), path("y." + extension), "--eps", "1", "--out",
                                 path("result"), "--device", "cpu"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    potentials[extension == "csv"] = contents(path("result/f.npy"));
  }
  EXPECT_EQ(potentials[0], potentials[1]);
}

// A sanitizer reserves more addresses than the limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(SolveProgram, EntriesThatDoNotFitLoseNothingElse) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit limited = before;
  limited.rlim_cur = rlim_t{8} << 30;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limited), 0);
  // 2e9 pairs take 32 GB.
  Outcome const outcome = solve({"--eps", "1", "--sample", "2000000000"});
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("monge: error: memory: ran out for the entries of the plan; all other results"));
  EXPECT_THAT(outcome.out, HasSubstr("f.npy, g.npy, map.npy, report.json"));
  for (auto const* file : {"f.npy", "g.npy", "map.npy", "report.json"})
    EXPECT_TRUE(fs::exists(path("result") / fs::path(file)));
  EXPECT_FALSE(fs::exists(path("result/pairs.npy")));
  EXPECT_EQ(report()["status"], "converged");
}
#endif

TEST_F(SolveProgram, TheMapCanBeOfAnyValues) {
  std::vector<std::string> const options{"--eps", "0.05", "--precision", "float64"};
  ASSERT_EQ(solve(options).code, 0);
  auto const of_y = std::get<std::vector<double>>(read_array("map", path("result/map.npy")).values);
  auto with = options;
  with.insert(with.end(), {"--values", path("y.npy")});
  ASSERT_EQ(solve(with).code, 0);
  Array const map = read_array("map", path("result/map.npy"));
  EXPECT_THAT(map.shape, ElementsAre(40, 3));
  // Averages of numbers in [0, 1]; those of points are taken around their centre.
  EXPECT_THAT(std::get<std::vector<double>>(map.values), Pointwise(testing::DoubleNear(1e-14), of_y));

  write_array(path("v.npy"), {{30}, std::vector<float>(30, 0.5f)});
  with.back() = path("v.npy");
  ASSERT_EQ(solve(with).code, 0);
  Array const constant = read_array("map", path("result/map.npy"));
  EXPECT_THAT(constant.shape, ElementsAre(40));
  EXPECT_EQ(std::get<std::vector<float>>(constant.values), std::vector<float>(40, 0.5f));
}

TEST_F(SolveProgram, BadValuesAreCode2) {
  auto const with = [&](std::vector<std::int64_t> const& shape, auto const& values) {
    write_array(path("v.npy"), {shape, values});
    return solve({"--eps", "0.1", "--values", path("v.npy")});
  };
  expect_refused(with({29, 1}, std::vector<double>(29)), "values: has 29 rows; must have 30, one for each column");
  expect_refused(with({30, 1, 1}, std::vector<double>(30)), "values: has shape 30 x 1 x 1");
  expect_refused(with({30, 1}, std::vector<Half>(30)), "values: is float16; must be float32 or float64");
  std::vector<double> values(60);
  values[7] = NAN;
  expect_refused(with({30, 2}, values), "values: row 3, column 1 is nan; must be finite");
}

TEST_F(SolveProgram, WrongUseIsCode2) {
  expect_refused(run({}), "subcommand");
  expect_refused(run({"--colour"}), "--colour: is no option of monge; see monge --help");
  std::string const before = "is before the command; options come after it: monge solve ";
  expect_refused(run({"--eps", ".1", "solve", "x.npy", "y.npy"}), "--eps: " + before + "--eps .1 x.npy y.npy");
  expect_refused(run({"--eps=.1", "solve", "x.npy", "y.npy"}), "--eps: " + before + "--eps=.1 x.npy y.npy");
  expect_refused(run({"--device"}), "--device: " + before + "--device");
  expect_refused(run({"--epsi", "3", "solve"}), "--epsi: is no option of monge solve; did you mean --eps?");
  std::string const commands =
      "; commands are solve, exact, gromov, assign, regularized, divergence, transform, project, info";
  expect_refused(run({"help"}), "help: is no command of monge; see monge --help" + commands);
  expect_refused(run({"sovle", path("x.npy")}),
                 "sovle: is no command of monge; did you mean solve? See monge --help" + commands);
  expect_refused(run({"solve"}), "required");
  expect_refused(run({"solve", "--eps", "1", "--out", path("result")}), "x: is missing; must be points, x and y");
  expect_refused(run({"solve", path("x.npy"), "--eps", "1", "--out", path("result")}), "y: is missing");
  expect_refused(solve({"--eps", "0.1", "--color", "red"}), "--color: is no option of monge solve; see monge solve");
  expect_refused(solve({"--eps-relativ=0.1"}), "--eps-relativ: is no option of monge solve; did you mean --eps-relat");
  expect_refused(run({"solve", path("x.npy"), path("y.npy"), "--outt", "r"}), "did you mean --out? See monge");
  for (auto const& [theirs, ours] : {std::pair("--epsilon", "--eps"),
                                     {"--reg", "--eps"},
                                     {"--tol", "--tolerance"},
                                     {"--metric", "--cost-function"},
                                     {"--max-iter", "--iterations"}})
    expect_refused(solve({theirs, "1"}),
                   fmt::format("{}: is no option of monge solve; did you mean {}?", theirs, ours));
  expect_refused(run({"exact", path("x.npy"), path("y.npy"), "--max-iter", "9"}), "did you mean --rounds? See monge");
  expect_refused(solve({"--method", "newtn"}), "method: is 'newtn'; did you mean newton? Must be auto, sinkhorn, ");
  expect_refused(solve({"--cost-function", "cosin"}), "cost_function: is 'cosin'; did you mean cosine? Must be ");
  expect_refused(solve({"--eps", "abc"}), "eps: is 'abc'; must be a number, > 0");
  expect_refused(solve({"--eps", "0"}), "eps: is 0; must be > 0");
  expect_refused(solve({"--eps_relative", "0"}), "eps_relative: is 0; must be finite and > 0");
  expect_refused(solve({"--eps", "1", "--eps-relative", "0.05"}), "--eps excludes --eps-relative");
  expect_refused(solve({"--eps-relative", "-1"}), "eps_relative: is -1; must be finite and > 0");
  expect_refused(solve({"--eps-relative", "abc"}), "eps_relative: is 'abc'; must be a number, > 0");
  expect_refused(solve({"--eps", "-1"}), "eps: is -1");
  expect_refused(solve({"--eps", "nan"}), "eps: is nan");
  expect_refused(solve({"--eps", "0.1", "--tolerance", "-1"}), "tolerance: is -1");
  expect_refused(solve({"--eps", "0.1", "--iterations", "0"}), "iterations: is 0");
  expect_refused(solve({"--eps", "0.1", "--iterations", "1.5"}), "iterations: is '1.5'");
  expect_refused(solve({"--eps", "0.1", "--penalty-a", "-2"}), "penalty_a: is -2; must be > 0");
  expect_refused(solve({"--eps", "0.1", "--penalty-b", "0"}), "penalty_b: is 0; must be > 0");
  expect_refused(solve({"--eps", "0.1", "--annealing", "2"}), "annealing: is 2");
  expect_refused(solve({"--eps", "0.1", "--scale", "0"}), "scale: is 0");
  expect_refused(solve({"--eps", "0.1", "--threads", "-1"}), "threads: is -1");
  expect_refused(solve({"--eps", "0.1", "--schedule", "fast"}), "schedule: is 'fast'; must be overrelaxed");
  expect_refused(solve({"--eps", "0.1", "--precision", "tf32"}), "precision: is tf32");
  auto const with = [&](std::string const& option, std::string const& value) {
    return solve({"--eps", "0.1", option, value});
  };
  expect_refused(with("--cost", path("x.npy")), "must not be given with points");
  expect_refused(with("--cost", "sqeuclidean"), "x is " + path("x.npy") + "; cost_function is for points");
  expect_refused(with("--top-k", "0"), "top_k: is 0; must be >= 1");
  expect_refused(with("--top-k", "31"), "top_k: is 31; must be at most 30, the columns of the plan");
  expect_refused(with("--top-k", "2.5"), "top_k: is '2.5'; must be a whole number up to 2147483647, >= 1");
  expect_refused(with("--iterations", "3000000000"), "must be a whole number up to 2147483647, >= 1");
  expect_refused(with("--sample", "-1"), "sample: is -1; must be >= 1");
  expect_refused(with("--threshold", "-0.1"), "threshold: is -0.1; must be finite and >= 0");
  expect_refused(with("--threshold", "inf"), "threshold: is inf; must be finite and >= 0");
  expect_refused(with("--threshold", "nan"), "threshold: is nan");
  expect_refused(with("--seed", "7"), "seed: is 7; is for sample");
  expect_refused(with("--checkpoint-every", "5"), "checkpoint_every: is 5; is for checkpoint");
  expect_refused(with("--checkpoint-every", "0"), "checkpoint_every: is 0; must be >= 1");
  expect_refused(with("--checkpoint", "/proc/monge"), "checkpoint: /proc/monge: ");
  expect_refused(solve({"--eps", "0.1", "--sample", "5", "--seed", "-1"}), "seed: is '-1'; must be a whole number");
  std::vector<std::string> const files{"solve", path("x.npy"), path("y.npy"), "--out", path("result"), "--eps", "1"};
  for (std::string const device : {"gpu", "cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:99999"}) {
    std::vector<std::string> arguments = files;
    arguments.insert(arguments.end(), {"--device", device});
    expect_refused(run(arguments), "device: is ");
  }
}

TEST_F(SolveProgram, BadInputIsCode2) {
  auto const with = [&](std::string const& x, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"solve",        x,          path("y.npy"), "--eps", "0.1", "--out",
                                       path("result"), "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  std::string const x = path("x.npy"), whole = contents(x);
  expect_refused(with(path("none.npy")), "none.npy: cannot be opened: No such file or directory");
  expect_refused(with(file("x.jpg", "")), "has the extension '.jpg'; must be .npy, .csv, .tsv or .txt");
  expect_refused(with(file("short.npy", whole.substr(0, whole.size() - 1))), "is truncated");
  expect_refused(with(file("ragged.csv", "1,2,3\n4,5\n")), "line 2 has 2 columns");
  expect_refused(with(file("nan.csv", "1,2,3\n4,nan,6\n")), "x: ");
  expect_refused(with(file("flat.csv", "1,2\n3,4\n")), "y: has 3 columns; must have 2");
  write_array(path("empty.npy"), {{0, 3}, std::vector<double>{}});
  expect_refused(with(path("empty.npy")), "x: is 0 x 3");
  fs::create_directory(path("folder.npy"));
  expect_refused(with(path("folder.npy")), "is a folder; must be a file");

  std::string absurd = whole;
  absurd.replace(absurd.find("(40, 3)"), 7, "(4000000000000, 3)");
  absurd.erase(absurd.find("   "), 11);
  expect_refused(with(file("absurd.npy", absurd)), "is truncated: its shape 4000000000000 x 3");

  auto const weights = [&](std::string const& text) { return with(x, {"--a", file("a.csv", text)}); };
  std::string ones, zeros, wide = "1";
  for (int i = 0; i < 40; ++i) ones += "1\n", zeros += "0\n";
  for (int i = 1; i < 40; ++i) wide += ",1";
  expect_refused(weights("1\n2\n"), "a: has 2 entries; must have 40, one for each row of x");
  expect_refused(weights(zeros), "a: the total is 0");
  expect_refused(weights("-1\n" + ones.substr(2)), "a: entry 0 is -1");
  expect_refused(weights(wide), "a: has shape 1 x 40; must be 1-D, or n x 1");
  file("a.csv", ones);
  std::string unequal;
  for (int i = 0; i < 30; ++i) unequal += "1\n";
  expect_refused(with(x, {"--a", path("a.csv"), "--b", file("b.csv", unequal)}), "total");
  expect_refused(with(x, {"--f", path("a.csv")}), "needs both f and g");
}

TEST_F(SolveProgram, ResultsGoOnlyWhereTheyCan) {
  auto const to = [&](std::string const& out) {
    return run({"solve", path("x.npy"), path("y.npy"), "--eps", "0.1", "--device", "cpu", "--out", out});
  };
  expect_refused(to(path("x.npy")), "is a file; must be a folder");
  expect_refused(to("/proc/monge"), "out: /proc/monge");
  EXPECT_EQ(to(path("result/a/b/")).code, 0);
  file("result/a/b/notes.txt", "mine");
  EXPECT_EQ(to(path("result/a/b")).code, 0);
  EXPECT_EQ(contents(path("result/a/b/notes.txt")), "mine");
}

TEST_F(SolveProgram, CtrlCKeepsWhatThereIs) {
  pid_t const pid = start_long({});
  terminal_.wait_for("sweep ");
  kill(pid, SIGINT);
  EXPECT_THAT(terminal_.shown(), HasSubstr("monge: interrupted after "));
  Outcome const outcome = finish(pid);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_THAT(outcome.out, HasSubstr("stopped after "));
  json const stopped = report();
  EXPECT_EQ(stopped["status"], "stopped");
  EXPECT_THAT(read_array("map", path("result/map.npy")).shape, ElementsAre(3000, 8));

  // A plain sweep from there meets the error that was reached: the rows' at once, the columns' after the rows are
  // right.
  Outcome const resumed = solve({"--eps", "0.1", "--tolerance", "0", "--iterations", "1", "--f", path("result/f.npy"),
                                 "--g", path("result/g.npy")});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_LE(report()["history"][0]["marginal_error"].get<double>(), 2 * stopped["marginal_error"].get<double>() + 1e-4);
}

TEST_F(SolveProgram, TermKeepsWhatThereIs) {
  pid_t const pid = start_long({});
  terminal_.wait_for("sweep ");
  kill(pid, SIGTERM);
  EXPECT_EQ(finish(pid).code, 130);
  EXPECT_EQ(report()["status"], "stopped");
}

TEST_F(SolveProgram, CtrlCWhileTheMapIsMadeKeepsTheSolve) {
  points("v.npy", 3000, 400, 3);
  pid_t const pid = start_long({"--values", path("v.npy")}, "1");
  terminal_.wait_for("map ...");
  kill(pid, SIGINT);
  EXPECT_THAT(terminal_.shown(), HasSubstr("monge: interrupted after 1 sweep; the results were written"));
  EXPECT_EQ(finish(pid).code, 130);
  EXPECT_EQ(report()["status"], "completed") << "the solve was done";
  EXPECT_THAT(read_array("map", path("result/map.npy")).shape, ElementsAre(3000, 400));
  EXPECT_TRUE(fs::exists(path("result/f.npy")));
}

TEST_F(SolveProgram, ASecondCtrlCLeavesAtOnce) {
  pid_t const pid = start_long({"--annealing", "1", "--check-every", "1000000"});
  terminal_.wait_for("solving ...");
  kill(pid, SIGINT);
  while (catches_interrupt(pid)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(pid, SIGINT);
  EXPECT_THAT(terminal_.shown(), Not(HasSubstr("monge: ")));
  EXPECT_EQ(finish(pid).code, -SIGINT);
  expect_nothing_written();
}

TEST_F(SolveProgram, CtrlCBeforeTheSolveLeavesAtOnce) {
  ASSERT_EQ(mkfifo(path("x.csv").c_str(), 0600), 0);  // which nobody writes to
  pid_t const pid = start({"solve", path("x.csv"), path("y.npy"), "--eps", "1", "--out", path("result")}, &terminal_);
  terminal_.wait_for("reading ...");
  kill(pid, SIGINT);
  EXPECT_THAT(terminal_.shown(), HasSubstr("\r\nmonge: interrupted; nothing was written\r\n"));
  Outcome const outcome = finish(pid);
  EXPECT_EQ(outcome.code, 130);
  EXPECT_THAT(outcome.out, IsEmpty());
  expect_nothing_written();
}

TEST_F(SolveProgram, InfoListsTheCpu) {
  Outcome const text = run({"info"});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("cpu"));
  json const info = json::parse(run({"info", "--json"}).out);
  EXPECT_EQ(info["devices"][0]["device"], "cpu");
  EXPECT_FALSE(info["devices"][0]["instruction_set"].get<std::string>().empty());
  bool const cuda = info["backends"]["cuda"]["usable"];
  EXPECT_EQ(info["backends"]["cuda"]["reason"].is_null(), cuda);
}

TEST_F(SolveProgram, HelpAndVersionSucceed) {
  Outcome const version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, StartsWith("monge "));
  Outcome const help = run({"solve", "--help"});
  EXPECT_EQ(help.code, 0);
  for (auto const text : {"--eps", "--check-every", "--cache-bytes", "--device", "--out"}) {
    EXPECT_THAT(help.out, HasSubstr(text));
  }
}

}  // namespace
}  // namespace monge::cli
