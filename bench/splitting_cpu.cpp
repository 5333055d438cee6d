// Time of an iteration of splitting on the CPU beside that of a copy that moves as many bytes through as much memory:
// `splitting_cpu [N...]`, a table on stdout. An iteration moves 2.5 values an entry, costs and X in turns.
#include <fmt/format.h>
#include <omp.h>
#include <monge/monge.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/stopwatch.hpp"
#include "oracle/regularized.hpp"
#include "provenance.hpp"
#include "seam/backend.hpp"

namespace {

using namespace monge;

/// Seconds of one of `count` times that work(count) does something: the least of many runs, as others may use the
/// machine.
template <class Work>
double seconds_of(int count, Work&& work) {
  double least = 1e300;
  for (Stopwatch total; total.seconds() < 0.5;) {
    Stopwatch const watch;
    work(count);
    least = std::min(least, watch.seconds() / count);
  }
  return least;
}

/// A copy that moves `values` values of T, of them half each way, between two arrays of n x n.
template <class T>
double seconds_of_copy(std::int64_t n, int count) {
  std::size_t const size = static_cast<std::size_t>(n * n);
  std::vector<T> from(size, T(1)), to(size);
  int const team = omp_get_max_threads();
  auto const copy = [&](int times) {
#pragma omp parallel num_threads(team)
    {
      std::size_t const thread = static_cast<std::size_t>(omp_get_thread_num()), parts = static_cast<std::size_t>(team);
      std::size_t const begin = size * thread / parts, end = size * (thread + 1) / parts;
      for (int k = 0; k < times; ++k) {
        // Not quite a copy, which a compiler would hand to the library with its stores past the caches.
        for (std::size_t e = begin; e < end; ++e) to[e] = from[e] + 1;
#pragma omp barrier
      }
    }
  };
  copy(1);
  return seconds_of(count, copy) * 2.5 / 2;
}

void report(oracle::RegularizedRecipe const& recipe, Precision precision) {
  oracle::RegularizedData const data(recipe);
  Context const context = Context::cpu();
  RegularizedInput const input = data.input();
  auto const splitting = std::move(oracle::make_splitting(backend_of(context), {&input, 1}, precision)[0]);
  splitting->start(2.0 / static_cast<double>(2 * recipe.n));
  splitting->iterate(20);
  int const count = static_cast<int>(std::max<std::int64_t>(10000000 / (recipe.n * recipe.n), 2)) / 2 * 2;
  double const seconds = seconds_of(count, [&](int times) { splitting->iterate(times); });
  double const copy = precision == Precision::float32 ? seconds_of_copy<float>(recipe.n, count)
                                                      : seconds_of_copy<double>(recipe.n, count);
  Stopwatch const watch;
  splitting->evaluate();
  fmt::print("{}\t{}\t{}\t{:.1f}\t{:.1f}\t{:.2f}\t{:.2f}\n", recipe.n, recipe.name, name(precision), 1e6 * seconds,
             1e6 * copy, seconds / copy, 1e3 * watch.seconds());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::int64_t> sizes;
  for (int k = 1; k < argc; ++k) sizes.push_back(std::strtoll(argv[k], nullptr, 10));
  if (sizes.empty()) sizes = {1000, 1024, 4096};
  fmt::print("# {{{}}}\n", bench::provenance_on());
  fmt::print("n\tterms\tprecision\tus an iteration\tus a copy\tover copy\tms an evaluation\n");
  for (std::int64_t const n : sizes) {
    oracle::RegularizedRecipe const base{.n = n, .m = n, .storage = DataType::float32};
    auto const with = [&](std::string_view name, auto&& change) {
      oracle::RegularizedRecipe recipe = base;
      recipe.name = name;
      change(recipe);
      for (Precision const precision : {Precision::float32, Precision::float64}) report(recipe, precision);
    };
    with("none", [](auto&) {});
    with("quadratic", [](auto& recipe) { recipe.quadratic = 1; });
    for (std::int64_t const groups : {2, 16, 64}) {
      with(fmt::format("group_lasso_{}", groups), [&](auto& recipe) {
        recipe.group_lasso = 0.01;
        recipe.groups = groups;
      });
    }
    with("hypentropy", [](auto& recipe) { recipe.hypentropy = 0.05; });
    with("hypentropy_group_lasso_16", [](auto& recipe) {
      recipe.hypentropy = 0.05;
      recipe.group_lasso = 0.01;
      recipe.groups = 16;
    });
    with("hypentropy_dense", [](auto& recipe) {  // Few entries are 0.
      recipe.hypentropy = 1;
      recipe.hypentropy_width = 1e-6;
    });
  }
}
