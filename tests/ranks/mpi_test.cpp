// Under mpirun: ranks of MPI have the bits of one rank, and a rank that does not come ends a call within its limit.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <monge/monge.hpp>
#include <monge/mpi.hpp>

#include "oracle/problem.hpp"

namespace monge::oracle {
namespace {

void require_that(bool holds, char const* what) {
  if (holds) return;
  std::fprintf(stderr, "mpi_test: failed: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

void test(int rank, int size) {
  Problem const problem = make_problem({.n = 905, .m = 801, .d = 3, .weights = Weights::with_zeros});
  auto const potentials = [&](Context const& context) {
    Plan const plan = solve(context, problem.geometry(), problem.a, problem.b, {.eps = 0.5, .tolerance = 1e-4});
    std::vector<float> dense(static_cast<std::size_t>(problem.n() * problem.m()));
    plan.dense({dense.data(), problem.n(), problem.m()});
    return std::tuple(plan.f(), plan.g(), dense);
  };
  Context const context = Context::distributed(mpi_communicator(MPI_COMM_WORLD), 1);
  require_that(potentials(context) == potentials(Context::cpu(size)), "equal bits");

  Context const short_of_time = Context::distributed(mpi_communicator(MPI_COMM_WORLD, 0.5), 1);
  std::string message;
  try {
    if (rank > 0) potentials(short_of_time);
  } catch (Error const& error) {
    message = error.what();
  }
  require_that(rank == 0 || message.starts_with("ranks: not all of the"), "the time limit");
  require_that(potentials(context) == potentials(Context::cpu(size)), "another context stays usable");
}

}  // namespace
}  // namespace monge::oracle

int main(int argc, char** argv) {
  int provided = 0, rank = 0, size = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  monge::oracle::test(rank, size);
  if (rank == 0) std::printf("mpi_test: %d ranks passed\n", size);
  MPI_Finalize();
}
