#include "cuda/geometry/matrix_costs.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "cuda/vectors/kernels.hpp"
#include "geometry/cost_matrix.hpp"

namespace monge::cuda {

MatrixCosts::MatrixCosts(SharedRuntime runtime, CostMatrix const& geometry, PointWeights a, PointWeights b,
                         DataType scalar, MatrixSurvey* found, Queue const& queue)
    : MatrixCosts(std::move(runtime), geometry, a, b, scalar, nullptr, found, queue) {}

MatrixCosts::MatrixCosts(SharedRuntime runtime, CostMatrix const& geometry, PointWeights a, PointWeights b,
                         DataType scalar, std::shared_ptr<Memory> memory, MatrixSurvey* found, Queue const& queue)
    : Costs(std::move(runtime)), memory_(std::move(memory)), weights_{a, b} {
  scalar_ = scalar;
  form_ = ScoreForm::stored;
  MatrixView const& cost = geometry.cost;
  bool const fresh = memory_ == nullptr;
  if (fresh) memory_ = std::make_shared<Memory>();
  // The old copy makes room for the new one.
  memory_->copy = {};
  StridedView const view = upload(runtime_, cost, memory_->copy);
  stored_.data = view.data;
  stored_.scalar = view.scalar;
  stored_.stride = view.stride;
  stored_.aligned =
      reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.stride * size_of(view.scalar) % 16 == 0;
  stored_.rows = checked_size("cost", cost.rows());
  stored_.columns = checked_size("cost", cost.columns());
  if (geometry.transposed) stored_ = stored_.flipped();
  if (fresh) {
    int const longest = static_cast<int>(round_up(std::max(stored_.rows, stored_.columns), kRowPadding));
    memory_->zeros = DeviceArray<double>(runtime_, longest);
    memory_->shift = DeviceArray<double>(runtime_, stored_.rows);
    combine({longest, 0, {}, memory_->zeros.data()}, queue);
  }
  memory_->scratch = DeviceArray<unsigned char>(runtime_, survey_bytes(stored_));
  set_sides();
  survey_matrix({stored_, a.weight, b.weight, memory_->scratch.data(), memory_->shift.data(), found}, queue);
}

void MatrixCosts::set_sides() {
  for (int s : {0, 1}) {
    Operand operand;
    operand.scalar = scalar_;
    int const size = s == 0 ? stored_.rows : stored_.columns;
    operand.padded_size = static_cast<int>(round_up(size, kRowPadding));
    side_[s] = {size, operand, memory_->zeros.data(), s == 0 ? memory_->shift.data() : memory_->zeros.data(),
                s == 0 ? stored_.least : 0.0};
  }
}

void MatrixCosts::finish(MatrixSurvey const& found) {
  if (found.first_bad != MatrixSurvey::kNone) {
    int const row = static_cast<int>(found.first_bad / static_cast<unsigned long long>(stored_.columns));
    int const column = static_cast<int>(found.first_bad % static_cast<unsigned long long>(stored_.columns));
    throw_bad_cost(row, column, cost(row, column));
  }
  for (Side const side : kSides) {
    int const lonely = found.first_lonely[side_index(side)];
    if (lonely == MatrixSurvey::kNobody) continue;
    std::vector<double> const weight = download(*runtime_, weights_[side_index(side)].weight, size(side));
    std::vector<unsigned char> has_partner(weight.size(), 1);
    has_partner[static_cast<std::size_t>(lonely)] = 0;
    require_partners(side, weight, has_partner);
  }
  require_finite_range(found.least, found.largest);
  memory_->scratch = {};
  stored_.least = found.least;
  range_ = found.largest - found.least;
  mean_ = found.cost_sum / found.weight_sum;
  set_sides();
  set_bound();
}

/// Scores must fit in float.
void MatrixCosts::set_bound() {
  bool const fits = scalar_ == DataType::float64 || range_ <= std::numeric_limits<float>::max();
  bound_ = fits ? range_ : std::numeric_limits<double>::infinity();
}

double MatrixCosts::cost(int row, int column) const {
  std::int64_t const at = stored_.transposed ? column * stored_.stride + row : row * stored_.stride + column;
  if (stored_.scalar == DataType::float32)
    return static_cast<double>(download(*runtime_, static_cast<float const*>(stored_.data) + at, 1)[0]);
  return download(*runtime_, static_cast<double const*>(stored_.data) + at, 1)[0];
}

PointValues MatrixCosts::points(Side) const {
  throw_no_points();
}

PointForm MatrixCosts::point_form() const {
  throw_no_points();
}

std::shared_ptr<Costs const> MatrixCosts::at(Side, MatrixView) const {
  throw_no_points();
}

std::shared_ptr<Costs const> MatrixCosts::renewed(Geometry const& geometry, PointWeights a, PointWeights b,
                                                  bool unshared) const {
  DeviceArray<MatrixSurvey> const found(runtime_, 1);
  std::shared_ptr<Memory> const memory = unshared && memory_.use_count() == 1 ? memory_ : nullptr;
  std::shared_ptr<MatrixCosts> result(new MatrixCosts(runtime_, std::get<CostMatrix>(geometry), a, b, scalar_, memory,
                                                      found.data(), runtime_->stream()));
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
