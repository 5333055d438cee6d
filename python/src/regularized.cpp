#include "regularized.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <monge/regularized.hpp>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "geometry.hpp"
#include "options.hpp"
#include "session.hpp"
#include "watch.hpp"

namespace monge::python {
namespace {

/// A Regularizer whose memory stays as long as it does.
struct HeldRegularizer {
  Regularizer terms;
  std::vector<Array> arrays;
};

using HeldPlan = OnSession<RegularizedPlan>;
using Held = HeldPlan const&;
using SessionPointer = std::shared_ptr<Session>;
using GeometryPointer = std::shared_ptr<HeldGeometry>;
using RegularizerPointer = std::shared_ptr<HeldRegularizer>;
using Problem = std::tuple<GeometryPointer, nb::object, nb::object, RegularizerPointer>;

constexpr auto kOptions = [](auto& options, auto&& visit) { visit_regularized_options(options, visit); };

/// A function of the user's on vectors. It may be copied, called and destroyed without the interpreter's lock.
class VectorFunction {
 public:
  VectorFunction(char const* field, nb::object function)
      : field_(field), function_(new nb::object(std::move(function)), [](nb::object* object) {
          nb::gil_scoped_acquire const lock;
          delete object;
        }) {}

  /// The function gets a copy of `from`, which it may keep, and then `numbers`.
  template <class... Numbers>
  void operator()(std::span<double const> from, std::span<double> to, Numbers... numbers) const {
    nb::gil_scoped_acquire const lock;
    nb::object const argument = nb::cast(to_numpy({from.begin(), from.end()}));
    nb::object const result = (*function_)(argument, numbers...);
    Array const array(field_, result);
    VectorView const values = array.vector();
    if (values.size() != std::ssize(to) || values.device().type != DeviceType::cpu)
      throw nb::value_error((std::string(field_) + ": returned " + std::to_string(values.size()) + " numbers on " +
                             to_string(values.device()) + "; must return one on the host for each of " +
                             std::to_string(to.size()))
                                .c_str());
    auto const read = [&](auto const* data) {
      for (std::size_t k = 0; k < to.size(); ++k)
        to[k] = static_cast<double>(data[static_cast<std::int64_t>(k) * values.stride()]);
    };
    if (values.type() == DataType::float32) {
      read(static_cast<float const*>(values.data()));
    } else {
      read(static_cast<double const*>(values.data()));
    }
  }

