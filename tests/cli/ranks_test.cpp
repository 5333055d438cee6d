// The program as several processes: under mpirun, or those that it starts itself.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/context.hpp>

#include "program.hpp"

namespace monge::cli {
namespace {

using testing::HasSubstr;

class RanksProgram : public Program {
 protected:
  RanksProgram() {
    points("x.npy", 700, 3, 1);
    points("y.npy", 600, 3, 2);
  }
  /// The outcome of two processes of this program.
  Outcome run_two(std::vector<std::string> arguments) const {
    arguments.back() = "cpu,cpu";
    return run(arguments);
  }
  /// A solve without an end, by two processes; waits for its first sweeps. On busy cores ranks may wait for some
  /// seconds.
  pid_t start_two(char const* limit = "60") {
    pid_t const pid = start({"solve", points("large_x.npy", 1000, 8, 1), points("large_y.npy", 1000, 8, 2), "--eps",
                             "0.1", "--tolerance", "0", "--iterations", "2000000000", "--threads", "1", "--device",
                             "cpu,cpu", "--rank-limit", limit, "--out", path("result")},
                            &terminal_);
    terminal_.wait_for("sweep ");
    return pid;
  }
  static pid_t child_of(pid_t pid) { return std::stoi(contents(fmt::format("/proc/{0}/task/{0}/children", pid))); }
  Terminal terminal_;

