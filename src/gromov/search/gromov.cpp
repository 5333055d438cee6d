#include <monge/gromov.hpp>

#include <string_view>
#include <utility>

#include "geometry/validation.hpp"
#include "gromov/gromov_state.hpp"
#include "gromov/matrix_problem.hpp"
#include "gromov/open_matrices.hpp"
#include "gromov/open_points.hpp"
#include "gromov/point_problem.hpp"
#include "gromov/search/gromov_solve.hpp"
#include "ranks/ranks.hpp"

namespace monge {
namespace {

template <class Balanced, class Open>
std::unique_ptr<GromovProblem const> make_problem(Context const& context, auto const& input, VectorView a, VectorView b,
                                                  GromovOptions const& options) {
  Backend const& backend = backend_of(context);
  if (options.marginals == GromovMarginals::balanced)
    return std::make_unique<Balanced const>(backend, input, a, b, options);
  return std::make_unique<Open const>(backend, input, a, b, options);
}

/// The call on either kind of problem. `add_inputs` adds the problem's own inputs to the digests; `make` reads and
/// checks them and returns the problem; it may change the options.
template <class AddInputs, class Make>
Gromov solve(Context const& context, AddInputs const& add_inputs, VectorView a, VectorView b,
             GromovOptions const& options, Make const& make) {
  auto const inputs = [&](Digests& inputs) {
    visit_gromov_options(options, inputs);
    inputs.add("progress", static_cast<bool>(options.progress));
    add_inputs(inputs);
    inputs.add("a", a);
    inputs.add("b", b);
    inputs.add("cross_moment", options.cross_moment);
  };
  return in_step(context, "solve_gromov", inputs, [&] {
    visit_gromov_options(options, kCheckField);
    require(options.method == GromovMethod::alternating || options.eps > 0,
            "method: is proximal without entropy; must be alternating");
    using enum GromovMarginals;
    std::string_view const kind = name(options.marginals);
    for (auto const& [field, penalty] : {std::pair("penalty_a", options.penalty_a), {"penalty_b", options.penalty_b}}) {
      require((options.marginals == unbalanced) == (penalty > 0),
              "{}: is {} and marginals are {}; must be > 0 for unbalanced ones, otherwise 0", field, penalty, kind);
    }
    require(options.marginals == partial || options.mass == 0,
            "mass: is {} and marginals are {}; must be 0, or marginals partial", options.mass, kind);
    auto const support = [](bool supported, char const* message) {
      if (!supported) throw Error(ErrorCode::unsupported, message);
    };
    bool const is_unbalanced = options.marginals == unbalanced;
    support(!is_unbalanced || options.eps > 0,
            "eps: is 0 and marginals are unbalanced; must be > 0, the entropy of the steps of the method proximal");
    support(options.marginals != partial || options.method == GromovMethod::alternating,
            "method: is proximal and marginals are partial; must be alternating");
    GromovOptions now = options;
    now.progress = agreed(context, options.progress);
    return GromovSolve(context, make(now), now).run();
  });
}

}  // namespace

Gromov solve_gromov(Context const& context, GromovMatrices const& matrices, VectorView a, VectorView b,
                    GromovOptions const& options) {
  auto const inputs = [&](Digests& inputs) {
    inputs.add("source", matrices.source);
    inputs.add("target", matrices.target);
    inputs.add("cost", matrices.cost);
    inputs.add("s", matrices.s);
    inputs.add("t", matrices.t);
    inputs.add("loss", matrices.loss);
  };
  return solve(context, inputs, a, b, options, [&](GromovOptions& now) {
    auto problem = make_problem<MatrixProblem, OpenMatrixProblem>(context, matrices, a, b, now);
    if (now.eps == 0 || !problem->is_whole()) return problem;
    now.marginals = GromovMarginals::balanced;
    now.mass = 0;
    return make_problem<MatrixProblem, OpenMatrixProblem>(context, matrices, a, b, now);
  });
}

Gromov solve_gromov(Context const& context, GromovClouds const& clouds, VectorView a, VectorView b,
                    GromovOptions const& options) {
  auto const inputs = [&](Digests& inputs) {
    inputs.add("x", clouds.x);
    inputs.add("y", clouds.y);
    inputs.add("s", clouds.s);
    inputs.add("t", clouds.t);
  };
  return solve(context, inputs, a, b, options, [&](GromovOptions const&) {
    if (options.marginals == GromovMarginals::partial && options.eps > 0)
      throw Error(ErrorCode::unsupported,
                  "eps: is > 0 and marginals of points are partial; must be 0, or matrices given");
    return make_problem<PointProblem, OpenPointProblem>(context, clouds, a, b, options);
  });
}

void Gromov::gradients(GromovGradients const& out) const {
  in_step(
      state->context, "Gromov::gradients", [](Digests&) {},
      [&] {
        if (report.method == GromovMethod::proximal)
          throw Error(ErrorCode::unsupported,
                      "gradients: the method is proximal, whose plan is no minimiser; must be alternating");
        state->problem->gradients(*this, out);
      });
}

void Gromov::source_features(MatrixView points, MatrixView features, MutableMatrixView out) const {
  Backend const& backend = backend_of(state->context);
  in_step(
      state->context, "Gromov::source_features", [](Digests&) {},
      [&] {
        GromovFeatures const* const of_points = state->problem->features();
        if (of_points == nullptr)
          throw Error(ErrorCode::unsupported, "source_features: the problem is of matrices; must be of points");
        of_points->source_features(backend, *this, points, features, out);
      });
}

}  // namespace monge
