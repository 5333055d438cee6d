// A user's first program in C++: a problem of one's own, its certificate and its gradient, from an installed Monge.
// The value changes with the place of a bakery as the gradient says: the difference quotient of two solves agrees.
#include <cmath>
#include <cstdio>
#include <exception>
#include <monge/monge.hpp>
#include <random>
#include <vector>

#if MONGE_VERSION < 100
#error "Monge 0.1 or newer"
#endif

int main() try {
  int const bakeries = 40, cafes = 60;
  std::mt19937 random(2026);
  std::uniform_real_distribution<double> place(0, 10);
  std::vector<double> x(2 * bakeries), y(2 * cafes);
  for (double& coordinate : x) coordinate = place(random);
  for (double& coordinate : y) coordinate = place(random);

  auto const solve = [&] {
    return monge::solve(monge::Context::cpu(), monge::PointCloud{{x.data(), bakeries, 2}, {y.data(), cafes, 2}},
                        {.eps = 2, .tolerance = 1e-10});
  };
  monge::Plan const plan = solve();
  std::vector<double> gradient(x.size());
  plan.gradients({.x = {gradient.data(), bakeries, 2}});
  // A cost has slopes of at most 20, so the third derivative of the value is of the size 20^3 / eps^2, a hundred times
  // a slope. The central difference misses step^2 / 6 of it, 2e-5 of the slope. The error of a solve is of the second
  // order.
  double const step = 1e-3;
  x[0] += step;
  double const ahead = solve().report().dual;
  x[0] -= 2 * step;
  double const behind = solve().report().dual, slope = (ahead - behind) / (2 * step);
  std::printf("monge %s, marginal error %.0e, slope %.6f, by the gradient %.6f\n", monge::version().c_str(),
              plan.report().marginal_error, slope, gradient[0]);
  if (plan.status() != monge::Status::converged || std::abs(slope - gradient[0]) > 1e-4 * std::abs(slope)) return 1;

  // An exception of the library is caught by its own type.
  try {
    monge::solve(monge::Context::cpu(), monge::PointCloud{}, {.eps = -1});
    return 1;
  } catch (monge::Error const& error) {
    std::printf("%s\n", error.what());
  }
  return 0;
} catch (std::exception const& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
