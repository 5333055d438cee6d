#include <algorithm>
#include <cstdio>
#include <monge/monge.hpp>
#include <random>
#include <vector>

int main() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> clouds;  // of 20, 25, ... points in space
  for (int i = 0; i <= 100; ++i) {
    clouds.emplace_back(3 * (20 + 5 * i));
    std::generate(clouds[i].begin(), clouds[i].end(), [&] { return normal(random); });
  }
  std::vector<monge::BatchProblem> problems;  // each cloud to the next
  for (int i = 0; i < 100; ++i) {
    monge::MatrixView const x(clouds[i].data(), 20 + 5 * i, 3), y(clouds[i + 1].data(), 25 + 5 * i, 3);
    problems.push_back({monge::PointCloud{x, y}});
  }
  std::vector<monge::Plan> const plans =
      monge::solve_batch(monge::Context::cpu(), problems, {.eps = 0.5, .tolerance = 1e-3});
  auto const converged = [](monge::Plan const& plan) { return plan.status() == monge::Status::converged; };
  std::printf("%d of 100 converged, the last to <C, P> = %.4f\n",
              static_cast<int>(std::count_if(plans.begin(), plans.end(), converged)),
              plans.back().report().transport_cost);
  return converged(plans.back()) ? 0 : 1;
}
