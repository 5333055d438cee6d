// Under mpirun: ranks of MPI have the bits of one rank, and a rank in trouble ends the call on all ranks.
//   mpi_test         all tests
//   mpi_test killed  the last rank kills itself in a call
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

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

/// Rank r has 3 r rows, so rank 0 has none.
void test_rows(int rank, int size) {
  std::vector<float> mine;
  for (int i = 0; i < 3 * rank; ++i) mine.insert(mine.end(), {static_cast<float>(rank), static_cast<float>(i)});
  Communicator const ranks = mpi_communicator(MPI_COMM_WORLD);
  GatheredRows<float> const rows = gather_rows(ranks, std::span<float const>(mine), 2);
  std::vector<float> all;
  for (int r = 0; r < size; ++r)
    for (int i = 0; i < 3 * r; ++i) all.insert(all.end(), {static_cast<float>(r), static_cast<float>(i)});
  require_that(rows.all == all, "the rows of all ranks");
  require_that(rows.begin == 3 * rank * (rank - 1) / 2 && rows.end - rows.begin == 3 * rank, "the rows of a rank");
}

/// Counts the pages of a mapping that this process reads.
struct ReadPages {
  static inline std::byte *begin = nullptr, *end = nullptr;
  static inline std::int64_t bytes = 0;

  static void open(int, siginfo_t* info, void*) {
    std::byte* const page = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(info->si_addr) & ~4095UL);
    if (page < begin || page >= end || mprotect(page, 4096, PROT_READ) != 0) std::abort();
    bytes += 4096;
  }
};

/// A rank reads its rows of a matrix in a file, and the pieces by which ranks compare the matrix.
void test_mapped_costs(int rank, int size) {
  std::int64_t const n = 2000, m = 4096, all = n * m * 8;
  // Another number of ranks may run at the same time.
  std::string const name = "mpi_test_costs_" + std::to_string(size);
  if (rank == 0) {
    Random random(1);
    std::vector<double> const costs = gaussian_points(n, m, random);
    std::ofstream(name).write(reinterpret_cast<char const*>(costs.data()), all);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  int const file = open(name.c_str(), O_RDONLY);
  void* const memory = mmap(nullptr, static_cast<std::size_t>(all), PROT_NONE, MAP_PRIVATE, file, 0);
  require_that(memory != MAP_FAILED, "the mapping");
  ReadPages::begin = static_cast<std::byte*>(memory);
  ReadPages::end = ReadPages::begin + all;
  struct sigaction action {};
  action.sa_sigaction = ReadPages::open;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  auto const potentials = [&](Context const& context) {
    CostMatrix const costs{{static_cast<double const*>(memory), n, m}};
    Plan const plan = solve(context, costs, {.eps = 1, .tolerance = 1e-4});
    return std::pair(plan.f(), plan.g());
  };
  auto const shared = potentials(Context::distributed(mpi_communicator(MPI_COMM_WORLD), 1));
  // Shares differ by 8 rows at most. A piece of 4096 bytes is two pages at most.
  std::int64_t const most = all / size + 8 * 8 * m + 1024 * 2 * 4096;
  require_that(ReadPages::bytes >= all / size / 2 && ReadPages::bytes <= most, "a rank reads its share of the costs");
  require_that(shared == potentials(Context::cpu(size)), "equal bits of mapped costs");
  signal(SIGSEGV, SIG_DFL);
  MPI_Barrier(MPI_COMM_WORLD);
  munmap(memory, static_cast<std::size_t>(all));
  close(file);
  if (rank == 0) std::remove(name.c_str());
}

Problem problem_of_tests() {
  return make_problem({.n = 905, .m = 801, .d = 3, .weights = Weights::with_zeros});
}

/// The message of the exception of `call`; empty without one.
std::string error_of(std::function<void()> const& call) {
  try {
    call();
    return "";
  } catch (std::exception const& error) {
    return error.what();
  }
}

/// A solve that calls `act` after some sweeps.
void solve_and(Context const& context, std::function<void()> const& act) {
  Problem const problem = problem_of_tests();
  auto const progress = [&](Progress const& progress) {
    if (progress.iteration > 5) act();
    return true;
  };
  solve(context, problem.geometry(), problem.a, problem.b, {.eps = 0.5, .tolerance = 1e-4, .progress = progress});
}

#ifndef __SANITIZE_ADDRESS__  // It needs an address space without end.
/// Bytes of this process.
std::size_t address_space() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}
#endif

