// The sparse factor L D L^T behind Newton-like directions, on the host.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

namespace monge {

/// Factors the symmetric matrix of a bipartite graph,
///   [ diag(r)  E ; E^T  diag(c) ],    r (n), c (m), E (n x m) sparse,
/// such as the Hessian of the dual made of a plan's largest entries. The pattern of E is given once and analysed once;
/// values come as often as they change. One thread at a time may use an object, its const members included.
class SparseFactor {
 public:
  /// Orders the n + m unknowns for little fill (AMD) and counts the nonzeros of the factor, given the pairs
  /// (rows[k], columns[k]) of E, each within n and m and none twice. The memory is that of E, not of the factor.
  SparseFactor(std::int64_t n, std::int64_t m, std::span<std::int64_t const> rows,
               std::span<std::int64_t const> columns);
  ~SparseFactor();
  SparseFactor(SparseFactor&&) noexcept;
  SparseFactor& operator=(SparseFactor&&) noexcept;

  /// Factors the matrix of these values; entries[k] belongs to the pair k. The first call allocates the factor, the
  /// next ones reuse its memory. Returns false where the matrix is not positive definite in float64, or not finite:
  /// there is no factor then. Throws Error (out_of_memory).
  bool factor(std::span<double const> diagonal_rows, std::span<double const> diagonal_columns,
              std::span<double const> entries);

  /// Replaces the right-hand side (n numbers and m) by the solution. A factor must be there.
  void solve(std::span<double> rows, std::span<double> columns) const;

  /// Entries of the lower triangle of the factor that are not 0, the diagonal included.
  std::int64_t nonzeros() const;
  /// About how many multiply-adds factor() takes.
  double operations() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace monge
