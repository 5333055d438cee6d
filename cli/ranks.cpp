#include "ranks.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <monge/error.hpp>
#include <monge/ranks.hpp>

#include "exit_code.hpp"
#ifdef MONGE_HAVE_MPI
#include <monge/mpi.hpp>
#endif

namespace monge::cli {
namespace {

int rank = 0, size = 1;
std::FILE* errors = stderr;
std::optional<Communicator> of_this_machine;  // Ranks that this program has started.
std::vector<pid_t> started;                   // The processes that rank 0 has started.

/// From the environment that Open MPI and MPICH give to their processes.
int started_processes() {
  for (char const* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (char const* const value = std::getenv(name)) return std::atoi(value);
  }
  return 1;
}

/// Ranks other than 0 print nothing but errors.
void silence() {
  if (rank == 0) return;
  errors = fdopen(dup(STDERR_FILENO), "w");
  for (std::FILE* const stream : {stdout, stderr}) {
    if (std::freopen("/dev/null", "w", stream) == nullptr)
      throw Error(ErrorCode::input_output, "/dev/null: cannot be opened; must be there for ranks other than 0");
  }
}

}  // namespace

void begin_ranks() {
  if (started_processes() <= 1) return;
#ifdef MONGE_HAVE_MPI
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  silence();
#else
  throw Error(ErrorCode::unsupported,
              "ranks: mpirun started more than one process; this build has no MPI (configure with MONGE_MPI=ON)");
#endif
}

bool under_mpirun() {
  return size > 1 && !of_this_machine;
}

void start_ranks(int count, double limit) {
  std::vector<Communicator> communicators = local_communicators(count, limit);
  std::fflush(nullptr);  // A copy of this process would print it again.
  size = count;
  for (int other = 1; other < count && rank == 0; ++other) {
    pid_t const process = fork();
    if (process < 0)
      throw Error(ErrorCode::device_failure, fmt::format("ranks: a process cannot be made: {}", std::strerror(errno)));
    if (process > 0) {
      started.push_back(process);
    } else {
      rank = other;
      started.clear();
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // It ends with rank 0, also when it is stopped.
    }
  }
  of_this_machine = std::move(communicators[static_cast<std::size_t>(rank)]);
  silence();
}

int this_rank() {
  return rank;
}

bool is_first_rank() {
  return rank == 0;
}

std::optional<Communicator> communicator([[maybe_unused]] double limit) {
  if (of_this_machine) return of_this_machine;
#ifdef MONGE_HAVE_MPI
  if (size > 1) return mpi_communicator(MPI_COMM_WORLD, limit);
#endif
  return std::nullopt;
}

LocalRank local_rank() {
  LocalRank local;
#ifdef MONGE_HAVE_MPI
  if (!under_mpirun()) return local;
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &local.rank);
  MPI_Comm_size(machine, &local.size);
  MPI_Comm_free(&machine);
#endif
  return local;
}

std::string of_first_rank(std::function<std::string()> const& text) {
  // The limit is long, since files may be slow to read. A rank that ends meanwhile ends the other ranks.
  static std::optional<Communicator> const ranks = communicator(1e6);
  if (!ranks) return {};
  std::string const mine = is_first_rank() ? text() : std::string();
  std::vector<char> const all = gather_rows(*ranks, std::span<char const>(mine)).all;
  return {all.begin(), all.end()};
}

int end_ranks(int exit_code) {
  for (pid_t const process : started) waitpid(process, nullptr, 0);
#ifdef MONGE_HAVE_MPI
  if (under_mpirun()) {
    MPI_Allreduce(MPI_IN_PLACE, &exit_code, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
  }
#endif
  return exit_code;
}

void print_error(std::string const& line) {
  // Rank 0 often has the same error; it then ends all ranks with one line, on busy cores after some seconds.
  if (rank > 0) std::this_thread::sleep_for(std::chrono::seconds(5));
  fmt::print(errors, "monge: error: {}{}\n", rank > 0 ? fmt::format("rank {}: ", rank) : "", line);
  std::fflush(errors);
#ifdef MONGE_HAVE_MPI
  if (under_mpirun()) MPI_Abort(MPI_COMM_WORLD, kFailed);  // Others may wait for this rank.
#endif
}

}  // namespace monge::cli
