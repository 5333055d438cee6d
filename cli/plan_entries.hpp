// The entries of the plan that a user asks for, as arrays to be written.
#pragma once
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <monge/exact.hpp>
#include <monge/options.hpp>
#include <monge/plan.hpp>

#include "result_folder.hpp"

namespace monge::cli {

struct EntryOptions {
  bool plan = false;  ///< All entries.
  std::optional<int> top_k;
  std::optional<double> threshold;
  std::optional<int> sample;
  std::optional<std::uint64_t> seed;  ///< 0 if not given.
};

/// Visits the options, as visit_solve_options() visits the options of a solve.
template <class Options, class Visitor>
void visit_entry_options(Options& options, Visitor&& visit) {
  visit(Field{"top_k", at_least(1), "the largest entries of each row: topk_indices.npy, topk_values.npy (n x K)"},
        options.top_k);
  visit(Field{"threshold", kNotNegative,
              "all entries above it, as CSR: plan_indptr.npy, plan_indices.npy, plan_values.npy"},
        options.threshold);
  visit(Field{"sample", at_least(1), "pairs (i, j) drawn from the plan: pairs.npy (K x 2)"}, options.sample);
  visit(Field{"seed", at_least(0), "seed of the pairs"}, options.seed);
}

/// Throws Error for entries that no plan of m columns has.
void validate(EntryOptions const& options, std::int64_t m);

/// Takes passes over the plan.
std::vector<ResultFile> entry_files(Plan const& plan, EntryOptions const& options);

/// The potentials and, as CSR, the entries of an exact plan, which gives them away.
std::vector<ResultFile> exact_plan_files(ExactPlan&& plan);

/// Throws Error unless --values, if given, are for a plan of m columns.
void check_values(std::optional<Array> const& values, std::int64_t m);

// For a Plan and a RegularizedPlan alike.

/// plan.npy: all entries.
template <class AnyPlan>
ResultFile dense_plan_file(AnyPlan const& plan) {
  std::int64_t const n = plan.rows(), m = plan.columns();
  std::vector<double> values(static_cast<std::size_t>(n * m));
  plan.dense({values.data(), n, m});
  return {"plan.npy", Array{{n, m}, std::move(values)}};
}

/// For each row of the plan the average of `values`.
template <class AnyPlan>
Array averages_of(AnyPlan const& plan, Array const& values) {
  std::vector<std::int64_t> shape = values.shape;
  shape.front() = plan.rows();
  Array map = values.zeros(shape);
  plan.barycentric_projection(points("values", values), points("map", map));
  return map;
}

}  // namespace monge::cli
