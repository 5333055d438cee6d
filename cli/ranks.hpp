// The processes that mpirun has started, if any.
#pragma once
#include <optional>
#include <string>

#include <monge/context.hpp>

namespace monge::cli {

/// Begins MPI where mpirun has started more than one process. Ranks other than 0 print nothing from here on, and
/// ResultFolder writes nothing there. Throws unsupported in a build without MPI.
void begin_ranks();
/// Whether this process prints and writes.
bool is_first_rank();
/// None for one process.
std::optional<Communicator> communicator();
/// The rank of this process among the processes of its machine, and the number of these processes.
struct LocalRank {
  int rank = 0, size = 1;
};
LocalRank local_rank();
/// Ends MPI after the work.
void end_ranks();
/// Prints the line of an error, with the number of the rank if there are several, which it then ends.
void print_error(std::string const& line);

}  // namespace monge::cli
