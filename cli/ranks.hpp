// The processes that share the work, if there are several: mpirun has started them, or this program does.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include <monge/context.hpp>

namespace monge::cli {

/// Begins MPI where mpirun has started more than one process. Ranks other than 0 print nothing from here on, and
/// ResultFolder writes nothing there. Throws unsupported in a build without MPI.
void begin_ranks();
/// Makes this process rank 0 of `count` ranks; each of the others, which return too, is a process of its own. Comes
/// before threads and before the first use of CUDA. Not under mpirun.
void start_ranks(int count, double limit);
/// Whether mpirun has started several ranks.
bool under_mpirun();
/// The rank of this process.
int this_rank();
/// Whether this process prints and writes.
bool is_first_rank();
/// None for one process. `limit`: Communicator::limit.
std::optional<Communicator> communicator(double limit);
/// The rank of this process among the processes of its machine, and the number of these processes.
struct LocalRank {
  int rank = 0, size = 1;
};
LocalRank local_rank();
/// The text of rank 0, on every rank. Calls `text` on rank 0 of several alone; all ranks make the call.
std::string of_first_rank(std::function<std::string()> const& text);
/// After the work: the largest exit code of the ranks that mpirun has started, so a signal to one rank gives all of
/// them kInterrupted. Otherwise the given code.
int end_ranks(int exit_code);
/// Prints the line of an error, with the number of the rank if there are several, which it then ends.
void print_error(std::string const& line);

}  // namespace monge::cli
