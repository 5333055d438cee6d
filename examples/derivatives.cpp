#include <cstdio>
#include <monge/monge.hpp>
#include <vector>

int main() {
  std::vector<double> x = {0, 0, 1, 0, 0, 1};              // three points in the plane, which move
  std::vector<double> const y = {5, 5, 6, 5, 5, 6, 6, 6};  // towards these four
  monge::PointCloud const clouds{{x.data(), 3, 2}, {y.data(), 4, 2}};
  std::vector<double> gradient(x.size());
  double value = 0;
  for (int step = 0; step < 20; ++step) {
    monge::Plan const plan = monge::solve(monge::Context::cpu(), clouds, {.eps = 0.1});
    monge::GradientReport const report = plan.gradients({.x = {gradient.data(), 3, 2}});
    if (step % 5 == 0) std::printf("OT = %.4f, its gradient right to %.0e\n", plan.report().dual, report.distance);
    for (std::size_t k = 0; k < x.size(); ++k) x[k] -= 0.5 * gradient[k];
    value = plan.report().dual;
  }
  std::printf("at last OT = %.4f\n", value);
  return 0;
}
