// The program under mpirun.
#include <cstdlib>

#include <fmt/format.h>

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
  std::vector<std::string> solve(char const* out, char const* eps, char const* threads) const {
    return {"solve", path("x.npy"), path("y.npy"), "--out",    path(out), "--eps",
            eps,     "--threads",   threads,       "--device", "cpu"};
  }
};

#ifdef MONGE_MPIEXEC
class RanksProgramOfMpi : public RanksProgram {
 protected:
  Outcome run_ranks(int ranks, std::vector<std::string> const& arguments) const {
    // Open MPI starts more ranks than cores, and starts as root, only where it is told to.
    for (char const* const name :
         {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
      setenv(name, "1", 1);
    std::string command = fmt::format("{} {} {}", MONGE_MPIEXEC, ranks, MONGE_PROGRAM);
    for (std::string const& argument : arguments) command += fmt::format(" '{}'", argument);
    command += fmt::format(" > '{}' 2> '{}'", path("stdout"), path("stderr"));
    int const status = std::system(command.c_str());
    return {WEXITSTATUS(status), contents(path("stdout")), contents(path("stderr"))};
  }
};

TEST_F(RanksProgramOfMpi, HasTheResultsOfOneProcess) {
  EXPECT_EQ(run(solve("alone", "0.1", "2")).code, 0);
  Outcome const outcome = run_ranks(2, solve("result", "0.1", "1"));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  EXPECT_THAT(outcome.out, HasSubstr("(2 ranks)"));
  EXPECT_EQ(outcome.out.find("status"), outcome.out.rfind("status"));  // One rank prints.
  for (char const* const name : {"f.npy", "g.npy", "map.npy"})
    EXPECT_EQ(contents(path(fmt::format("result/{}", name))), contents(path(fmt::format("alone/{}", name)))) << name;
  EXPECT_EQ(nlohmann::json::parse(contents(path("result/report.json")))["ranks"], 2);
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
