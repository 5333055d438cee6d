#include <monge/assignment.hpp>

#include <algorithm>

#include "core/numbers.hpp"
#include "core/out_of_memory.hpp"
#include "geometry/validation.hpp"
#include "seam/assignment_operator.hpp"
#include "seam/backend.hpp"

namespace monge {
namespace {

void validate_output(AssignmentOutput const& out, std::int64_t problems, std::int64_t pairs, Device device) {
  std::int64_t const columns = out.row_indices.columns;
  require(columns >= pairs, "row_indices: has {} columns; must have at least {}, the most pairs of a problem", columns,
          pairs);
  validate_indices("row_indices", out.row_indices, problems, columns, device);
  validate_indices("column_indices", out.column_indices, problems, columns, device);
  validate_indices("status", out.status, problems, 1, device);
}

void validate_size(char const* field, IndexView const& sizes, std::int64_t problems, std::int64_t most, Device device) {
  if (sizes.empty()) return;
  require(sizes.size == problems, "{}: has {} entries; must have {}, one for each problem", field, sizes.size,
          problems);
  require(sizes.data != nullptr && sizes.stride >= 1, "{}: is a null pointer or has stride {}; must be a vector", field,
          sizes.stride);
  require_reachable(field, sizes.device, device);
  if (sizes.device.type != DeviceType::cpu) return;
  for (std::int64_t t = 0; t < problems; ++t) {
    std::int64_t const size = sizes.data[t * sizes.stride];
    require(size >= 0 && size <= most, "{}: entry {} is {}; must be from 0 to {}", field, t, size, most);
  }
}

void validate_costs(MatrixView const& cost, Device device) {
  validate_matrix("cost", cost, cost.rows(), cost.columns(), device);
  constexpr std::int64_t kMost = 1 << 30;
  require(cost.rows() <= kMost && cost.columns() <= kMost, "cost: is {} x {}; must be at most {} x {}", cost.rows(),
          cost.columns(), kMost, kMost);
}

}  // namespace

void linear_sum_assignment(Context const& context, BatchView costs, AssignmentOutput const& out,
                           AssignmentOptions const& options) try {
  Backend const& backend = backend_of(context);
  Device const device = backend.device();
  std::int64_t const problems = costs.batch();
  require(problems >= 0, "cost: has {} matrices; must be >= 0", problems);
  if (problems > 0) validate_costs(matrix_at(costs, 0), device);
  std::int64_t const extent = costs.rows() == 0 ? 0 : (costs.rows() - 1) * costs.row_stride() + costs.columns();
  require(problems <= 1 || costs.batch_stride() >= extent, "cost: has batch stride {}; must be at least {}",
          costs.batch_stride(), extent);
  validate_size("rows", options.rows, problems, costs.rows(), device);
  validate_size("columns", options.columns, problems, costs.columns(), device);
  validate_output(out, problems, std::min(costs.rows(), costs.columns()), device);
  if (problems == 0) return;
  auto const on_device = [](IndexView const& sizes) { return sizes.empty() || sizes.device.type != DeviceType::cpu; };
  if (on_device(options.rows) && on_device(options.columns))
    return backend.assignment().assign(SizedBatch{costs, options.rows, options.columns}, out, options.maximize);
  require(options.rows.empty() || options.columns.empty() || options.rows.device == options.columns.device,
          "columns: lies on {}; must be on {}, as rows", to_string(options.columns.device),
          to_string(options.rows.device));
  std::vector<MatrixView> matrices;
  for (std::int64_t t = 0; t < problems; ++t) {
    auto const size = [&](IndexView const& sizes, std::int64_t all) {
      return sizes.empty() ? all : sizes.data[t * sizes.stride];
    };
    MatrixView const whole = matrix_at(costs, t);
    matrices.emplace_back(whole.data(), whole.type(), size(options.rows, whole.rows()),
                          size(options.columns, whole.columns()), whole.row_stride(), whole.device());
  }
  backend.assignment().assign(std::span<MatrixView const>(matrices), out, options.maximize);
} catch (std::bad_alloc const&) {
  throw_out_of_memory("linear_sum_assignment");
}

void linear_sum_assignment(Context const& context, std::span<MatrixView const> costs, AssignmentOutput const& out,
                           AssignmentOptions const& options) try {
  Backend const& backend = backend_of(context);
  Device const device = backend.device();
  require(options.rows.empty() && options.columns.empty(),
          "rows, columns: are given with a list of matrices; must be empty, each matrix has its own shape");
  std::int64_t pairs = 0;
  for (MatrixView const& cost : costs) {
    validate_costs(cost, device);
    require(cost.type() == costs[0].type() && cost.device() == costs[0].device(),
            "cost: has matrices of {} on {} and of {} on {}; all must have one type and device", name(costs[0].type()),
            to_string(costs[0].device()), name(cost.type()), to_string(cost.device()));
    pairs = std::max(pairs, std::min(cost.rows(), cost.columns()));
  }
  validate_output(out, static_cast<std::int64_t>(costs.size()), pairs, device);
  if (!costs.empty()) backend.assignment().assign(costs, out, options.maximize);
} catch (std::bad_alloc const&) {
  throw_out_of_memory("linear_sum_assignment");
}

Assignment linear_sum_assignment(Context const& context, MatrixView cost, AssignmentOptions const& options) try {
  std::int64_t const pairs = std::min(cost.rows(), cost.columns());
  Assignment found;
  found.row_indices.resize(to_size(std::max<std::int64_t>(pairs, 0)));
  found.column_indices.resize(found.row_indices.size());
  std::int64_t status = 0;
  linear_sum_assignment(context, {&cost, 1},
                        {{found.row_indices.data(), 1, pairs, pairs, {}},
                         {found.column_indices.data(), 1, pairs, pairs, {}},
                         {&status, 1, 1, 1, {}}},
                        options);
  require(status != static_cast<std::int64_t>(AssignmentStatus::invalid),
          "cost: matrix contains invalid numeric entries; "
          "must have no NaN and no {}",
          options.maximize ? "inf" : "-inf");
  require(status != static_cast<std::int64_t>(AssignmentStatus::infeasible),
          "cost: cost matrix is infeasible; must leave a way to pair {} rows and columns", pairs);
  return found;
} catch (std::bad_alloc const&) {
  throw_out_of_memory("linear_sum_assignment");
}

}  // namespace monge
