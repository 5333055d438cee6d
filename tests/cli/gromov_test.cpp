// `monge gromov`, run as a user would.
#include "program.hpp"

namespace monge::cli {
namespace {

using nlohmann::json;
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
  EXPECT_THAT(outcome.out, HasSubstr("lower bound"));
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

TEST_F(GromovProgram, NamesWhatIsWrong) {
  Outcome outcome = gromov({"--method", "proximal"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("method: is proximal without entropy"));
  outcome = gromov({"--s", path("x.npy")});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("t: is missing; features need both s and t"));
  outcome = gromov({"--eps", "10", "--iterations", "1"});
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("more iterations"));
}

}  // namespace
}  // namespace monge::cli
