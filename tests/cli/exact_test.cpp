// `monge exact`, run as a user would.
#include "program.hpp"

namespace monge::cli {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class ExactProgram : public Program {
 protected:
  Outcome exact(std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"exact", "--out", path("result"), "--device", "cpu"};
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

TEST_F(ExactProgram, WritesThePlanOfPoints) {
  write_array(path("x.npy"), {{3, 1}, std::vector<double>{5, 0, 2}});
  write_array(path("y.npy"), {{3, 1}, std::vector<double>{1, 3, 6}});
  Outcome const outcome = exact({path("x.npy"), path("y.npy")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("optimal"));
  EXPECT_THAT(indices("result/plan_indptr.npy"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(indices("result/plan_indices.npy"), ElementsAre(2, 0, 1));
  EXPECT_THAT(numbers("result/plan_data.npy"), ElementsAre(1.0 / 3, 1.0 / 3, 1.0 / 3));
  EXPECT_NEAR(report()["transport_cost"], 1, 1e-15);
  EXPECT_EQ(report()["status"], "optimal");
  EXPECT_EQ(report()["options"]["candidates"], 12);
}

TEST_F(ExactProgram, TakesCostsWeightsAndAStart) {
  write_array(path("c.npy"), {{2, 3}, std::vector<double>{0, 3, 1, 2, 1, 2}});
  write_array(path("a.npy"), {{2}, std::vector<double>{2, 2}});
  write_array(path("b.npy"), {{3}, std::vector<double>{1, 1, 2}});
  ASSERT_EQ(exact({"--cost", path("c.npy"), "--a", path("a.npy"), "--b", path("b.npy"), "--json"}).code, 0);
  EXPECT_EQ(report()["transport_cost"], 4.0);
  EXPECT_THAT(numbers("result/plan_data.npy"), ElementsAre(1, 1, 1, 1));
  ASSERT_EQ(exact({"--cost", path("c.npy"), "--a", path("a.npy"), "--b", path("b.npy"), "--f", path("result/f.npy"),
                   "--g", path("result/g.npy")})
                .code,
            0);
  EXPECT_EQ(report()["transport_cost"], 4.0);
}

TEST_F(ExactProgram, LeavesMassByPenaltiesOrByTheMassToTransport) {
  write_array(path("c.npy"), {{2, 3}, std::vector<double>{0, 3, 1, 2, 1, 2}});
  write_array(path("a.npy"), {{2}, std::vector<double>{2, 2}});
  write_array(path("b.npy"), {{3}, std::vector<double>{1, 1, 1}});
  std::vector<std::string> const files{"--cost", path("c.npy"), "--a", path("a.npy"), "--b", path("b.npy")};
  auto const with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), files.begin(), files.end());
    return more;
  };
  ASSERT_EQ(exact(with({"--mass", "2"})).code, 0);
  EXPECT_THAT(indices("result/plan_indptr.npy"), ElementsAre(0, 2, 2));
  EXPECT_THAT(indices("result/plan_indices.npy"), ElementsAre(0, 2));
  EXPECT_EQ(report()["mass_price"], 1.0);
  // Only the pair of cost 0 is worth less than two penalties of 0.4, and 5 units stay.
  Outcome const outcome = exact(with({"--penalty-a", "0.4", "--penalty-b", "0.4"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("with penalties"));
  EXPECT_THAT(numbers("result/plan_data.npy"), ElementsAre(1));
  EXPECT_EQ(report()["transport_cost"], 0.0);
  EXPECT_NEAR(report()["value"], 5 * 0.4, 1e-15);
  EXPECT_THAT(exact(files).err, HasSubstr("b: the total is 3"));
}

TEST_F(ExactProgram, NamesWhatIsWrong) {
  write_array(path("c.npy"), {{2, 3}, std::vector<double>{0, 3, 1, 2, 1, 2}});
  Outcome const outcome = exact({"--cost", path("c.npy"), "--tolerance", "0"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("tolerance: is 0"));
}

}  // namespace
}  // namespace monge::cli
