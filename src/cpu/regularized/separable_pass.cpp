#include "cpu/regularized/separable_pass.hpp"

#include <algorithm>
#include <vector>

namespace monge::cpu {

template <class T>
void separable_pass(SplittingPass<T> const& pass, SeparableFunctions& functions, std::int64_t first,
                    std::int64_t columns, T* row_sums, double* column_sums) {
  struct Place {
    std::int64_t row, column;
  };
  std::vector<Place> places;
  std::vector<double> values;
  for (std::int64_t k = 0; k < columns; ++k) {
    T* const x = pass.x + (first + k) * pass.stride;
    T const* const costs = pass.costs + (first + k) * pass.stride;
    T const psi = pass.psi[first + k];
    for (std::int64_t r = 0; r < pass.rows; ++r) {
      T const v = x[r] - pass.step * costs[r] + pass.phi[r] + psi;
      x[r] = 0;
      if (!(v > 0)) continue;
      places.push_back({r, k});
      values.push_back(static_cast<double>(v));
    }
  }
  functions.prox(static_cast<double>(pass.step), values);
  std::fill_n(row_sums, padded_to_vectors<T>(pass.rows), T(0));
  std::fill_n(column_sums, columns, 0.0);
  for (std::size_t e = 0; e < values.size(); ++e) {
    auto const [row, column] = places[e];
    T const x = static_cast<T>(values[e]);
    pass.x[(first + column) * pass.stride + row] = x;
    row_sums[row] += x;
    column_sums[column] += static_cast<double>(x);
  }
}

template void separable_pass(SplittingPass<float> const&, SeparableFunctions&, std::int64_t, std::int64_t, float*,
                             double*);
template void separable_pass(SplittingPass<double> const&, SeparableFunctions&, std::int64_t, std::int64_t, double*,
                             double*);

}  // namespace monge::cpu
