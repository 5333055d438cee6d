#include "ranks.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <monge/error.hpp>

#include "exit_code.hpp"
#ifdef MONGE_HAVE_MPI
#include <unistd.h>

#include <monge/mpi.hpp>
#endif

namespace monge::cli {
namespace {

int rank = 0;
[[maybe_unused]] int size = 1;  // Without MPI nothing asks for it.
std::FILE* errors = stderr;

/// From the environment that Open MPI and MPICH give to their processes.
int started_processes() {
  for (char const* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (char const* const value = std::getenv(name)) return std::atoi(value);
  }
  return 1;
}

}  // namespace

void begin_ranks() {
  if (started_processes() <= 1) return;
#ifdef MONGE_HAVE_MPI
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == 0) return;
  errors = fdopen(dup(STDERR_FILENO), "w");
  for (std::FILE* const stream : {stdout, stderr}) {
    if (std::freopen("/dev/null", "w", stream) == nullptr)
      throw Error(ErrorCode::input_output, "/dev/null: cannot be opened; must be there for ranks other than 0");
  }
#else
  throw Error(ErrorCode::unsupported,
              "ranks: mpirun started more than one process; this build has no MPI (configure with MONGE_MPI=ON)");
#endif
}

bool is_first_rank() {
  return rank == 0;
}

std::optional<Communicator> communicator() {
#ifdef MONGE_HAVE_MPI
  if (size > 1) return mpi_communicator(MPI_COMM_WORLD);
#endif
  return std::nullopt;
}

LocalRank local_rank() {
  LocalRank local;
#ifdef MONGE_HAVE_MPI
  if (size == 1) return local;
  MPI_Comm machine = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &local.rank);
  MPI_Comm_size(machine, &local.size);
  MPI_Comm_free(&machine);
#endif
  return local;
}

void end_ranks() {
#ifdef MONGE_HAVE_MPI
  if (size > 1) MPI_Finalize();
#endif
}

void print_error(std::string const& line) {
  // Rank 0 often has the same error; it then ends all ranks with one line.
  if (rank > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  fmt::print(errors, "monge: error: {}{}\n", rank > 0 ? fmt::format("rank {}: ", rank) : "", line);
  std::fflush(errors);
#ifdef MONGE_HAVE_MPI
  if (size > 1) MPI_Abort(MPI_COMM_WORLD, kFailed);  // Others may wait for this rank.
#endif
}

}  // namespace monge::cli
