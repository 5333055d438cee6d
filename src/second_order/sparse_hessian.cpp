#include "second_order/sparse_hessian.hpp"

#include <algorithm>
#include <cmath>

#include "core/numbers.hpp"

namespace monge {
namespace {

/// The K largest entries of a plan are searched among the kRowFactor K / n largest of each row.
constexpr double kRowFactor = 4;

}  // namespace

SparseHessian::SparseHessian(VectorOperations const& vectors, Marginals const& marginals) : vectors_(vectors) {
  for (Side const side : kSides) {
    std::vector<double> const& weights = side == Side::rows ? marginals.a : marginals.b;
    std::vector<std::int64_t>& points = points_[side_index(side)];
    std::vector<std::int64_t>& unknowns = unknowns_[side_index(side)];
    for (std::size_t i = 0; i < weights.size(); ++i) {
      unknowns.push_back(weights[i] > 0 ? std::ssize(points) : -1);
      if (weights[i] > 0) points.push_back(static_cast<std::int64_t>(i));
    }
  }
}

void SparseHessian::add_pair(std::int64_t i, std::int64_t j) {
  pairs_.rows.push_back(i);
  pairs_.columns.push_back(j);
  of_unknowns_.rows.push_back(unknown(Side::rows, i));
  of_unknowns_.columns.push_back(unknown(Side::columns, j));
}

/// Finds all of the largest entries unless a few rows hold most of them.
void SparseHessian::choose_pairs(PlanOperator& plan, std::int64_t count) {
  double const of_row = std::ceil(kRowFactor * static_cast<double>(count) / static_cast<double>(plan.size(Side::rows)));
  std::vector<LargeEntry> largest =
      largest_of_rows(plan, std::min(plan.size(Side::columns), static_cast<std::int64_t>(of_row)));
  std::erase_if(largest, [&](LargeEntry const& entry) {
    return unknown(Side::rows, entry.i) <= 0 || unknown(Side::columns, entry.j) <= 0;
  });
  keep_largest(largest, to_size(count));
  auto const& [rows, columns] = points_;
  pairs_ = of_unknowns_ = {};
  for (std::int64_t const j : columns) add_pair(rows.front(), j);
  for (std::size_t k = 1; k < rows.size(); ++k) add_pair(rows[k], columns.front());
  for (LargeEntry const& entry : largest) add_pair(entry.i, entry.j);
  factor_.reset();
}

void SparseHessian::set(PlanOperator& plan, VectorPair const& marginals) {
  sums_ = gather(marginals);
  entries_.resize(pairs_.rows.size());
  plan.entries().entries_at({pairs_.rows.data(), pairs()}, {pairs_.columns.data(), pairs()},
                            MutableVectorView(entries_));
}

bool SparseHessian::factor(double shift) {
  if (!factor_) factor_.emplace(rows(), columns(), of_unknowns_.rows, of_unknowns_.columns);
  std::vector<double> diagonal = sums_;
  for (double& value : diagonal) value += shift;
  std::span<double const> const all(diagonal);
  return factor_->factor(all.first(points_[0].size()), all.subspan(points_[0].size()), entries_);
}

void SparseHessian::solve(VectorPair const& z) {
  std::vector<double> values = gather(z);
  std::span<double> const all(values), parts[2] = {all.first(points_[0].size()), all.subspan(points_[0].size())};
  factor_->solve(parts[0], parts[1]);
  for (Side const side : kSides) {
    int const s = side_index(side);
    std::vector<double> full(unknowns_[s].size());
    for (std::size_t k = 0; k < parts[s].size(); ++k) full[to_size(points_[s][k])] = parts[s][k];
    vectors_.read(VectorView(full), *z[side]);
  }
}

std::vector<double> SparseHessian::gather(VectorPair const& vectors) const {
  std::vector<double> all;
  for (Side const side : kSides) {
    std::vector<double> full(unknowns_[side_index(side)].size());
    vectors_.write(*vectors[side], MutableVectorView(full));
    for (std::int64_t const point : points_[side_index(side)]) all.push_back(full[to_size(point)]);
  }
  return all;
}

}  // namespace monge
