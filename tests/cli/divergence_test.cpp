// `monge divergence`, run as a user would.
#include "program.hpp"

#include <filesystem>
#include <numeric>

namespace monge::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

class DivergenceProgram : public ProgramWithClouds {
 protected:
  Outcome diverge(std::string const& y, std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"divergence",   path("x.npy"), path(y), "--out",
                                       path("result"), "--device",    "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  json report() const { return json::parse(contents(path("result/report.json"))); }
  std::vector<double> numbers(std::string_view name) const {
    return std::get<std::vector<double>>(read_array("numbers", path(name)).values);
  }
};

TEST_F(DivergenceProgram, WritesTheValueAndThreeReports) {
  ASSERT_EQ(diverge("y.npy", {"--eps", "0.5"}).code, 0);
  json const written = report();
  EXPECT_EQ(written["status"], "converged");
  double const ab = written["ab"]["dual"], aa = written["aa"]["dual"], bb = written["bb"]["dual"];
  EXPECT_NEAR(written["divergence"], ab - (aa + bb) / 2, 1e-14);
  for (auto const key : {"ab", "aa", "bb"}) EXPECT_EQ(written[key]["eps"], 0.5) << key;
  EXPECT_FALSE(written.contains("gradients"));
  EXPECT_FALSE(fs::exists(path("result/grad_x.npy")));
}

TEST_F(DivergenceProgram, OfACloudFromItselfIsZero) {
  ASSERT_EQ(diverge("x.npy", {"--eps", "0.5"}).code, 0);
  // The square of the default tolerance, by the smallest weight.
  EXPECT_NEAR(report()["divergence"], 0, 0.5 * 1e-12 * 40 * 2);
}

// A translation of both clouds changes nothing, so what pulls at them adds up to zero.
TEST_F(DivergenceProgram, WritesGradients) {
  ASSERT_EQ(diverge("y.npy", {"--eps", "0.5", "--gradients", "--precision", "float64", "--tolerance", "1e-10"}).code,
            0);
  EXPECT_TRUE(report()["gradients"]["scale"].is_number());
  std::vector<double> const x = numbers("result/grad_x.npy"), y = numbers("result/grad_y.npy");
  ASSERT_EQ(x.size(), 120u);
  ASSERT_EQ(y.size(), 90u);
  EXPECT_EQ(numbers("result/grad_a.npy").size(), 40u);
  EXPECT_EQ(numbers("result/grad_b.npy").size(), 30u);
  EXPECT_NEAR(std::accumulate(x.begin(), x.end(), 0.0) + std::accumulate(y.begin(), y.end(), 0.0), 0, 1e-8);
  // Those of an earlier run go.
  ASSERT_EQ(diverge("y.npy", {"--eps", "0.5"}).code, 0);
  EXPECT_FALSE(fs::exists(path("result/grad_x.npy")));
}

TEST_F(DivergenceProgram, EveryCostOfPointsHasGradients) {
  for (auto const name : {"cosine", "euclidean", "p-norm"}) {
    ASSERT_EQ(diverge("y.npy", {"--eps", "0.5", "--cost-function", name, "--gradients"}).code, 0);
    EXPECT_EQ(numbers("result/grad_a.npy").size(), 40u);
    EXPECT_EQ(numbers("result/grad_b.npy").size(), 30u);
    EXPECT_EQ(numbers("result/grad_x.npy").size(), 120u);
    EXPECT_EQ(numbers("result/grad_y.npy").size(), 90u);
  }
}

TEST_F(DivergenceProgram, OfCostMatricesIsThatOfTheirPoints) {
  auto const cloud = [&](std::string const& name) {
    return std::get<std::vector<double>>(read_array("points", path(name)).values);
  };
  auto const costs = [&](std::string const& name, std::string const& of, std::string const& to) {
    std::vector<double> const x = cloud(of), y = cloud(to);
    std::vector<double> values;
    for (std::size_t i = 0; i < x.size(); i += 3)
      for (std::size_t j = 0; j < y.size(); j += 3) {
        double sum = 0;
        for (std::size_t k = 0; k < 3; ++k) sum += (x[i + k] - y[j + k]) * (x[i + k] - y[j + k]);
        values.push_back(sum);
      }
    write_array(path(name),
                {{static_cast<std::int64_t>(x.size() / 3), static_cast<std::int64_t>(y.size() / 3)}, values});
    return path(name);
  };
  std::vector<std::string> const tight{"--eps", "0.5", "--precision", "float64", "--tolerance", "1e-9"};
  ASSERT_EQ(diverge("y.npy", tight).code, 0);
  double const expected = report()["divergence"];
  std::vector<std::string> arguments{"divergence",   "--out",
                                     path("result"), "--device",
                                     "cpu",          "--gradients",
                                     "--cost",       costs("xy.npy", "x.npy", "y.npy"),
                                     "--cost-xx",    costs("xx.npy", "x.npy", "x.npy")};
  arguments.insert(arguments.end(), tight.begin(), tight.end());
  EXPECT_THAT(run(arguments).err, HasSubstr("cost_yy: is missing; must be given with cost"));
  arguments.insert(arguments.end(), {"--cost-yy", costs("yy.npy", "y.npy", "y.npy")});
  Outcome const outcome = run(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("40 x 30 costs"));
  // A dual value is below the optimum by at most its marginal error times the range of the potentials, some 3 here.
  EXPECT_NEAR(report()["divergence"], expected, 6e-9);
  EXPECT_EQ(numbers("result/grad_a.npy").size(), 40u);
  EXPECT_FALSE(fs::exists(path("result/grad_x.npy")));
  arguments.back() = path("xx.npy");
  EXPECT_THAT(run(arguments).err, HasSubstr("yy: cost: is 40 x 40; must be 30 x 30"));
  EXPECT_THAT(diverge("y.npy", {"--eps", "0.5", "--cost-xx", path("xx.npy")}).err,
              HasSubstr("is for cost, which is not given"));
}

TEST_F(DivergenceProgram, WithoutCertificatesSaysThatThereIsNoValue) {
  Outcome const outcome = diverge("y.npy", {"--eps", "0.5", "--certificate", "false"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, ContainsRegex("divergence +not evaluated \\(certificate is false\\)"));
  EXPECT_TRUE(report()["divergence"].is_null());
}

TEST_F(DivergenceProgram, EndingShortIsCode3WithResults) {
  EXPECT_EQ(diverge("y.npy", {"--eps", "0.01", "--iterations", "2"}).code, 3);
  EXPECT_EQ(report()["status"], "iteration_limit");
}

TEST_F(DivergenceProgram, HelpListsTheMethodsThatItTakes) {
  Outcome const help = run({"divergence", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("auto, sinkhorn, newton or multiscale"));
  EXPECT_THAT(help.out, testing::Not(HasSubstr("splr")));
  EXPECT_THAT(diverge("y.npy", {"--eps", "0.5", "--method", "splr"}).err,
              HasSubstr("method: is splr; must be auto, sinkhorn, newton or multiscale"));
  EXPECT_THAT(diverge("y.npy", {"--eps", "0.5", "--method", "fast"}).err,
              HasSubstr("method: is 'fast'; must be auto, sinkhorn, newton or multiscale"));
}

TEST_F(DivergenceProgram, WhatIsWrongIsOneLineAndNothingIsWritten) {
  Outcome const penalties = diverge("y.npy", {"--eps", "0.5", "--penalty-a", "2"});
  EXPECT_EQ(penalties.code, 2);
  EXPECT_EQ(penalties.err,
            "monge: error: penalty_b: is inf; must be 2 as penalty_a is, as each measure meets itself\n");
  points("flat.npy", 30, 2, 3);
  Outcome const shape = diverge("flat.npy", {"--eps", "0.5"});
  EXPECT_EQ(shape.code, 2);
  EXPECT_THAT(shape.err, HasSubstr("y: has 2 columns; must have 3"));

  write_array(path("a.npy"), {{40}, std::vector<double>(40, 0.05)});
  write_array(path("b.npy"), {{30}, std::vector<double>(30, 0.1)});
  Outcome const totals = diverge("y.npy", {"--eps", "0.5", "--a", path("a.npy"), "--b", path("b.npy")});
  EXPECT_EQ(totals.code, 2);
  EXPECT_THAT(totals.err, HasSubstr("must equal the total of a"));
  std::string labels_x, labels_y;
  for (int i = 0; i < 40; ++i) labels_x += "0\n";
  for (int j = 0; j < 30; ++j) labels_y += "1\n";
  auto const labelled = [&](std::string const& cost) {
    return diverge("y.npy", {"--eps", "0.5", "--labels-x", file("lx.csv", labels_x), "--labels-y",
                             file("ly.csv", labels_y), "--label-cost", file("W.csv", cost)});
  };
  EXPECT_THAT(labelled("0,1,2\n1,0,2\n").err, HasSubstr("label_cost: is 2 x 3; must be square"));
  EXPECT_THAT(labelled("0,1\n2,0\n").err, HasSubstr("label_cost: row 1, column 0 is 2 and row 0, column 1 is 1"));
  EXPECT_FALSE(fs::exists(path("result")));
}

}  // namespace
}  // namespace monge::cli
