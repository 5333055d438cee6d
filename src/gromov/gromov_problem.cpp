#include "gromov/gromov_problem.hpp"

#include <cmath>
#include <type_traits>

#include "core/strided.hpp"
#include "geometry/points.hpp"
#include "geometry/validation.hpp"

namespace monge {

DenseMatrix read_finite(char const* field, Backend const& backend, MatrixView view, char const* entries) {
  if (view.rows() == 0 || view.columns() == 0) return DenseMatrix(view.rows(), view.columns());
  // One read, from the first entry to the last, since reads from a device take time.
  std::int64_t const size = (view.rows() - 1) * view.row_stride() + view.columns();
  std::vector<double> const values = backend.read(VectorView(view.data(), view.type(), size, 1, view.device()));
  DenseMatrix matrix(view.rows(), view.columns());
  for (std::int64_t i = 0; i < view.rows(); ++i) {
    for (std::int64_t k = 0; k < view.columns(); ++k) {
      matrix(i, k) = values[to_size(i * view.row_stride() + k)];
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
