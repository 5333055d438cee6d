// The derivatives that a user asks for, as arrays to be written.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <monge/plan.hpp>
#include <nlohmann/json.hpp>

#include "array.hpp"
#include "plan_entries.hpp"

namespace monge::cli {

struct DerivativeOptions {
  bool gradients = false;
  std::string hvp;  ///< The file of a direction for the points x; empty: none.
};

/// Throws Error for a direction that is not one of n points in d dimensions, and where there are no points.
void check_direction(Array const& direction, std::int64_t n, std::optional<std::int64_t> d);

/// grad_a.npy, grad_b.npy and, where x and y are there, grad_x.npy and grad_y.npy with their shapes and element types,
/// as `differentiate` leaves them.
std::vector<ResultFile> gradient_files(std::int64_t n, std::int64_t m, std::optional<Array> const& x,
                                       std::optional<Array> const& y,
                                       std::function<void(GradientViews const&)> const& differentiate);

struct DerivativeFiles {
  std::vector<ResultFile> files;
  nlohmann::ordered_json report = nlohmann::ordered_json::object();
};
/// Takes products of the plan; `direction` is what options.hvp names.
DerivativeFiles derivative_files(Plan const& plan, DerivativeOptions const& options, std::optional<Array> const& x,
                                 std::optional<Array> const& y, std::optional<Array> const& direction);

}  // namespace monge::cli
