#include "cuda/matrix_costs.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "cuda/launch/matrix_survey.hpp"
#include "operators/cost_matrix.hpp"

namespace monge::cuda {

MatrixCosts::MatrixCosts(SharedRuntime runtime, CostMatrix const& geometry, Weights const& a, Weights const& b,
                         DataType scalar)
    : Costs(std::move(runtime)) {
  scalar_ = scalar;
  form_ = ScoreForm::stored;
  MatrixView const& cost = geometry.cost;
  StridedView const view = upload(runtime_, cost, copy_);
  std::int64_t const bytes = size_of(view.scalar);
  stored_.data = view.data;
  stored_.scalar = view.scalar;
  stored_.stride = view.stride;
  stored_.aligned = reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.stride * bytes % 16 == 0;
  stored_.rows = checked_size("cost", cost.rows());
  stored_.columns = checked_size("cost", cost.columns());
  if (geometry.transposed) stored_ = stored_.flipped();
  survey(a, b);

  auto const padded = [](int size) { return static_cast<int>(round_up(size, kRowPadding)); };
  int const n = stored_.rows, m = stored_.columns;
  zeros_ = uploaded(runtime_, std::vector<double>(static_cast<std::size_t>(std::max(padded(n), padded(m)))));
  shift_ = uploaded(runtime_, std::vector<double>(static_cast<std::size_t>(n), stored_.least));
  Operand operand;
  operand.scalar = scalar;
  operand.padded_size = padded(n);
  side_[0] = {n, operand, zeros_.data(), shift_.data(), stored_.least};
  operand.padded_size = padded(m);
  side_[1] = {m, operand, zeros_.data(), zeros_.data(), 0.0};
}

void MatrixCosts::survey(Weights const& a, Weights const& b) {
  MatrixSurveyPlan const plan = plan_matrix_survey(stored_);
  DeviceArray<unsigned char> const scratch(runtime_, plan.scratch_bytes);
  DeviceArray<MatrixSurvey> const result(runtime_, 1);
  survey_matrix(plan, stored_, a.weight(), b.weight(), scratch.data(), result.data(), runtime_->stream());
  MatrixSurvey const found = download(*runtime_, result.data(), 1)[0];
  if (found.first_bad != MatrixSurvey::kNone) {
    int const row = static_cast<int>(found.first_bad / static_cast<unsigned long long>(stored_.columns));
    int const column = static_cast<int>(found.first_bad % static_cast<unsigned long long>(stored_.columns));
    throw_bad_cost(row, column, cost(row, column));
  }
  for (Side side : {Side::rows, Side::columns}) {
    std::vector<double> const& weight = (side == Side::rows ? a : b).host();
    std::vector<unsigned char> has_partner(weight.size(), 1);
    int const lonely = found.first_lonely[side_index(side)];
    if (lonely != MatrixSurvey::kNobody) has_partner[static_cast<std::size_t>(lonely)] = 0;
    require_partners(side, weight, has_partner);
  }
  require_finite_range(found.least, found.largest);
  stored_.least = found.least;
  mean_ = found.cost_sum / found.weight_sum;
  // Scores that float cannot hold have no bound.
  double const range = found.largest - found.least;
  bool const fits = scalar_ == DataType::float64 || range <= std::numeric_limits<float>::max();
  bound_ = fits ? range : std::numeric_limits<double>::infinity();
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

std::shared_ptr<Costs const> MatrixCosts::at(Side, MatrixView) const {
  throw_no_points();
}

}  // namespace monge::cuda
