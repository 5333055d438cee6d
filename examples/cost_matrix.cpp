#include <cstdio>
#include <limits>
#include <monge/monge.hpp>
#include <vector>

int main() {
  double const never = std::numeric_limits<double>::infinity();      // forbids a pair
  std::vector<double> const cost = {never, 1, 3, 2, 0, 5, 3, 1, 2};  // three workers, each a row, and three jobs
  monge::CostMatrix const matrix{{cost.data(), 3, 3}};               // read in place
  monge::Plan const plan = monge::solve(monge::Context::cpu(), matrix, {.eps = 0.1});

  std::vector<double> const wages = {30, 20, 10};  // of the jobs
  std::vector<double> earned(3);                   // what each worker earns, on average
  plan.barycentric_projection({wages.data(), 3, 1}, {earned.data(), 3, 1});
  for (int i = 0; i < 3; ++i) std::printf("worker %d earns %.2f\n", i, earned[i]);
  std::printf("<C, P> = %.4f\n", plan.report().transport_cost);
  return plan.status() == monge::Status::converged ? 0 : 1;
}
