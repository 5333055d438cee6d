#include <cstddef>
#include <iterator>
#include <tuple>
#include <type_traits>

#include <monge/gromov.hpp>

#include "core/numbers.hpp"
#include "core/require.hpp"
#include "core/strided.hpp"
#include "geometry/validation.hpp"
#include "gromov/gromov_state.hpp"
#include "ranks/ranks.hpp"

namespace monge {
namespace {

/// What the derivatives of one side take from the plan: the images of the other side's points, norms and features.
struct Images {
  DenseMatrix points, features;  // P y, P t
  DenseVector norms;             // P Y
};

Images images_of(Gromov const& result, GromovSide const& of, std::int64_t size, bool transposed) {
  std::int64_t const d = of.points.cols(), r = of.features.cols();
  DenseMatrix values(of.points.rows(), 1 + d + r);
  values << of.norms, of.points, of.features;
  DenseMatrix images = DenseMatrix::Zero(size, 1 + d + r);
  if (result.plan) {
    transposed ? result.plan->apply_transpose(view_of(values), view_of(images))
               : result.plan->apply(view_of(values), view_of(images));
  } else {
    ExactPlan const& plan = *result.exact;
    for (std::int64_t i = 0; i < plan.rows(); ++i) {
      for (std::int64_t e = plan.row_begin[to_size(i)]; e < plan.row_begin[to_size(i + 1)]; ++e) {
        std::int64_t const j = plan.column_indices[to_size(e)];
        images.row(transposed ? j : i) += plan.values[to_size(e)] * values.row(transposed ? i : j);
      }
    }
  }
  return {images.middleCols(1, d), images.rightCols(r), images.col(0)};
}

void write(DenseMatrix const& from, MutableMatrixView to) {
  for (std::int64_t i = 0; i < to.rows(); ++i)
    with_data(to, [&](auto* data) {
      using T = std::remove_pointer_t<decltype(data)>;
      for (std::int64_t k = 0; k < to.columns(); ++k) data[i * to.row_stride() + k] = static_cast<T>(from(i, k));
    });
}

/// The derivatives by one side, whose cross moment with the other one is `cross`.
struct SideGradients {
  GromovProblem const& problem;
  GromovSide const &own, &other;
  Images const& images;
  DenseMatrix const& cross;

  DenseVector third() const { return own.points.transpose() * own.weights.cwiseProduct(own.norms); }
  DenseVector mixed() const { return own.points.transpose() * images.norms; }

  DenseMatrix by_points() const {
    DenseVector const shift = mixed() - third();
    DenseVector const factor = problem.total() * own.weights.cwiseProduct(own.norms) +
                               (own.norm - other.norm) * own.weights - problem.total() * images.norms;
    DenseMatrix result = factor.asDiagonal() * own.points + 2 * own.weights.asDiagonal() * own.points * own.moment -
                         2 * images.points * cross.transpose();
    result += own.weights * shift.transpose();
    return 8 * problem.alpha() * result;
  }

  DenseMatrix by_features() const {
    DenseVector const offset = own.centre_of_features - other.centre_of_features;
    DenseMatrix result = own.weights.asDiagonal() * own.features - images.features;
    result += own.weights * offset.transpose();
    return 2 * (1 - problem.alpha()) * result;
  }

  /// The part of the potential of each point that the costs of the last step leave out.
  DenseVector potential() const {
    double const alpha = problem.alpha(), total = problem.total();
    DenseVector const x = own.norms;
    DenseVector square = total * x.cwiseAbs2() + 2 * own.norm * x +
                         4 * (own.points * own.moment).cwiseProduct(own.points).rowwise().sum() -
                         4 * own.points * third();
    square.array() += own.square;
    DenseVector result = alpha * (2 * square - 4 * other.norm * x + 8 * own.points * mixed());
    if (own.features.cols() > 0)
      result += (1 - alpha) * (own.features.rowwise().squaredNorm() +
                               2 * own.features * (own.centre_of_features - other.centre_of_features));
    return result;
  }
};

}  // namespace

void Gromov::gradients(GromovGradients const& out) const {
  GromovProblem const& problem = *state->problem;
  Device const host;
  in_step(
      state->context, "Gromov::gradients", [](Digests&) {},
      [&] {
        if (report.method == GromovMethod::proximal)
          throw Error(ErrorCode::unsupported,
                      "gradients: the method is proximal, whose plan is no minimiser; must be alternating");
        GromovSide const &x = problem.source(), &y = problem.target();
        auto const check = [&](char const* field, MutableMatrixView view, DenseMatrix const& like) {
          if (view.data() != nullptr) validate_matrix(field, view, like.rows(), like.cols(), host);
        };
        check("x", out.x, x.points);
        check("y", out.y, y.points);
        check("s", out.s, x.features);
        check("t", out.t, y.features);
        for (auto const& [field, view, size] :
             {std::tuple{"a", out.a, x.weights.size()}, {"b", out.b, y.weights.size()}})
          if (view.data() != nullptr) validate_vector(field, view, size, host);

        Images const of_x = images_of(*this, y, x.points.rows(), false),
                     of_y = images_of(*this, x, y.points.rows(), true);
        DenseMatrix const cross = x.points.transpose() * of_x.points, turned = cross.transpose();
        SideGradients const source{problem, x, y, of_x, cross}, target{problem, y, x, of_y, turned};
        if (out.x.data() != nullptr) write(source.by_points(), out.x);
        if (out.y.data() != nullptr) write(target.by_points(), out.y);
        if (out.s.data() != nullptr) write(source.by_features(), out.s);
        if (out.t.data() != nullptr) write(target.by_features(), out.t);
        double const constant =
            report.eps * (problem.total() - 1) + ((1 - problem.alpha()) * problem.feature_offset() / problem.total() -
                                                  4 * problem.alpha() * x.norms.dot(of_x.norms)) /
                                                     2;
        auto const potential = [&](MutableVectorView to, SideGradients const& side, std::vector<double> const& linear) {
          if (to.data() == nullptr) return;
          DenseVector const rest = side.potential();
          write_vector(to, [&](std::int64_t i) { return linear[to_size(i)] + rest(i) + constant; });
        };
        potential(out.a, source, plan ? plan->f() : exact->f);
        potential(out.b, target, plan ? plan->g() : exact->g);
      });
}

void Gromov::source_features(MatrixView points, MatrixView features, MutableMatrixView out) const {
  GromovProblem const& problem = *state->problem;
  Backend const& backend = backend_of(state->context);
  in_step(
      state->context, "Gromov::source_features", [](Digests&) {},
      [&] {
        std::int64_t const p = problem.source().points.cols(), r = problem.source().features.cols();
        validate_matrix("points", points, points.rows(), p, backend.device());
        validate_matrix("features", features, r > 0 ? points.rows() : features.rows(), r, backend.device());
        validate_matrix("out", out, points.rows(), std::ssize(u) / problem.source().points.rows(), Device{});
        write(problem.source_features(read_finite("points", backend, points),
                                      read_finite("features", backend, features), state->used),
              out);
      });
}

}  // namespace monge
