// `monge solve --batch`, run as a user would.
#include "program.hpp"

#include <filesystem>
#include <set>

namespace monge::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class BatchProgram : public Program {
 protected:
  BatchProgram() { fs::create_directory(path("in")); }

  Outcome solve(std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"solve", "--batch", path("in"), "--out", path("result"), "--device", "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  json report(std::string const& name) const { return json::parse(contents(path("result/" + name + "/report.json"))); }
  static std::set<std::string> names_in(std::string const& folder) {
    std::set<std::string> names;
    for (auto const& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
    return names;
  }
  static std::string rows(std::string const& row, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += row;
    return text;
  }
  void expect_same(std::string const& one, std::string const& other) const {
    EXPECT_EQ(contents(path(one)), contents(path(other))) << one;
  }
};

TEST_F(BatchProgram, ResultsAreThoseOfEachProblemAlone) {
  points("in/x_small.npy", 12, 3, 1);
  points("in/y_small.npy", 9, 3, 2);
  points("in/x_two_d.npy", 30, 2, 3);
  points("in/y_two_d.npy", 40, 2, 4);
  write_array(path("in/a_two_d.npy"), {{30}, std::vector<double>(30, 0.5)});
  write_array(path("in/b_two_d.npy"), {{40}, std::vector<double>(40, 0.375)});
  file("in/labels_x_small.csv", "0\n1\n0\n1\n0\n1\n0\n1\n0\n1\n0\n1\n");
  file("in/labels_y_small.csv", "0\n1\n0\n1\n0\n1\n0\n1\n0\n");
  file("in/readme.txt", "no problem");
  std::string const table = file("W.csv", "0,1\n1,0\n");
  file("in/labels_x_two_d.csv", rows("0\n", 30));
  file("in/labels_y_two_d.csv", rows("1\n", 40));
  std::vector<std::string> const options{"--eps", "0.1", "--top-k", "2", "--gradients", "--label-cost", table};
  Outcome const outcome = solve(options);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("12 x 9 points in 3 dimensions"));
  EXPECT_THAT(outcome.out, HasSubstr("2 folders"));
  EXPECT_THAT(names_in(path("result")), ElementsAre("small", "two_d"));
  for (std::string const name : {"small", "two_d"}) {
    std::vector<std::string> alone{"solve",
                                   path("in/x_" + name + ".npy"),
                                   path("in/y_" + name + ".npy"),
                                   "--labels-x",
                                   path("in/labels_x_" + name + ".csv"),
                                   "--labels-y",
                                   path("in/labels_y_" + name + ".csv"),
                                   "--out",
                                   path("alone/" + name),
                                   "--device",
                                   "cpu"};
    if (name == "two_d") alone.insert(alone.end(), {"--a", path("in/a_two_d.npy"), "--b", path("in/b_two_d.npy")});
    alone.insert(alone.end(), options.begin(), options.end());
    ASSERT_EQ(run(alone).code, 0);
    EXPECT_EQ(names_in(path("result/" + name)), names_in(path("alone/" + name)));
    for (std::string const& written : names_in(path("alone/" + name))) {
      if (written != "report.json") expect_same("result/" + name + "/" + written, "alone/" + name + "/" + written);
    }
    json const both[] = {report(name), json::parse(contents(path("alone/" + name + "/report.json")))};
    for (auto const key : {"status", "iterations", "transport_cost", "problem", "options"})
      EXPECT_EQ(both[0][key], both[1][key]) << key;
  }
  // The files of an earlier run that this one does not write go.
  ASSERT_EQ(solve({"--eps", "0.1", "--label-cost", table}).code, 0);
  EXPECT_THAT(names_in(path("result/small")), ElementsAre("f.npy", "g.npy", "map.npy", "report.json"));
}

TEST_F(BatchProgram, CostMatricesAndPointsGoTogether) {
  points("in/x_1.npy", 12, 3, 1);
  points("in/y_1.npy", 9, 3, 2);
  points("in/cost_2.npy", 7, 5, 5);
  points("in/values_2.npy", 5, 2, 6);
  Outcome const outcome = solve({"--eps", "0.1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  json const printed = json::parse(outcome.out);
  EXPECT_EQ(printed["1"], report("1"));
  EXPECT_EQ(printed["2"], report("2"));
  EXPECT_EQ(report("2")["problem"]["n"], 7);
  EXPECT_THAT(read_array("map", path("result/2/map.npy")).shape, ElementsAre(7, 2));
  // A warm start from a solution needs one check.
  fs::copy(path("result/1/f.npy"), path("in/f_1.npy"));
  fs::copy(path("result/1/g.npy"), path("in/g_1.npy"));
  json const first = report("1");
  ASSERT_EQ(solve({"--eps", "0.1", "--quiet"}).code, 0);
  EXPECT_LT(report("1")["iterations"], first["iterations"]);
}

TEST_F(BatchProgram, CheckpointsAreOfEachProblem) {
  for (std::string const name : {"small", "large"}) {
    points("in/x_" + name + ".npy", name == "small" ? 12 : 40, 3, 1);
    points("in/y_" + name + ".npy", 9, 3, 2);
  }
  EXPECT_EQ(solve({"--eps", "0.1", "--checkpoint", path("kept"), "--checkpoint-every", "1"}).code, 0);
  EXPECT_EQ(read_array("f", path("kept/small/f.npy")).rows(), 12);
  EXPECT_EQ(read_array("f", path("kept/large/f.npy")).rows(), 40);
  EXPECT_EQ(read_array("g", path("kept/large/g.npy")).rows(), 9);
}

TEST_F(BatchProgram, ProblemsThatEndShortAreCode3) {
  points("in/x_1.npy", 30, 3, 1);
  points("in/y_1.npy", 30, 3, 2);
  EXPECT_EQ(solve({"--eps", "0.001", "--iterations", "2"}).code, 3);
  EXPECT_EQ(report("1")["status"], "iteration_limit");
}

TEST_F(BatchProgram, WhatIsWrongNamesItsProblemAndNothingIsWritten) {
  expect_refused(solve({}), "batch: " + path("in") + ": has no problems; names of files must be FIELD_NAME.npy");
  points("in/x_1.npy", 12, 3, 1);
  expect_refused(solve({"--eps", "0.1"}), "problem 1: y: is missing");
  points("in/y_1.npy", 9, 3, 2);
  points("in/x_wide.npy", 12, 3, 1);
  points("in/y_wide.npy", 9, 2, 1);
  expect_refused(solve({"--eps", "0.1"}), "problem wide: y: has 2 columns; must have 3");
  points("in/y_wide.npy", 9, 3, 1);
  write_array(path("in/a_wide.npy"), {{11}, std::vector<double>(11, 1.0)});
  expect_refused(solve({"--eps", "0.1"}), "problem wide: a: ");
  points("in/a_wide.npy", 12, 2, 1);
  expect_refused(solve({"--eps", "0.1"}), "problem wide: a: has shape 12 x 2");
  fs::remove(path("in/a_wide.npy"));
  expect_refused(solve({"--eps", "-1"}), "eps: is -1");
  expect_refused(solve({"--eps", "0.1", "--top-k", "10"}), "problem 1: top_k: is 10");
  expect_refused(solve({"--eps", "0.1", path("in/x_1.npy"), path("in/y_1.npy")}), "x: is " + path("in/x_1.npy"));
  expect_refused(solve({"--eps", "0.1", "--a", path("in/x_1.npy")}), "must not be given with batch");
  expect_refused(solve({"--eps", "0.1", "--hvp", path("in/x_1.npy")}), "hvp: is given with batch");
  file("in/x_1.csv", "0,1,2\n");
  expect_refused(solve({"--eps", "0.1"}), "x_1: is there as .npy and as .csv");
  fs::remove(path("in/x_1.csv"));
  points("in/weights_1.npy", 12, 1, 1);
  expect_refused(solve({"--eps", "0.1"}), "weights_1.npy: belongs to no problem; names must be FIELD_NAME.npy");
  fs::remove(path("in/weights_1.npy"));
  for (std::string const name : {".", ".."}) {  // Which would be out itself, and the folder beside it.
    points("in/x_" + name + ".npy", 12, 3, 1);
    expect_refused(solve({"--eps", "0.1"}), "x_" + name + ".npy: has the problem's name '" + name + "'; must be");
    fs::remove(path("in/x_" + name + ".npy"));
  }
  fs::remove_all(path("in"));
  expect_refused(solve({"--eps", "0.1"}), "batch: " + path("in") + ": is no folder");
}

}  // namespace
}  // namespace monge::cli
