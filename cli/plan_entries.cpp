#include "plan_entries.hpp"

#include <utility>

#include "command_options.hpp"

namespace monge::cli {
namespace {

IndexArray indices(std::vector<std::int64_t> shape) {
  std::int64_t count = 1;
  for (std::int64_t const entries : shape) count *= entries;
  return {std::move(shape), std::vector<std::int64_t>(static_cast<std::size_t>(count))};
}

MutableIndexView view(IndexArray& array) {
  std::int64_t const columns = array.shape.size() == 1 ? 1 : array.shape.back();
  return {array.values.data(), array.shape.front(), columns, columns};
}

}  // namespace

void validate(EntryOptions const& options, std::int64_t m) {
  visit_entry_options(options, [&](auto const& field, auto const& value) {
    if (value && !field.constraint.contains(static_cast<double>(*value)))
      refuse("{}: is {}; must be {}", field.name, *value, field.constraint.text_in_full());
  });
  if (options.top_k > m) refuse("top_k: is {}; must be at most {}, the columns of the plan", *options.top_k, m);
  if (options.seed && !options.sample) refuse("seed: is {}; is for sample, which is not given", *options.seed);
}

std::vector<ResultFile> entry_files(Plan const& plan, EntryOptions const& options) {
  std::vector<ResultFile> files;
  std::int64_t const n = plan.rows(), m = plan.columns();
  if (options.plan) {
    std::vector<double> values(static_cast<std::size_t>(n * m));
    plan.dense({values.data(), n, m});
    files.push_back({"plan.npy", Array{{n, m}, std::move(values)}});
  }
  if (options.top_k) {
    std::int64_t const k = *options.top_k;
    IndexArray columns = indices({n, k});
    std::vector<double> values(columns.values.size());
    plan.top_k(view(columns), {values.data(), n, k});
    files.push_back({"topk_indices.npy", std::move(columns)});
    files.push_back({"topk_values.npy", Array{{n, k}, std::move(values)}});
  }
  if (options.threshold) {
    IndexArray row_begin = indices({n + 1});
    std::int64_t const count = plan.count_above(*options.threshold, view(row_begin));
    IndexArray columns = indices({count});
    std::vector<double> values(columns.values.size());
    plan.entries_above(*options.threshold, view(row_begin), view(columns), values);
    files.push_back({"plan_indptr.npy", std::move(row_begin)});
    files.push_back({"plan_indices.npy", std::move(columns)});
    files.push_back({"plan_values.npy", Array{{count}, std::move(values)}});
  }
  if (options.sample) {
    IndexArray pairs = indices({*options.sample, 2});
    plan.sample(options.seed.value_or(0), view(pairs));
    files.push_back({"pairs.npy", std::move(pairs)});
  }
  return files;
}

}  // namespace monge::cli
