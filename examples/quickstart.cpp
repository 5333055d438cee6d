#include <cstdio>
#include <monge/monge.hpp>

int main() {
  double const x[] = {0, 0, 1, 0, 0, 1}, y[] = {5, 5, 6, 5, 5, 6, 6, 6};  // three points in the plane, and four
  monge::Plan const plan = monge::solve(monge::Context::cpu(), monge::PointCloud{{x, 3, 2}, {y, 4, 2}}, {.eps = 0.1});
  std::printf("<C, P> = %.4f, marginal error %.1e\n", plan.report().transport_cost, plan.report().marginal_error);
}
