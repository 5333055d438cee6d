#include "cuda/pass/pass_difference.cuh"

#include "cuda/launch/occupancy.hpp"
#include "cuda/pass/pass.hpp"

namespace monge::cuda {
namespace {

/// function.operator()<kDimension>() for the smallest instantiated dimension that holds `dimension`.
template <class Function>
auto with_dimension(int dimension, Function&& function) {
  if (dimension <= 1) return function.template operator()<1>();
  if (dimension <= 2) return function.template operator()<2>();
  if (dimension <= 3) return function.template operator()<3>();
  if (dimension <= 4) return function.template operator()<4>();
  if (dimension <= 6) return function.template operator()<6>();
  return function.template operator()<8>();
}

template <int kDimension>
Kernel<PassArguments> kernel_for(Pass pass) {
  if (pass == Pass::product) return {pass_difference<kDimension, Pass::product, One<PassArguments>>, nullptr};
  return {pass_difference<kDimension, Pass::softmin, One<PassArguments>>,
          pass_difference<kDimension, Pass::softmin, Many<PassArguments>>};
}

}  // namespace

PassPlan plan_difference(PassChoice const& choice, Operand const& rows, Operand const& columns) {
  return with_dimension(rows.dimension, [&]<int kDimension>() {
    using Policy = DifferencePolicy<kDimension>;
    PassPlan plan;
    plan.pass = choice.pass;
    plan.kernel = ScoreKernel::difference;
    plan.variant = kDimension;
    plan.work = plan_work(
        (rows.padded_size + Policy::kRows - 1) / Policy::kRows, Policy::kRows, columns.padded_size / Policy::kColumns,
        choice.multiprocessors *
            occupancy_of(kernel_for<kDimension>(choice.pass).one, Policy::kThreads, 0).resident_blocks);
    return plan;
  });
}

void launch_difference(PassPlan const& plan, PassArguments const& arguments, Queue const& queue) {
  with_dimension(plan.variant, [&]<int kDimension>() {
    using Policy = DifferencePolicy<kDimension>;
    queue.launch(kernel_for<kDimension>(plan.pass), {plan.work.grid, Policy::kThreads}, arguments);
  });
}

}  // namespace monge::cuda