  std::vector<std::string> solve(char const* out, char const* eps, char const* threads) const {
    return {"solve", path("x.npy"), path("y.npy"), "--out",    path(out), "--eps",
            eps,     "--threads",   threads,       "--device", "cpu"};
  }
  /// `outcome` is of solve("result", "0.1", "1") on two ranks. One process with two threads has the same results.
  void expect_results_of_one_process(Outcome const& outcome) const {
    EXPECT_EQ(run(solve("alone", "0.1", "2")).code, 0);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, HasSubstr("(2 ranks)"));
    EXPECT_EQ(outcome.out.find("status"), outcome.out.rfind("status"));  // One rank prints.
    for (char const* const name : {"f.npy", "g.npy", "map.npy"})
      EXPECT_EQ(contents(path(fmt::format("result/{}", name))), contents(path(fmt::format("alone/{}", name)))) << name;
  }
};

TEST_F(RanksProgram, StartsARankForEachDevice) {
  expect_results_of_one_process(run_two(solve("result", "0.1", "1")));
}

TEST_F(RanksProgram, HasOneErrorOfAllRanks) {
  expect_refused(run_two(solve("result", "-1", "1")), "eps: is -1; must be finite and > 0");
}

TEST_F(RanksProgram, EndsWithARankThatIsKilled) {
  pid_t const pid = start_two();
  kill(child_of(pid), SIGKILL);
  EXPECT_THAT(terminal_.shown(), HasSubstr("monge: error: ranks: rank 1 has ended"));
  EXPECT_EQ(finish(pid).code, 2);
  expect_nothing_written();
}

TEST_F(RanksProgram, EndsAtTheLimitWithARankThatIsStopped) {
  pid_t const pid = start_two("10"), stopped = child_of(pid);
  kill(stopped, SIGSTOP);
  EXPECT_THAT(terminal_.shown(), HasSubstr("monge: error: ranks: rank 1 did not come within 10 s (limit)"));
  EXPECT_EQ(finish(pid).code, 2);
  expect_nothing_written();
}

TEST_F(RanksProgram, StopsAllRanksOnCtrlC) {
  pid_t const pid = start_two();
  kill(pid, SIGINT);
  EXPECT_THAT(terminal_.shown(), HasSubstr("monge: interrupted after "));
  EXPECT_EQ(finish(pid).code, 130);
}

TEST_F(RanksProgram, RefusesWrongListsOfDevices) {
  for (char const* const device : {"cuda:0,", ",cuda:0", "cpu,gpu", "cuda:all,0", "cuda:0,-1"}) {
    std::vector<std::string> arguments = solve("result", "0.1", "1");
    arguments.back() = device;
    expect_refused(run(arguments), fmt::format("device: is '{}'; must be", device));
  }
  for (char const* const device : {"cuda:0,99", "cuda:all"}) {
    if (std::string_view(device) == "cuda:all" && cuda_unavailable_reason().empty()) continue;
    std::vector<std::string> arguments = solve("result", "0.1", "1");
    arguments.back() = device;
    expect_refused(run(arguments), fmt::format("device: is {}; ", device));
  }
  std::vector<std::string> arguments = solve("result", "0.1", "1");
  arguments.insert(arguments.end(), {"--rank-limit", "0"});
  expect_refused(run(arguments), "rank_limit: is 0; must be > 0 and <= 1e6 seconds");
}

#ifdef MONGE_MPIEXEC
class RanksProgramOfMpi : public RanksProgram {
 protected:
  Outcome run_ranks(int ranks, std::vector<std::string> const& arguments) const {
    return run_each({{ranks, arguments}});
  }
  /// Ranks with arguments of their own: their number, and the arguments. `program` is run in place of the program.
  Outcome run_each(std::vector<std::pair<int, std::vector<std::string>>> const& groups,
                   std::string const& program = MONGE_PROGRAM) const {
    // Open MPI starts more ranks than cores, and starts as root, only where it is told to.
    for (char const* const name :
         {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
      setenv(name, "1", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // MPI leaves memory behind.
    std::string command = MONGE_MPIEXEC;
    for (auto const& [ranks, arguments] : groups) {
      command += fmt::format("{} {} {} {}", &ranks == &groups[0].first ? "" : " :", MONGE_NUMPROC, ranks, program);
      for (std::string const& argument : arguments) command += fmt::format(" '{}'", argument);
    }
    command += fmt::format(" > '{}' 2> '{}'", path("stdout"), path("stderr"));
    int const status = std::system(command.c_str());
    return {WEXITSTATUS(status), contents(path("stdout")), contents(path("stderr"))};
  }
};

TEST_F(RanksProgramOfMpi, HasTheResultsOfOneProcess) {
  expect_results_of_one_process(run_ranks(2, solve("result", "0.1", "1")));
  EXPECT_EQ(nlohmann::json::parse(contents(path("result/report.json")))["ranks"], 2);
}

TEST_F(RanksProgramOfMpi, ReadsFilesOfTheFirstRank) {
  std::vector<std::string> first = solve("result", "0.1", "1"), alone = solve("alone", "0.1", "3");
  write_array(path("a.npy"), {{700}, std::vector<double>(700, 2)});
  file("b.csv", [] {
    std::string text;
    for (int i = 0; i < 600; ++i) text += fmt::format("{}\n", 1400.0 / 600);
    return text;
  }());
  for (auto* const arguments : {&first, &alone})
    arguments->insert(arguments->end(), {"--a", path("a.npy"), "--b", path("b.csv")});
  std::vector<std::string> others = first;
  for (std::string& argument : others) {
    if (argument.ends_with(".npy") || argument.ends_with(".csv")) argument = path("not_there.npy");
  }
  EXPECT_EQ(run(alone).code, 0);
  Outcome const outcome = run_each({{1, first}, {2, others}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (char const* const name : {"f.npy", "g.npy", "map.npy"})
    EXPECT_EQ(contents(path(fmt::format("result/{}", name))), contents(path(fmt::format("alone/{}", name)))) << name;
  Outcome const failed = run_each({{2, others}, {1, first}});
  EXPECT_EQ(failed.code, 2);
  EXPECT_THAT(failed.err, HasSubstr("not_there.npy: cannot be opened"));
}

TEST_F(RanksProgramOfMpi, ReadsCostsInTextOfTheFirstRank) {
  file("cost.csv", "0,1,2\n1,0,1\n");
  std::vector<std::string> const first{"solve", "--cost",       path("cost.csv"), "--eps", "0.5",
                                       "--out", path("result"), "--device",       "cpu"};
  std::vector<std::string> others = first;
  others[2] = path("not_there.csv");
  Outcome const outcome = run_each({{1, first}, {1, others}});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST_F(RanksProgramOfMpi, MapsCosts) {
  for (int const columns : {500, 2000}) {
    points("cost.npy", 1000, columns, 3);
    std::vector<std::string> alone{"solve",    "--cost", path("cost.npy"), "--eps", "0.05", "--out", path("alone"),
                                   "--device", "cpu",    "--threads",      "3"};
    EXPECT_EQ(run(alone).code, 0);
    std::vector<std::string> shared = alone;
    shared[6] = path("result");
    shared.back() = "1";
    Outcome const outcome = run_ranks(3, shared);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    for (char const* const name : {"f.npy", "g.npy"})
      EXPECT_EQ(contents(path(fmt::format("result/{}", name))), contents(path(fmt::format("alone/{}", name)))) << name;
  }
}

TEST_F(RanksProgramOfMpi, GoesOnFromCheckpointsOfAnotherNumberOfRanks) {
  auto const iterations = [&](char const* out) {
    return nlohmann::json::parse(contents(path(fmt::format("{}/report.json", out))))["iterations"].get<int>();
  };
  for (auto const& [before, after] : {std::pair(2, 3), std::pair(5, 1)}) {
    std::vector<std::string> first = solve("first", "0.005", "1");
    for (char const* const argument :
         {"--method", "sinkhorn", "--annealing", "1", "--schedule", "alternating", "--precision", "float64"})
      first.push_back(argument);
    std::vector<std::string> second = first;
    second[4] = path("second");
    EXPECT_EQ(run(second).code, 0);
    int const cold = iterations("second");
    // It ends after 100 sweeps, and its last check is one of those that are kept.
    for (char const* const argument : {"--iterations", "100", "--checkpoint-every", "1"}) first.push_back(argument);
    first.insert(first.end(), {"--checkpoint", path("kept")});
    EXPECT_EQ(run_ranks(before, first).code, 3);
    EXPECT_TRUE(std::filesystem::exists(path("kept/g.npy")));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path("kept")), {}), 2) << "Nothing else is left.";
    second.insert(second.end(), {"--f", path("kept/f.npy"), "--g", path("kept/g.npy")});
    Outcome const outcome = run_ranks(after, second);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_LE(iterations("second"), cold - 90) << "Checks may be 10 sweeps apart.";
  }
}

/// Rank 0 alone gets the signal.
TEST_F(RanksProgramOfMpi, EndsWithTheCodeOfTheInterruptedRankOnAll) {
  file("noting", fmt::format("#!/bin/sh\n"
                             "'{0}' \"$@\" &\n"
                             "[ \"$OMPI_COMM_WORLD_RANK$PMI_RANK\" != 0 ] || echo $! > '{1}'\n"
                             "wait $!\n"
                             "echo $? >> '{2}'\n",
                             MONGE_PROGRAM, path("rank_0"), path("codes")));
  std::filesystem::permissions(path("noting"), std::filesystem::perms::owner_all);
  std::vector<std::string> arguments = solve("result", "0.1", "1");
  for (char const* const argument :
       {"--tolerance", "0", "--iterations", "2000000000", "--checkpoint-every", "1", "--checkpoint"})
    arguments.push_back(argument);
  arguments.push_back(path("kept"));
  std::jthread const interrupter([&](std::stop_token const& ended) {
    while (!std::filesystem::exists(path("kept/g.npy"))) {
      if (ended.stop_requested()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(std::stoi(contents(path("rank_0"))), SIGINT);
  });
  EXPECT_THAT(run_each({{2, arguments}}, path("noting")).err, HasSubstr("monge: interrupted after "));
  EXPECT_EQ(contents(path("codes")), "130\n130\n");
  EXPECT_EQ(nlohmann::json::parse(contents(path("result/report.json")))["status"], "stopped");
}

TEST_F(RanksProgramOfMpi, EndsWithAnErrorOfAllRanks) {
  Outcome const outcome = run_ranks(2, solve("result", "-1", "1"));
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("monge: error: eps: is -1; must be finite and > 0"));
  expect_nothing_written();
}
#else
TEST_F(RanksProgram, OfABuildWithoutMpiRefusesSeveral) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  Outcome const outcome = run(solve("result", "0.1", "1"));
  unsetenv("OMPI_COMM_WORLD_SIZE");
  expect_refused(outcome, "this build has no MPI");
}
#endif

}  // namespace
}  // namespace monge::cli
