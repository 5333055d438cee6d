#include "plan_entries.hpp"

#include <iterator>
#include <utility>

#include "command_options.hpp"

namespace monge::cli {
void validate(EntryOptions const& options, std::int64_t m) {
  visit_entry_options(options, [&](auto const& field, auto const& value) {
    if (value && !field.constraint.contains(static_cast<double>(*value)))
      refuse("{}: is {}; must be {}", field.name, *value, field.constraint.text_in_full());
  });
  if (options.top_k > m) refuse("top_k: is {}; must be at most {}, the columns of the plan", *options.top_k, m);
  if (options.seed && !options.sample) refuse("seed: is {}; is for sample, which is not given", *options.seed);
}

std::vector<ResultFile> exact_plan_files(ExactPlan&& plan) {
  std::int64_t const n = plan.rows(), m = plan.columns(), count = std::ssize(plan.values);
  return {{"f.npy", Array{{n}, std::move(plan.f)}},
          {"g.npy", Array{{m}, std::move(plan.g)}},
          {"plan_indptr.npy", IndexArray{{n + 1}, std::move(plan.row_begin)}},
          {"plan_indices.npy", IndexArray{{count}, std::move(plan.column_indices)}},
          {"plan_data.npy", Array{{count}, std::move(plan.values)}}};
}

void check_values(std::optional<Array> const& values, std::int64_t m) {
  if (values && finite_points("values", *values).rows() != m)
    refuse("values: has {} rows; must have {}, one for each column of the plan", values->rows(), m);
}

std::vector<ResultFile> entry_files(Plan const& plan, EntryOptions const& options) {
  std::vector<ResultFile> files;
  std::int64_t const n = plan.rows();
  if (options.plan) files.push_back(dense_plan_file(plan));
  if (options.top_k) {
    std::int64_t const k = *options.top_k;
    IndexArray columns = zero_indices({n, k});
    std::vector<double> values(columns.values.size());
    plan.top_k(indices(columns), {values.data(), n, k});
    files.push_back({"topk_indices.npy", std::move(columns)});
    files.push_back({"topk_values.npy", Array{{n, k}, std::move(values)}});
  }
  if (options.threshold) {
    IndexArray row_begin = zero_indices({n + 1});
    std::int64_t const count = plan.count_above(*options.threshold, indices(row_begin));
    IndexArray columns = zero_indices({count});
    std::vector<double> values(columns.values.size());
    plan.entries_above(*options.threshold, indices(row_begin), indices(columns), values);
    files.push_back({"plan_indptr.npy", std::move(row_begin)});
    files.push_back({"plan_indices.npy", std::move(columns)});
    files.push_back({"plan_values.npy", Array{{count}, std::move(values)}});
  }
  if (options.sample) {
    IndexArray pairs = zero_indices({*options.sample, 2});
    plan.sample(options.seed.value_or(0), indices(pairs));
    files.push_back({"pairs.npy", std::move(pairs)});
  }
  return files;
}

}  // namespace monge::cli