 private:
  char const* field_;
  std::shared_ptr<nb::object> function_;
};

/// The functions prox, value and conjugate; the last may be None.
SeparableTerm separable_term(nb::handle functions) {
  if (functions.is_none()) return {};
  SeparableTerm term;
  VectorFunction const prox("separable: prox", functions.attr("prox"));
  term.prox = [prox](double step, std::span<double const> v, std::span<double> x) { prox(v, x, step); };
  term.value = VectorFunction("separable: value", functions.attr("value"));
  nb::object const conjugate = functions.attr("conjugate");
  if (!conjugate.is_none()) term.conjugate = VectorFunction("separable: conjugate", conjugate);
  return term;
}

RegularizerPointer regularizer(double quadratic, double group_lasso, nb::handle groups, nb::handle group_weights,
                               double l1, nb::handle l1_weights, nb::handle mask, double hypentropy,
                               double hypentropy_width, nb::handle separable, nb::handle slopes) {
  std::vector<Array> arrays;
  arrays.reserve(5);
  auto const add = [&](char const* field, nb::handle value) -> Array const& {
    return arrays.emplace_back(field, value);
  };
  Array const& labels = add("groups", groups);
  bool const of_pairs = labels.is_matrix();
  Regularizer const terms{.quadratic = quadratic,
                          .group_lasso = group_lasso,
                          .groups = of_pairs ? IndexView() : labels.indices(),
                          .pair_groups = of_pairs ? labels.index_matrix() : IndexMatrixView(),
                          .group_weights = add("group_weights", group_weights).vector(),
                          .l1 = l1,
                          .l1_weights = add("l1_weights", l1_weights).matrix(),
                          .hypentropy = hypentropy,
                          .hypentropy_width = hypentropy_width,
                          .mask = add("mask", mask).matrix(),
                          .separable = separable_term(separable),
                          .slopes = add("slopes", slopes).matrix()};
  return std::make_shared<HeldRegularizer>(HeldRegularizer{terms, std::move(arrays)});
}

RegularizedOptions options_of(OptionDict const& given, Watch& watch) {
  RegularizedOptions options;
  set_options(options, given, kOptions);
  options.progress = watch.callback<RegularizedProgress>();
  return options;
}

std::shared_ptr<HeldPlan> hold(SessionPointer const& session, RegularizedPlan&& plan, GeometryPointer const& geometry) {
  return std::make_shared<HeldPlan>(session, std::make_shared<RegularizedPlan>(std::move(plan)), geometry);
}

std::shared_ptr<HeldPlan> solve_one(SessionPointer const& session, GeometryPointer const& geometry, nb::handle a,
                                    nb::handle b, RegularizerPointer const& regularizer, nb::handle u, nb::handle v,
                                    nb::handle start, OptionDict const& given, nb::object progress) {
  Watch watch(std::move(progress));
  RegularizedOptions options = options_of(given, watch);
  Array const row("a", a), column("b", b), start_u("u", u), start_v("v", v), start_plan("plan", start);
  VectorView const weights_a = row.vector(), weights_b = column.vector();
  options.u = start_u.vector();
  options.v = start_v.vector();
  options.plan = start_plan.matrix();
  RegularizedPlan solved = session->run([&](Context const& context) {
    return solve_regularized(context, geometry->geometry(), weights_a, weights_b, regularizer->terms, options);
  });
  auto plan = hold(session, std::move(solved), geometry);
  watch.rethrow();
  return plan;
}

std::vector<std::shared_ptr<HeldPlan>> solve_many(SessionPointer const& session,
                                                  std::vector<Problem> const& given_problems, OptionDict const& given,
                                                  nb::object progress) {
  Watch watch(std::move(progress));
  RegularizedOptions const options = options_of(given, watch);
  std::vector<Array> arrays;
  arrays.reserve(2 * given_problems.size());
  std::vector<RegularizedProblem> problems;
  auto const vector = [&](std::size_t k, char const* field, nb::handle value) {
    return arrays.emplace_back("problem " + std::to_string(k) + ": " + field, value).vector();
  };
  for (auto const& [geometry, a, b, regularizer] : given_problems) {
    std::size_t const k = problems.size();
    problems.push_back({geometry->geometry(), vector(k, "a", a), vector(k, "b", b), regularizer->terms});
  }
  auto solved =
      session->run([&](Context const& context) { return solve_regularized_batch(context, problems, options); });
  std::vector<std::shared_ptr<HeldPlan>> plans;
  for (std::size_t k = 0; k < solved.size(); ++k)
    plans.push_back(hold(session, std::move(solved[k]), std::get<0>(given_problems[k])));
  watch.rethrow();
  return plans;
}

/// A method that writes two vectors.
template <auto method>
void pair(Held plan, nb::handle row, nb::handle column) {
  Array const to_row = out("row", row), to_column = out("column", column);
  MutableVectorView const rows = to_row.out_vector(), columns = to_column.out_vector();
  plan.run([&](RegularizedPlan const& p) { (p.*method)(rows, columns); });
}

/// A method that takes a matrix to a matrix.
template <auto method>
void product(Held plan, nb::handle v, nb::handle to) {
  Array const from("v", v), result = out("out", to);
  MatrixView const in = from.matrix();
  MutableMatrixView const view = result.out_matrix();
  plan.run([&](RegularizedPlan const& p) { (p.*method)(in, view); });
}

void dense(Held plan, nb::handle to) {
  Array const result = out("out", to);
  MutableMatrixView const view = result.out_matrix();
  plan.run([&](RegularizedPlan const& p) { p.dense(view); });
}

std::int64_t nonzeros(Held plan, nb::handle row_begin) {
  Array const to = out("row_begin", row_begin);
  MutableIndexView const view = to.out_indices();
  return plan.run([&](RegularizedPlan const& p) { return p.nonzeros(view); });
}

void entries(Held plan, nb::handle row_begin, nb::handle columns, nb::handle values) {
  Array const begin = out("row_begin", row_begin), to_columns = out("columns", columns),
              to_values = out("values", values);
  MutableIndexView const rows = begin.out_indices(), where = to_columns.out_indices();
  MutableVectorView const what = to_values.out_vector();
  plan.run([&](RegularizedPlan const& p) { p.entries(rows, where, what); });
}

}  // namespace

void bind_regularized(nb::module_& module) {
  Regularizer const none;
  nb::class_<HeldRegularizer>(module, "Regularizer", "The terms of h; shows the caller's memory.");
  module.def("regularizer", &regularizer, nb::arg("quadratic") = none.quadratic,
             nb::arg("group_lasso") = none.group_lasso, nb::arg("groups") = nb::none(),
             nb::arg("group_weights") = nb::none(), nb::arg("l1") = none.l1, nb::arg("l1_weights") = nb::none(),
             nb::arg("mask") = nb::none(), nb::arg("hypentropy") = none.hypentropy,
             nb::arg("hypentropy_width") = none.hypentropy_width, nb::arg("separable") = nb::none(),
             nb::arg("slopes") = nb::none());
  nb::class_<HeldPlan>(module, "RegularizedPlan",
                       "A plan and its duals; results go to arrays that the caller has made.")
      .def_prop_ro("session", [](Held plan) { return plan.session(); })
      .def_prop_ro("rows", [](Held plan) { return plan.made()->rows(); })
      .def_prop_ro("columns", [](Held plan) { return plan.made()->columns(); })
      .def_prop_ro("report", [](Held plan) { return plan.made()->report(); })
      .def("potentials", &pair<&RegularizedPlan::potentials>, nb::arg("u"), nb::arg("v"))
      .def("marginals", &pair<&RegularizedPlan::marginals>, nb::arg("row"), nb::arg("column"))
      .def("apply", &product<&RegularizedPlan::apply>, nb::arg("v"), nb::arg("out"))
      .def("apply_transpose", &product<&RegularizedPlan::apply_transpose>, nb::arg("v"), nb::arg("out"))
      .def("average", &product<&RegularizedPlan::barycentric_projection>, nb::arg("v"), nb::arg("out"))
      .def("average_transpose", &product<&RegularizedPlan::barycentric_projection_transpose>, nb::arg("v"),
           nb::arg("out"))
      .def("transport_cost", [](Held plan) { return plan.made()->report().transport_cost; })
      .def("dense", &dense, nb::arg("out"))
      .def("nonzeros", &nonzeros, nb::arg("row_begin"))
      .def("entries", &entries, nb::arg("row_begin"), nb::arg("columns"), nb::arg("values"));
  module.def("regularized_option_list", [] { return option_list<RegularizedOptions>(kOptions); });
  module.def("solve_regularized", &solve_one, nb::arg("session"), nb::arg("geometry"), nb::arg("a").none(),
             nb::arg("b").none(), nb::arg("regularizer"), nb::arg("u").none(), nb::arg("v").none(),
             nb::arg("plan").none(), nb::arg("options"), nb::arg("progress").none());
  module.def("solve_regularized_batch", &solve_many, nb::arg("session"), nb::arg("problems"), nb::arg("options"),
             nb::arg("progress").none());
}

}  // namespace monge::python
