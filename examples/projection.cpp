#include <cstdio>
#include <monge/monge.hpp>
#include <vector>

int main() {
  std::vector<float> const logits = {1, 0, 0, 2, 0, 1, 3, 0};  // two matrices of 2 x 2
  std::vector<float> plans(logits.size()), d_logits(logits.size());
  monge::Context const context = monge::Context::cpu();  // or Context::cuda()
  monge::ProjectionOptions const options = monge::projection_preset("mhc_paper");
  monge::project(context, {logits.data(), 2, 2, 2}, {plans.data(), 2, 2, 2}, options);

  std::vector<float> const d_plans = {1, 0, 0, 0, 1, 0, 0, 0};  // gradient of the sum of both upper left entries
  monge::project_backward(context, {logits.data(), 2, 2, 2}, {d_plans.data(), 2, 2, 2}, {d_logits.data(), 2, 2, 2},
                          options);
  for (int t = 0; t < 2; ++t)
    std::printf("[%.4f %.4f; %.4f %.4f], d P_00 / d x_00 = %.4f\n", plans[4 * t], plans[4 * t + 1], plans[4 * t + 2],
                plans[4 * t + 3], d_logits[4 * t]);
  return 0;
}
