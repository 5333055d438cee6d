// `monge solve` and `monge info`, run as a user would.
#include "program.hpp"

#include <chrono>
#include <cmath>
#include <csignal>
#include <set>
#include <thread>

namespace monge::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class SolveProgram : public Program {
 protected:
  SolveProgram() {
    points("x.npy", 40, 3, 1);
    points("y.npy", 30, 3, 2);
  }

  Outcome solve(std::vector<std::string> const& more) const {
    std::vector<std::string> arguments{"solve",        path("x.npy"), path("y.npy"), "--out",
                                       path("result"), "--device",    "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  json report() const { return json::parse(contents(path("result/report.json"))); }

  /// Until the program, which has only just started, catches the signal.
  static void wait_for_handler(pid_t pid, int signal) {
    for (int tries = 0; tries < 1000; ++tries) {
      std::string const status = contents("/proc/" + std::to_string(pid) + "/status");
      std::size_t const caught = status.find("SigCgt:");
      if (caught != std::string::npos && (std::stoull(status.substr(caught + 7), nullptr, 16) >> (signal - 1) & 1))
        return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "the program catches no signal " << signal;
  }
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
  for (auto const key : {"status", "message", "iterations", "annealing_iterations", "certified", "mass",
                         "marginal_error", "transport_cost", "primal", "dual", "gap", "seconds", "problem", "options",
                         "device", "device_name", "instruction_set", "versions", "history"}) {
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

TEST_F(SolveProgram, WrongUseIsCode2) {
  expect_refused(run({}), "subcommand");
  expect_refused(run({"transport"}), "see monge --help");
  expect_refused(run({"solve"}), "required");
  expect_refused(solve({}), "--eps is required");
  expect_refused(solve({"--eps", "0.1", "--color", "red"}), "--color");
  expect_refused(solve({"--eps", "abc"}), "eps: is 'abc'; must be > 0");
  expect_refused(solve({"--eps", "0"}), "eps: is 0; must be finite and > 0");
  expect_refused(solve({"--eps", "-1"}), "eps: is -1");
  expect_refused(solve({"--eps", "nan"}), "eps: is nan");
  expect_refused(solve({"--eps", "0.1", "--tolerance", "-1"}), "tolerance: is -1");
  expect_refused(solve({"--eps", "0.1", "--iterations", "0"}), "iterations: is 0");
  expect_refused(solve({"--eps", "0.1", "--iterations", "1.5"}), "iterations: is '1.5'");
  expect_refused(solve({"--eps", "0.1", "--annealing", "2"}), "annealing: is 2");
  expect_refused(solve({"--eps", "0.1", "--scale", "0"}), "scale: is 0");
  expect_refused(solve({"--eps", "0.1", "--threads", "-1"}), "threads: is -1");
  expect_refused(solve({"--eps", "0.1", "--schedule", "fast"}), "schedule: is 'fast'; must be overrelaxed");
  expect_refused(solve({"--eps", "0.1", "--precision", "tf32"}), "precision: is tf32");
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
  expect_refused(weights("1\n2\n"), "a: has 2 entries; must have 40");
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

TEST_F(SolveProgram, CtrlCStopsWithoutResults) {
  points("x.npy", 3000, 8, 1);
  points("y.npy", 3000, 8, 2);
  pid_t const pid = start({"solve", path("x.npy"), path("y.npy"), "--eps", "1e-4", "--tolerance", "0", "--iterations",
                           "1000000", "--out", path("result"), "--device", "cpu"});
  wait_for_handler(pid, SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // into the sweeps
  kill(pid, SIGINT);
  Outcome const outcome = finish(pid);
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, StartsWith("monge: interrupted after "));
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
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