void test(int rank, int size) {
  Problem const problem = problem_of_tests();
  auto const potentials = [&](Context const& context) {
    Plan const plan = solve(context, problem.geometry(), problem.a, problem.b, {.eps = 0.5, .tolerance = 1e-4});
    std::vector<float> dense(static_cast<std::size_t>(problem.n() * problem.m()));
    plan.dense({dense.data(), problem.n(), problem.m()});
    return std::tuple(plan.f(), plan.g(), dense);
  };
  Context const context = Context::distributed(mpi_communicator(MPI_COMM_WORLD), 1);
  auto const expected = potentials(Context::cpu(size));
  require_that(potentials(context) == expected, "equal bits");
  if (size == 1) return;

  bool const troubled = rank == size - 1;
  std::string const troubled_name = "rank " + std::to_string(size - 1);
  // Not a number on one rank.
  std::vector<double> x = problem.x.values();
  if (troubled) x[100] = std::numeric_limits<double>::quiet_NaN();
  std::string message = error_of([&] {
    solve(context, PointCloud{{x.data(), problem.n(), 3}, problem.y.view()}, {}, {}, {.eps = 1});
  });
  require_that(message == "x: " + troubled_name + " has another value than rank 0; must be equal on all ranks",
               "NaN on one rank");
#ifndef __SANITIZE_ADDRESS__
  // One rank has too little memory for its share of a plan.
  Problem const large = make_problem({.n = 9000, .m = 8900, .d = 3});
  Plan const plan = solve(context, large.geometry(), large.a, large.b, {.eps = 0.5, .tolerance = 1e-2});
  std::vector<float> dense(static_cast<std::size_t>(large.n() * large.m()));
  rlimit whole{};
  getrlimit(RLIMIT_AS, &whole);
  rlimit little = whole;
  little.rlim_cur = address_space() + (std::size_t{1} << 20);
  if (troubled) setrlimit(RLIMIT_AS, &little);
  message = error_of([&] { plan.dense({dense.data(), large.n(), large.m()}); });
  setrlimit(RLIMIT_AS, &whole);
  require_that(message == (troubled ? "" : troubled_name + ": ") + "Plan::dense: the host has too little memory",
               "out of memory on one rank");
#endif
  require_that(potentials(context) == expected, "the context stays usable");

  // One rank makes no call.
  Context const short_of_time = Context::distributed(mpi_communicator(MPI_COMM_WORLD, 2), 1);
  message = error_of([&] {
    if (!troubled) potentials(short_of_time);
  });
  require_that(troubled || message.starts_with("ranks: not all of the"), "a rank without a call");

  // One rank is stopped within a call.
  Context const stopped = Context::distributed(mpi_communicator(MPI_COMM_WORLD, 2), 1);
  std::vector<int> pids(static_cast<std::size_t>(size));
  int const pid = getpid();
  MPI_Allgather(&pid, 1, MPI_INT, pids.data(), 1, MPI_INT, MPI_COMM_WORLD);
  message = error_of([&] {
    solve_and(stopped, [&] {
      if (troubled) std::raise(SIGSTOP);
    });
  });
  require_that(message.starts_with("ranks: not all of the"), "a stopped rank");
  if (rank == 0) kill(pids.back(), SIGCONT);
  require_that(potentials(context) == expected, "another context stays usable");
}

}  // namespace
}  // namespace monge::oracle

int main(int argc, char** argv) {
  int provided = 0, rank = 0, size = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1 && std::string_view(argv[1]) == "killed") {
    using namespace monge;
    oracle::solve_and(Context::distributed(mpi_communicator(MPI_COMM_WORLD), 1), [&] {
      if (rank == size - 1) std::raise(SIGKILL);
    });
  } else {
    monge::oracle::test(rank, size);
    monge::oracle::test_rows(rank, size);
    // After test(), whose rank without memory would find what this test gives back.
    monge::oracle::test_mapped_costs(rank, size);
  }
  if (rank == 0) std::printf("mpi_test: %d ranks passed\n", size);
  MPI_Finalize();
}
