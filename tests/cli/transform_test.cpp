// `monge transform`, run as a user would.
#include <cmath>

#include <fmt/format.h>

#include "program.hpp"

namespace monge::cli {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TransformProgram : public Program {
 protected:
  TransformProgram() {
    write_array(path("x.npy"), {{3, 1}, std::vector<double>{0, 1, 5}});
    write_array(path("y.npy"), {{4, 1}, std::vector<double>{0, 2, 3, 3}});
    write_array(path("g.npy"), {{4}, std::vector<double>{0, 1.5, 0, 0}});
    write_array(path("f.npy"), {{3}, std::vector<double>{0, 0.5, 2}});
  }
  Outcome transform(std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"transform",    path("x.npy"), path("y.npy"), "--out",
                                       path("result"), "--device",    "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  std::vector<double> numbers(std::string_view name) const {
    return std::get<std::vector<double>>(read_array("numbers", path(name)).values);
  }
  std::vector<std::int64_t> indices(std::string_view name) const {
    return read_index_array("indices", path(name)).values;
  }
  json report() const { return json::parse(contents(path("result/report.json"))); }
};

TEST_F(TransformProgram, WritesTransformArgminAndValue) {
  Outcome const outcome = transform({"--g", path("g.npy")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());
  EXPECT_THAT(outcome.out, HasSubstr("f.npy, argmin.npy, report.json"));
  // C is {0, 4, 9, 9; 1, 1, 4, 4; 25, 9, 4, 4}.
  EXPECT_THAT(numbers("result/f.npy"), ElementsAre(0, -0.5, 4));
  EXPECT_THAT(indices("result/argmin.npy"), ElementsAre(0, 1, 2));
  EXPECT_NEAR(report()["semi_dual_value"], (0 - 0.5 + 4) / 3 + 1.5 / 4, 1e-15);
  EXPECT_EQ(report()["problem"]["files"]["g"], path("g.npy"));
  EXPECT_EQ(report()["options"]["scale"], 1.0);
}

TEST_F(TransformProgram, OfTheOtherSideWritesG) {
  write_array(path("a.npy"), {{3}, std::vector<double>{1, 2, 1}});
  ASSERT_EQ(transform({"--f", path("f.npy"), "--a", path("a.npy"), "--scale", "2", "--json"}).code, 0);
  EXPECT_THAT(numbers("result/g.npy"), ElementsAre(0, 1.5, 6, 6));
  EXPECT_THAT(indices("result/argmin.npy"), ElementsAre(0, 1, 2, 2));
  EXPECT_NEAR(report()["semi_dual_value"], 0 + 1 + 2 + (1.5 + 6 + 6), 1e-15);
}

TEST_F(TransformProgram, TakesACostMatrix) {
  file("cost.csv", "3;1\n2;2\ninf;0\n");
  file("g.csv", "0\n0\n");
  Outcome const outcome = run({"transform", "--cost", path("cost.csv"), "--g", path("g.csv"), "--out", path("result"),
                               "--device", "cpu", "--quiet"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(numbers("result/f.npy"), ElementsAre(1, 2, 0));
  EXPECT_THAT(indices("result/argmin.npy"), ElementsAre(1, 0, 1));
}

TEST_F(TransformProgram, RefusesWhatItCannotUse) {
  expect_refused(transform({}), "g: is missing; must be given, or f in its place");
  expect_refused(transform({"--g", path("g.npy"), "--f", path("f.npy")}),
                 "g: is " + path("g.npy") + "; must be given, or f in its place, which is " + path("f.npy"));
  expect_refused(transform({"--g", path("f.npy")}), "g: has 3 entries; must have 4");
  expect_refused(transform({"--g", path("g.npy"), "--a", path("g.npy")}), "a: has 4 entries; must have 3");
  expect_refused(transform({"--g", path("missing.npy")}), "missing.npy");
  write_array(path("a.npy"), {{3}, std::vector<double>{1, 2, 1}});
  write_array(path("b.npy"), {{4}, std::vector<double>{1, 2, 1, 1}});
  expect_refused(transform({"--g", path("g.npy"), "--a", path("a.npy"), "--b", path("b.npy")}),
                 "must equal the total of a, 4, to 1.0e-06 relative; divide each by its total; unequal totals need a "
                 "solve with penalty_a or penalty_b");
}

}  // namespace
}  // namespace monge::cli
