// `monge assign`, run as a user would.
#include <limits>

#include "program.hpp"

namespace monge::cli {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class AssignProgram : public Program {
 protected:
  Outcome assign(std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"assign", "--out", path("result"), "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  IndexArray indices(std::string_view name) const { return read_index_array("indices", path(name)); }
  json report() const { return json::parse(contents(path("result/report.json"))); }
};

TEST_F(AssignProgram, PairsTheRowsOfAMatrix) {
  write_array(path("c.npy"), {{3, 3}, std::vector<double>{4, 1, 3, 2, 0, 5, 3, 2, 2}});
  Outcome const outcome = assign({path("c.npy")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("optimal"));
  EXPECT_THAT(indices("result/row_indices.npy").values, ElementsAre(0, 1, 2));
  EXPECT_THAT(indices("result/column_indices.npy").values, ElementsAre(1, 0, 2));
  EXPECT_EQ(report()["value"], 5.0);
  ASSERT_EQ(assign({path("c.npy"), "--maximize", "--json"}).code, 0);
  EXPECT_EQ(report()["value"], 4 + 5 + 2);
  EXPECT_EQ(report()["options"]["maximize"], true);
}

TEST_F(AssignProgram, TakesABatchWithSizes) {
  write_array(path("c.npy"), {{3, 1, 2}, std::vector<double>{2, 1, 3, 4, 5, kInfinity}});
  write_array(path("columns.npy"), IndexArray{{3}, {2, 1, 0}});
  Outcome const outcome = assign({path("c.npy"), "--columns", path("columns.npy")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(indices("result/column_indices.npy").values, ElementsAre(1, 0, -1));
  EXPECT_THAT(indices("result/column_indices.npy").shape, ElementsAre(3, 1));
  EXPECT_THAT(std::get<std::vector<double>>(read_array("values", path("result/values.npy")).values),
              ElementsAre(1, 3, 0));
}

TEST_F(AssignProgram, ReportsProblemsWithoutAnAssignment) {
  write_array(path("c.npy"), {{3, 1, 1}, std::vector<double>{2, kInfinity, -kInfinity}});
  EXPECT_EQ(assign({path("c.npy")}).code, 3);
  EXPECT_THAT(indices("result/status.npy").values, ElementsAre(0, 1, 2));
  EXPECT_EQ(report()["status"], "invalid");
  EXPECT_EQ(report()["infeasible"], 1);
  EXPECT_EQ(report()["value"], 2.0);
}

TEST_F(AssignProgram, NamesWhatIsWrong) {
  write_array(path("c.npy"), {{3, 1, 1}, std::vector<double>{2, 1, 0}});
  write_array(path("rows.npy"), IndexArray{{3}, {1, 2, 1}});
  EXPECT_THAT(assign({path("c.npy"), "--rows", path("rows.npy")}).err, HasSubstr("rows: entry 1 is 2; must be"));
  EXPECT_THAT(assign({path("c.npy"), "--columns", path("c.npy")}).err, HasSubstr("columns: "));
  write_array(path("c.npy"), {{3}, std::vector<double>{2, 1, 0}});
  EXPECT_THAT(assign({path("c.npy")}).err, HasSubstr("cost: has shape 3; must be 2-D or 3-D"));
}

}  // namespace
}  // namespace monge::cli
