#include "gromov/gromov_problem.hpp"

#include <cmath>
#include <type_traits>

#include "core/strided.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"

namespace monge {

ImagePolytope GromovProblem::polytope() const {
  throw Error(ErrorCode::unsupported,
              "gap: is given for matrices; must be infinity, since branch and bound is for points");
}

DenseMatrix read_finite(char const* field, Backend const& backend, MatrixView view, char const* entries) {
  std::vector<double> const values = backend.read(view);
  DenseMatrix matrix(view.rows(), view.columns());
  auto value = values.begin();
  for (std::int64_t i = 0; i < view.rows(); ++i) {
    for (std::int64_t k = 0; k < view.columns(); ++k) {
      matrix(i, k) = *value++;
      if (!std::isfinite(matrix(i, k))) throw_not_finite(field, i, k, matrix(i, k), entries);
    }
  }
  return matrix;
}

std::optional<DenseMatrix> read_start(Backend const& backend, GromovOptions const& options, std::int64_t rows,
                                      std::int64_t columns) {
  if (options.cross_moment.data() == nullptr) return {};
  validate_matrix("cross_moment", options.cross_moment, rows, columns, backend.device());
  return read_finite("cross_moment", backend, options.cross_moment);
}

void write(DenseMatrix const& from, MutableMatrixView to) {
  for (std::int64_t i = 0; i < to.rows(); ++i)
    with_data(to, [&](auto* data) {
      using T = std::remove_pointer_t<decltype(data)>;
      for (std::int64_t k = 0; k < to.columns(); ++k) data[i * to.row_stride() + k] = static_cast<T>(from(i, k));
    });
}

}  // namespace monge
