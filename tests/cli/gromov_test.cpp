// `monge gromov`, run as a user would.
#include <filesystem>

#include "program.hpp"

namespace monge::cli {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

class GromovProgram : public Program {
 protected:
  GromovProgram() {
    // The cloud y is x, turned by a right angle, in another order.
    write_array(path("x.npy"), {{4, 2}, std::vector<double>{0, 0, 3, 0, 3, 1, 0, 5}});
    write_array(path("y.npy"), {{4, 2}, std::vector<double>{-5, 0, -1, 3, 0, 3, 0, 0}});
  }
  Outcome gromov(std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"gromov",       path("x.npy"), path("y.npy"), "--out",
                                       path("result"), "--device",    "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::vector<double> numbers(std::string_view name) const {
    return std::get<std::vector<double>>(read_array("numbers", path(name)).values);
  }
  json report() const { return json::parse(contents(path("result/report.json"))); }
};

TEST_F(GromovProgram, WritesThePlanAndItsMap) {
  Outcome const outcome = gromov({});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("converged"));
  EXPECT_THAT(outcome.out, ContainsRegex("lower bound +0 for all plans without entropy, where this one has "));
  EXPECT_THAT(read_index_array("indices", path("result/plan_indices.npy")).values, ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(numbers("result/map.npy"), ElementsAre(0, 0, 0, 3, -1, 3, -5, 0));
  json const found = report();
  EXPECT_NEAR(found["value"], 0, 1e-10);
  EXPECT_EQ(found["lower_bound"], 0.0);
  EXPECT_EQ(found["starts"][0]["kind"], "product");
  EXPECT_EQ(found["problem"]["q"], 2);
  ASSERT_EQ(gromov({"--cross-moment", path("result/cross_moment.npy"), "--json"}).code, 0);
  EXPECT_EQ(report()["starts"].size(), 1u);
}

TEST_F(GromovProgram, ProvesTheGlobalOptimum) {
  write_array(path("y.npy"), {{4, 2}, std::vector<double>{-5, 0, -1, 2, 0, 4, 1, 0}});
  Outcome const outcome = gromov({"--gap", "0.01", "--seconds", "60"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("exact problems"));
  json const found = report();
  EXPECT_GT(found["problems"], 0);
  EXPECT_GT(found["gap"], 0.0);
  EXPECT_LE(found["gap"], 0.01);
  EXPECT_GE(found["lower_bound"].get<double>(), 0.99 * found["value"].get<double>());
  EXPECT_THAT(found["message"].get<std::string>(), HasSubstr("no plan has a value below"));
}

TEST_F(GromovProgram, TakesEntropyFeaturesAndWeights) {
  write_array(path("s.npy"), {{4, 1}, std::vector<double>{1, 2, 3, 4}});
  write_array(path("a.npy"), {{4}, std::vector<double>{1, 1, 1, 2}});
  write_array(path("b.npy"), {{4}, std::vector<double>{2, 1, 1, 1}});
  Outcome const outcome = gromov({"--eps", "0.5", "--alpha", "0.9", "--s", path("s.npy"), "--t", path("s.npy"), "--a",
                                  path("a.npy"), "--b", path("b.npy")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  json const found = report();
  EXPECT_EQ(found["mass"], 5.0);
  EXPECT_EQ(found["alpha"], 0.9);
  EXPECT_GT(found["linear"], 0.0);
  // The plan of u, v, f and g has the weights.
  std::vector<double> const u = numbers("result/u.npy"), v = numbers("result/v.npy"), f = numbers("result/f.npy"),
                            g = numbers("result/g.npy"), a = numbers("a.npy"), b = numbers("b.npy");
  for (std::size_t i = 0; i < 4; ++i) {
    double mass = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      double score = f[i] + g[j];
      for (std::size_t k = 0; k < 4; ++k) score += u[4 * i + k] * v[4 * j + k];
      mass += a[i] * b[j] * std::exp(score / 0.5);
    }
    EXPECT_NEAR(mass, a[i], 1e-4);
  }
}

TEST_F(GromovProgram, TakesMatrices) {
  // The second matrix is the first one, in another order.
  write_array(path("c.npy"), {{3, 3}, std::vector<double>{0, 1, 4, 1, 0, 2, 4, 2, 0}});
  write_array(path("d.npy"), {{3, 3}, std::vector<double>{0, 2, 4, 2, 0, 1, 4, 1, 0}});
  write_array(path("v.npy"), {{3, 1}, std::vector<double>{10, 20, 30}});
  std::vector<std::string> arguments{"gromov",      "--source", path("c.npy"),  "--target", path("d.npy"), "--values",
                                     path("v.npy"), "--out",    path("result"), "--device", "cpu"};
  for (char const* const loss : {"square", "kl"}) {
    std::vector<std::string> given = arguments;
    given.insert(given.end(), {"--loss", loss});
    Outcome const outcome = run(given);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(std::string("matrices of 3 x 3 and 3 x 3, loss ") + loss));
    EXPECT_THAT(read_index_array("indices", path("result/plan_indices.npy")).values, ElementsAre(2, 1, 0));
    EXPECT_THAT(numbers("result/map.npy"), ElementsAre(30, 20, 10));
    EXPECT_EQ(numbers("result/cross_moment.npy").size(), 9u);
    EXPECT_EQ(numbers("result/u.npy").size(), 9u);
    EXPECT_FALSE(std::filesystem::exists(path("result/v.npy")));
    EXPECT_NEAR(report()["value"], 0, 1e-14);
    EXPECT_EQ(report()["problem"]["loss"], loss);
  }
  // Costs and the features that they are of.
  write_array(path("s.npy"), {{3, 1}, std::vector<double>{0, 1, 2}});
  write_array(path("m.npy"), {{3, 3}, std::vector<double>{0, 1, 4, 1, 0, 1, 4, 1, 0}});
  double values[2];
  for (int const of_features : {0, 1}) {
    std::vector<std::string> given = arguments;
    given.insert(given.end(), {"--eps", "0.5", "--alpha", "0.2"});
    if (of_features) given.insert(given.end(), {"--s", path("s.npy"), "--t", path("s.npy")});
    if (!of_features) given.insert(given.end(), {"--cost", path("m.npy")});
    Outcome const outcome = run(given);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(of_features ? "of features" : "of the cost"));
    values[of_features] = report()["value"];
  }
  EXPECT_DOUBLE_EQ(values[0], values[1]);
}

TEST_F(GromovProgram, LeavesMarginalsOpen) {
  Outcome outcome = gromov({"--marginals", "partial", "--mass", "0.75"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("partial, of mass 0.75"));
  EXPECT_NEAR(report()["value"], 0, 1e-10);
  EXPECT_EQ(report()["options"]["marginals"], "partial");
  std::vector<double> const moments = numbers("result/cross_moment.npy");
  EXPECT_EQ(moments.size(), 7u * 6u);
  EXPECT_NEAR(moments[0], 0.75, 1e-15);
  ASSERT_EQ(gromov({"--marginals", "semirelaxed", "--cross-moment", path("result/cross_moment.npy")}).code, 0);
  EXPECT_NEAR(report()["value"], 0, 1e-10);
  EXPECT_EQ(report()["starts"].size(), 1u);

  outcome = gromov({"--marginals", "unbalanced", "--penalty-a", "100", "--penalty-b", "100", "--eps", "50"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  json const found = report();
  EXPECT_LT(found["mass"], 1.0);
  EXPECT_NEAR(
      found["value"].get<double>(),
      found["quadratic"].get<double>() + 50 * found["entropy"].get<double>() + found["divergence"].get<double>(),
      1e-10);
  outcome = gromov({"--marginals", "unbalanced", "--penalty-a", "100", "--penalty-b", "100"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("eps: is 0 and marginals are unbalanced; must be > 0"));
}

TEST_F(GromovProgram, NamesWhatIsWrong) {
  auto const refusal = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"gromov", "--out", path("result"), "--device", "cpu"});
    Outcome const outcome = run(more);
    EXPECT_EQ(outcome.code, 2);
    return outcome.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("x: is missing; must be a file of points, or a matrix in their place: --source"));
  EXPECT_THAT(refusal({"--target", path("x.npy")}), HasSubstr("source: is missing; must be a file of a matrix"));
  EXPECT_THAT(refusal({path("x.npy"), path("y.npy"), "--source", path("x.npy")}),
              HasSubstr("x: is given beside matrices; must be left out"));
  EXPECT_THAT(refusal({path("x.npy"), path("y.npy"), "--loss", "kl"}),
              HasSubstr("loss: is given beside points; is for matrices, source and target"));
  EXPECT_THAT(refusal({"--source", path("x.npy"), "--target", path("y.npy")}), HasSubstr("is 4 x 2; must be square"));
  write_array(path("c.npy"), {{2, 2}, std::vector<double>{0, 1, -1, 0}});
  EXPECT_THAT(refusal({"--source", path("c.npy"), "--target", path("c.npy"), "--loss", "kl"}),
              HasSubstr("source: row 1, column 0 is -1; entries must be >= 0 for the loss kl"));
  EXPECT_THAT(refusal({"--source", path("c.npy"), "--target", path("c.npy"), "--values", path("x.npy")}),
              HasSubstr("values: has 4 rows; must have 2"));

  Outcome outcome = gromov({"--method", "proximal"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("method: is proximal without entropy"));
  outcome = gromov({"--s", path("x.npy")});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("t: is missing; features need both s and t"));
  outcome = gromov({"--eps", "10", "--iterations", "1"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("more steps"));
}

}  // namespace
}  // namespace monge::cli
