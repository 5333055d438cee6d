#include "cuda/geometry/matrix_costs.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cuda/vectors/kernels.hpp"
#include "geometry/cost_matrix.hpp"
#include "geometry/validation.hpp"

namespace monge::cuda {

MatrixCosts::MatrixCosts(SharedRuntime runtime, CostMatrix const& geometry, PointWeights a, PointWeights b,
                         DataType scalar, CostSurvey* found, Queue const& queue)
    : MatrixCosts(std::move(runtime), geometry, a, b, scalar, nullptr, found, queue) {}

MatrixCosts::MatrixCosts(SharedRuntime runtime, CostMatrix const& geometry, PointWeights a, PointWeights b,
                         DataType scalar, std::shared_ptr<Memory> memory, CostSurvey* found, Queue const& queue)
    : Costs(std::move(runtime)), memory_(std::move(memory)), weights_{a, b} {
  scalar_ = scalar;
  form_ = ScoreForm::stored;
  bool const fresh = memory_ == nullptr;
  if (fresh) memory_ = std::make_shared<Memory>();
  // Frees the old copy before the new one is made.
  memory_->copy = {};
  stored_ = upload_costs(runtime_, geometry, memory_->copy);
  if (fresh) {
    int const longest = static_cast<int>(round_up(std::max(stored_.rows, stored_.columns), kRowPadding));
    memory_->zeros = DeviceArray<double>(runtime_, longest);
    memory_->shift = DeviceArray<double>(runtime_, longest);
    combine({longest, 0, {}, memory_->zeros.data()}, queue);
  }
  RegularizedMatrix const matrix{.rows = stored_.rows, .columns = stored_.columns, .cost = stored_};
  set_sides();
  DeviceRanks const* const ranks = queue.batch() ? nullptr : sharing_ranks();
  memory_->scratch = DeviceArray<unsigned char>(runtime_, survey_bytes(matrix, false, ranks));
  survey_costs({.matrix = matrix,
                .a = a.weight,
                .b = b.weight,
                .shift = memory_->shift.data(),
                .scratch = memory_->scratch.data(),
                .result = found,
                .ranks = ranks},
               queue);
}

void MatrixCosts::set_sides() {
  for (int s : {0, 1}) {
    Operand operand;
    operand.scalar = scalar_;
    int const size = s == 0 ? stored_.rows : stored_.columns;
    operand.padded_size = static_cast<int>(round_up(size, kRowPadding));
    side_[s] = {size, operand, memory_->zeros.data(), memory_->shift.data(), stored_.least / 2};
  }
}

void MatrixCosts::finish(CostSurvey const& found) {
  if (found.first_bad != CostSurvey::kNone) {
    auto const [row, column] = found.first_bad_place(stored_.columns);
    throw_bad_cost(row, column, cost(row, column));
  }
  for (Side const side : kSides) {
    if (found.first_lonely[side_index(side)] == CostSurvey::kNobody) continue;
    std::vector<double> const weight = download(*runtime_, weights_[side_index(side)].weight, size(side));
    require_partners(side, weight, found.has_partner(side, weight.size()));
  }
  require_finite_range(found.least, found.largest);
  memory_->scratch = {};
  stored_.least = found.least;
  range_ = found.largest - found.least;
  mean_ = found.cost_sum / found.weight_sum;
  forbidden_ = found.forbidden;
  set_sides();
  set_bound();
}

/// Scores must fit in float.
void MatrixCosts::set_bound() {
  bool const fits = scalar_ == DataType::float64 || range_ <= std::numeric_limits<float>::max();
  bound_ = fits ? range_ : std::numeric_limits<double>::infinity();
}

double MatrixCosts::cost(std::int64_t row, std::int64_t column) const {
  return element(*runtime_, stored_.data, stored_.scalar, stored_.place(row, column));
}

std::shared_ptr<Costs const> MatrixCosts::renewed(Geometry const& geometry, PointWeights a, PointWeights b,
                                                  bool unshared) const {
  DeviceArray<CostSurvey> const found(runtime_, 1);
  std::shared_ptr<Memory> const memory = unshared && memory_.use_count() == 1 ? memory_ : nullptr;
  std::shared_ptr<MatrixCosts> result(
      new MatrixCosts(runtime_, matrix_of(geometry), a, b, scalar_, memory, found.data(), runtime_->stream()));
  result->finish(download(*runtime_, found.data(), 1)[0]);
  return result;
}

/// The same matrix in another precision.
std::shared_ptr<Costs const> MatrixCosts::twin(Geometry const&, DataType scalar, Queue const&) const {
  auto result = std::make_shared<MatrixCosts>(*this);
  result->scalar_ = scalar;
  result->set_sides();
  result->set_bound();
  return result;
}

}  // namespace monge::cuda
