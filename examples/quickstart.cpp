#include <cstdio>
#include <monge/monge.hpp>
#include <vector>

int main() {
  std::vector<double> const x = {0, 0, 1, 0, 0, 1};        // three points in the plane
  std::vector<double> const y = {5, 5, 6, 5, 5, 6, 6, 6};  // and four to take them to
  monge::PointCloud const clouds{{x.data(), 3, 2}, {y.data(), 4, 2}};
  monge::Plan const plan = monge::solve(monge::Context::cpu(), clouds, {.eps = 0.1});

  std::vector<double> map(x.size());  // where each x goes, on average
  plan.barycentric_projection({map.data(), 3, 2});
  for (int i = 0; i < 3; ++i) std::printf("x%d -> (%.3f, %.3f)\n", i, map[2 * i], map[2 * i + 1]);
  std::printf("<C, P> = %.4f, marginal error %.1e\n", plan.report().transport_cost, plan.report().marginal_error);
  return plan.status() == monge::Status::converged ? 0 : 1;
}
