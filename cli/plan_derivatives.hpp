// The derivatives that a user asks for, as arrays to be written.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <monge/options.hpp>
#include <monge/plan.hpp>

#include "array.hpp"
#include "geometry_input.hpp"
#include "plan_entries.hpp"

namespace monge::cli {

struct DerivativeOptions {
  bool gradients = false;
  std::string hvp;                                   ///< The file of a direction for the points x; empty: none.
  std::optional<double> hvp_damping, hvp_tolerance;  ///< Those of LinearOptions if not given.
  std::optional<int> hvp_iterations;
};

/// Visits the options of hvp, as visit_solve_options() visits the options of a solve.
template <class Options, class Visitor>
void visit_hvp_options(Options& options, Visitor&& visit) {
  visit(Field{"hvp_damping", kNotNegative, "added to the diagonal of the system, relative to it"}, options.hvp_damping);
  visit(Field{"hvp_tolerance", kNotNegative, "residual of the system, relative to its right side"},
        options.hvp_tolerance);
  visit(Field{"hvp_iterations", at_least(0), "at most this many steps of conjugate gradients"}, options.hvp_iterations);
}

/// Throws Error, before a file is read, for options that do not go together or with the costs.
void validate(DerivativeOptions const& options, GeometryArguments const& costs);
/// Throws Error for a direction that the points `x` cannot move along.
void check_direction(Array const& direction, Array const& x);

/// All files that gradient_files() may return.
inline constexpr char const* kGradientFiles[] = {"grad_x.npy", "grad_y.npy", "grad_a.npy", "grad_b.npy"};
/// grad_a.npy, grad_b.npy and, for points, grad_x.npy and grad_y.npy with the shapes and
/// element types of x and y. `differentiate` writes the numbers of all files.
std::vector<ResultFile> gradient_files(GeometryInput const& in,
                                       std::function<void(GradientViews const&)> const& differentiate);

struct DerivativeFiles {
  std::vector<ResultFile> files;
  std::optional<GradientReport> gradients;
  std::optional<LinearReport> hvp;
};
/// Computes derivatives by products of the plan. `direction` is the array in the file options.hvp.
DerivativeFiles derivative_files(Plan const& plan, DerivativeOptions const& options, GeometryInput const& in,
                                 std::optional<Array> const& direction);

}  // namespace monge::cli
