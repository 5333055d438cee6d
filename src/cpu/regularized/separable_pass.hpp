// The pass of a splitting iteration with the user's own separable term (cpu/regularized/splitting_pass.hpp).
#pragma once
#include <cstdint>

#include "cpu/regularized/splitting_pass.hpp"
#include "seam/separable.hpp"

namespace monge::cpu {

/// pass_over_columns() of kind plain. One call of the prox takes all positive entries of these columns; entries that
/// are not positive stay 0. The user's function takes most of the time.
template <class T>
void separable_pass(SplittingPass<T> const& pass, SeparableFunctions& functions, std::int64_t first,
                    std::int64_t columns, T* row_sums, double* column_sums);

}  // namespace monge::cpu
