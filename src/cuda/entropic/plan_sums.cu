#include "cuda/entropic/plan_sums.cuh"

#include <algorithm>

#include "cuda/launch/queue.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {

int plan_sum_parts(int size) {
  return sum_parts(size);
}

void sum_plan(PlanSumsArguments const& arguments, Queue const& queue) {
  using Sum = Kernel<PlanSumsArguments>;
  int const parts = sum_parts(arguments.sums[0].points.size) + sum_parts(arguments.sums[1].points.size);
  queue.launch(arguments.sums[0].points.scalar == DataType::float32
                   ? Sum{sum_plan_kernel<SoftminPoints<float>>, sum_plan_kernel<SoftminPoints<float>>}
                   : Sum{sum_plan_kernel<SoftminPoints<double>>, sum_plan_kernel<SoftminPoints<double>>},
               {parts, kSumThreads}, arguments);
}

void sum_plan(JoinedSumsArguments const& arguments, Queue const& queue) {
  int const parts = sum_parts(arguments.points[0].size) + sum_parts(arguments.points[1].size);
  queue.launch(Kernel<JoinedSumsArguments>{sum_plan_kernel<JoinedPoints>, sum_plan_kernel<JoinedPoints>},
               {parts, kSumThreads}, arguments);
}

}  // namespace monge::cuda
