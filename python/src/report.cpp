#include "report.hpp"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <monge/derivatives.hpp>
#include <monge/divergence.hpp>
#include <monge/exact.hpp>
#include <monge/gromov.hpp>
#include <monge/regularized.hpp>
#include <monge/report.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "arrays.hpp"

namespace monge::python {
namespace {

namespace nb = nanobind;

using Members = nb::typed<nb::dict, nb::str, nb::any>;

// The lists of the members of reports: attributes, repr and pickles are made from them.

template <class Visit>
void visit_members(Progress const*, Visit const& visit) {
  visit("iteration", &Progress::iteration);
  visit("eps", &Progress::eps);
  visit("marginal_error", &Progress::marginal_error);
  visit("relaxation", &Progress::relaxation);
  visit("kind", &Progress::kind);
  visit("seconds", &Progress::seconds);
  visit("problem", &Progress::problem);
}

template <class Visit>
void visit_members(Check const*, Visit const& visit) {
  visit("iteration", &Check::iteration);
  visit("eps", &Check::eps);
  visit("marginal_error", &Check::marginal_error);
  visit("relaxation", &Check::relaxation);
  visit("kind", &Check::kind);
  visit("precision", &Check::precision);
  visit("gradient_norm", &Check::gradient_norm);
  visit("seconds", &Check::seconds);
}

template <class Visit>
void visit_members(Report const*, Visit const& visit) {
  visit("status", &Report::status);
  visit("message", &Report::message);
  visit("eps", &Report::eps);
  visit("mean_cost", &Report::mean_cost);
  visit("eps_relative", &Report::eps_relative);
  visit("iterations", &Report::iterations);
  visit("annealing_iterations", &Report::annealing_iterations);
  visit("ranks", &Report::ranks);
  visit("coarse_iterations", &Report::coarse_iterations);
  visit("refinement_iterations", &Report::refinement_iterations);
  visit("newton_steps", &Report::newton_steps);
  visit("newton_iterations", &Report::newton_iterations);
  visit("newton_on_host", &Report::newton_on_host);
  visit("precision", &Report::precision);
  visit("certified", &Report::certified);
  visit("penalty_a", &Report::penalty_a);
  visit("penalty_b", &Report::penalty_b);
  visit("mass", &Report::mass);
  visit("mass_b", &Report::mass_b);
  visit("transported_mass", &Report::transported_mass);
  visit("marginal_error", &Report::marginal_error);
  visit("gradient_norm", &Report::gradient_norm);
  visit("transport_cost", &Report::transport_cost);
  visit("primal", &Report::primal);
  visit("dual", &Report::dual);
  visit("gap", &Report::gap);
  visit("left_out", &Report::left_out);
  visit("left_out_of_row", &Report::left_out_of_row);
  visit(
      "seconds_setup", [](auto& report) -> auto& { return report.seconds.setup; });
  visit(
      "seconds_sweeps", [](auto& report) -> auto& { return report.seconds.sweeps; });
  visit(
      "seconds_certificate", [](auto& report) -> auto& { return report.seconds.certificate; });
  visit(
      "seconds", [](auto& report) -> auto& { return report.seconds.total; });
  visit("peak_bytes", &Report::peak_bytes);
}

template <class Visit>
void visit_members(GradientReport const*, Visit const& visit) {
  visit("scale", &GradientReport::scale);
  visit("label_weight", &GradientReport::label_weight);
  visit("marginal_error", &GradientReport::marginal_error);
  visit("distance", &GradientReport::distance);
  visit("iterations", &GradientReport::iterations);
  visit("peak_bytes", &GradientReport::peak_bytes);
}

template <class Visit>
void visit_members(DivergenceGradient const*, Visit const& visit) {
  visit("scale", &DivergenceGradient::scale);
  visit("label_weight", &DivergenceGradient::label_weight);
  visit("marginal_error", &DivergenceGradient::marginal_error);
}

template <class Visit>
void visit_members(LinearReport const*, Visit const& visit) {
  visit("status", &LinearReport::status);
  visit("iterations", &LinearReport::iterations);
  visit("residual", &LinearReport::residual);
  visit("peak_bytes", &LinearReport::peak_bytes);
}

template <class Visit>
void visit_members(RegularizedProgress const*, Visit const& visit) {
  visit("iteration", &RegularizedProgress::iteration);
  visit("weight", &RegularizedProgress::weight);
  visit("primal_residual", &RegularizedProgress::primal_residual);
  visit("seconds", &RegularizedProgress::seconds);
  visit("problem", &RegularizedProgress::problem);
}

template <class Visit>
void visit_members(RegularizedCheck const*, Visit const& visit) {
  visit("iteration", &RegularizedCheck::iteration);
  visit("weight", &RegularizedCheck::weight);
  visit("primal_residual", &RegularizedCheck::primal_residual);
  visit("gap", &RegularizedCheck::gap);
  visit("step", &RegularizedCheck::step);
  visit("nonzeros", &RegularizedCheck::nonzeros);
  visit("seconds", &RegularizedCheck::seconds);
}

template <class Visit>
void visit_members(RegularizedReport const*, Visit const& visit) {
  visit("status", &RegularizedReport::status);
  visit("message", &RegularizedReport::message);
  visit("method", &RegularizedReport::method);
  visit("iterations", &RegularizedReport::iterations);
  visit("newton_steps", &RegularizedReport::newton_steps);
  visit("linear_iterations", &RegularizedReport::linear_iterations);
  visit("newton_on_host", &RegularizedReport::newton_on_host);
  visit("step", &RegularizedReport::step);
  visit("weight", &RegularizedReport::weight);
  visit("precision", &RegularizedReport::precision);
  visit("mass", &RegularizedReport::mass);
  visit("transported_mass", &RegularizedReport::transported_mass);
  visit("primal_residual", &RegularizedReport::primal_residual);
  visit("marginal_error", &RegularizedReport::marginal_error);
  visit("transport_cost", &RegularizedReport::transport_cost);
  visit("regularization", &RegularizedReport::regularization);
  visit("primal", &RegularizedReport::primal);
  visit("dual", &RegularizedReport::dual);
  visit("gap", &RegularizedReport::gap);
  visit("nonzeros", &RegularizedReport::nonzeros);
  visit("peak_bytes", &RegularizedReport::peak_bytes);
  visit(
      "seconds_setup", [](auto& report) -> auto& { return report.seconds.setup; });
  visit(
      "seconds_iterations", [](auto& report) -> auto& { return report.seconds.iterations; });
  visit(
      "seconds_evaluation", [](auto& report) -> auto& { return report.seconds.evaluation; });
  visit(
      "seconds", [](auto& report) -> auto& { return report.seconds.total; });
}

template <class Visit>
void visit_members(ExactProgress const*, Visit const& visit) {
  visit("iteration", &ExactProgress::iteration);
  visit("candidates", &ExactProgress::candidates);
  visit("missing", &ExactProgress::missing);
  visit("dual", &ExactProgress::dual);
  visit("seconds", &ExactProgress::seconds);
}

template <class Visit>
void visit_members(ExactReport const*, Visit const& visit) {
  visit("status", &ExactReport::status);
  visit("message", &ExactReport::message);
  visit("rounds", &ExactReport::rounds);
  visit("candidates", &ExactReport::candidates);
  visit("pivots", &ExactReport::pivots);
  visit("nonzeros", &ExactReport::nonzeros);
  visit("mass", &ExactReport::mass);
  visit("transported_mass", &ExactReport::transported_mass);
  visit("missing_mass", &ExactReport::missing_mass);
  visit("transport_cost", &ExactReport::transport_cost);
  visit("value", &ExactReport::value);
  visit("mass_price", &ExactReport::mass_price);
  visit("dual", &ExactReport::dual);
  visit("gap", &ExactReport::gap);
  visit("worst_reduced_cost", &ExactReport::worst_reduced_cost);
  visit("cost_scale", &ExactReport::cost_scale);
  visit(
      "seconds_start", [](auto& report) -> auto& { return report.seconds.start; });
  visit(
      "seconds_search", [](auto& report) -> auto& { return report.seconds.search; });
  visit(
      "seconds_pricing", [](auto& report) -> auto& { return report.seconds.pricing; });
  visit(
      "seconds", [](auto& report) -> auto& { return report.seconds.total; });
}

template <class Visit>
void visit_members(GromovProgress const*, Visit const& visit) {
  visit("start", &GromovProgress::start);
  visit("iteration", &GromovProgress::iteration);
  visit("value", &GromovProgress::value);
  visit("change", &GromovProgress::change);
  visit("lower_bound", &GromovProgress::lower_bound);
  visit("seconds", &GromovProgress::seconds);
}

template <class Visit>
void visit_members(GromovStart const*, Visit const& visit) {
  visit("kind", &GromovStart::kind);
  visit("iterations", &GromovStart::iterations);
  visit("value", &GromovStart::value);
  visit("finished", &GromovStart::finished);
}

template <class Visit>
void visit_members(GromovReport const*, Visit const& visit) {
  visit("status", &GromovReport::status);
  visit("message", &GromovReport::message);
  visit("method", &GromovReport::method);
  visit("eps", &GromovReport::eps);
  visit("alpha", &GromovReport::alpha);
  visit("marginals", &GromovReport::marginals);
  visit("penalty_a", &GromovReport::penalty_a);
  visit("penalty_b", &GromovReport::penalty_b);
  visit("value", &GromovReport::value);
  visit("quadratic", &GromovReport::quadratic);
  visit("linear", &GromovReport::linear);
  visit("entropy", &GromovReport::entropy);
  visit("divergence", &GromovReport::divergence);
  visit("lower_bound", &GromovReport::lower_bound);
  visit("gap", &GromovReport::gap);
  visit("problems", &GromovReport::problems);
  visit("stationarity", &GromovReport::stationarity);
  visit("change", &GromovReport::change);
  visit("marginal_error", &GromovReport::marginal_error);
  visit("mass", &GromovReport::mass);
  visit("iterations", &GromovReport::iterations);
  visit("sweeps", &GromovReport::sweeps);
  visit("best", &GromovReport::best);
  visit(
      "seconds_bounds", [](auto& report) -> auto& { return report.seconds.bounds; });
  visit(
      "seconds_steps", [](auto& report) -> auto& { return report.seconds.steps; });
  visit(
      "seconds_partition", [](auto& report) -> auto& { return report.seconds.partition; });
  visit(
      "seconds", [](auto& report) -> auto& { return report.seconds.total; });
}

/// Calls visit(name, member) for each; std::invoke(member, record) is the member's value.
template <class Record, class Visit>
void visit_members(Visit const& visit) {
  visit_members(static_cast<Record const*>(nullptr), visit);
}

/// As Python sees a member: enumerations by their names.
template <class Value>
auto shown(Value const& value) {
  if constexpr (std::is_enum_v<Value>)
    return std::string(name(value));
  else
    return value;
}

template <class Value>
void restore(nb::handle from, Value& value) {
  if constexpr (std::is_enum_v<Value>)
    value = from_name<Value>(nb::cast<std::string>(from)).value_or(Value());
  else
    value = nb::cast<Value>(from);
}

template <class Record>
Members to_dict(Record const& record) {
  Members dict;
  visit_members<Record>(
      [&](char const* name, auto const& member) { dict[name] = nb::cast(shown(std::invoke(member, record))); });
  return dict;
}

template <class Record>
Record from_dict(Members const& dict) {
  Record record{};
  visit_members<Record>(
      [&](char const* name, auto const& member) { restore(dict[name], std::invoke(member, record)); });
  return record;
}

template <class Record, class... Extra>
nb::class_<Record> bind_record(nb::module_& module, char const* name, char const* doc, Extra const&... extra) {
  nb::class_<Record> type(module, name, doc, extra...);
  visit_members<Record>([&](char const* field, auto const& member) {
    type.def_prop_ro(field, [member](Record const& record) { return shown(std::invoke(member, record)); });
  });
  type.def("to_dict", &to_dict<Record>, "All members by name.");
  type.def("__repr__", [title = std::string(name)](Record const& record) {
    std::string text = title + "(";
    for (auto const& [key, value] : to_dict(record)) {
      if (text.back() != '(') text += ", ";
      text += nb::cast<std::string>(key) + "=" + nb::cast<std::string>(nb::repr(value));
    }
    return text + ")";
  });
  return type;
}

auto potentials_of(Progress const& progress) {
  if (!progress.potentials)
    throw std::runtime_error("potentials: the progress function has returned; must be read while it runs");
  Potentials present = [&] {
    nb::gil_scoped_release const released;  // Other ranks may be threads of this process.
    return progress.potentials();
  }();
  return std::pair(to_numpy(std::move(present.f)), to_numpy(std::move(present.g)));
}

/// A report of a solve with a list of entries; both can be pickled.
template <class Record, class Entry>
void bind_solve(nb::module_& module, char const* entry_name, char const* entry_doc, char const* name, char const* doc,
                char const* list_name, std::vector<Entry> Record::*list, char const* list_doc) {
  bind_record<Entry>(module, entry_name, entry_doc)
      .def("__getstate__", &to_dict<Entry>)
      .def("__setstate__", [](Entry& entry, Members const& state) { new (&entry) Entry(from_dict<Entry>(state)); });
  bind_record<Record>(module, name, doc)
      .def_prop_ro(
          list_name, [list](Record const& record) { return record.*list; }, list_doc)
      .def("__getstate__", [list](Record const& record) { return std::pair(to_dict(record), record.*list); })
      .def("__setstate__", [list](Record& record, std::pair<Members, std::vector<Entry>> const& state) {
        new (&record) Record(from_dict<Record>(state.first));
        record.*list = state.second;
      });
}

}  // namespace

void bind_reports(nb::module_& module) {
  // The package may give an instance other potentials (_reference.py).
  bind_record<Progress>(module, "Progress", "What a progress function sees at each check.", nb::dynamic_attr())
      .def("potentials", &potentials_of,
           "(f, g), the present potentials in units of the cost, from which another solve may start: NumPy arrays (n) "
           "and (m) of float64, for use as `potentials_init`. RuntimeError once the progress function has returned. "
           "Points of zero weight take a pass, so within `monge.distributed` either all ranks call it or none.");
  auto const bind_iterations = [&]<class Record, class Entry>(std::vector<Entry> Record::*history, char const* entry,
                                                              char const* name, char const* doc) {
    bind_solve(module, entry, "One check of a solve.", name, doc, "history", history,
               "The checks of the solve, in order.");
  };
  bind_iterations(
      &Report::history, "Check", "Report",
      "Results and statistics of a solve. Costs are in the caller's units; NaN marks values that were not computed.");
  bind_record<RegularizedProgress>(module, "RegularizedProgress", "What a progress function sees at each check.");
  bind_iterations(&RegularizedReport::history, "RegularizedCheck", "RegularizedReport",
                  "What a regularised solve reached, in units of the cost.");
  bind_record<GromovProgress>(module, "GromovProgress",
                              "What a progress function sees of Gromov-Wasserstein transport.");
  bind_solve(module, "GromovStart", "The end of one start.", "GromovReport",
             "What Gromov-Wasserstein transport reached; values bound the minimum from above.", "starts",
             &GromovReport::starts, "The starts, in order.");
  bind_record<ExactProgress>(module, "ExactProgress", "What a progress function sees in each round.");
  bind_record<ExactReport>(module, "ExactReport", "What an exact solve reached, in units of the cost.")
      .def("__getstate__", &to_dict<ExactReport>)
      .def("__setstate__",
           [](ExactReport& report, Members const& state) { new (&report) ExactReport(from_dict<ExactReport>(state)); });
  bind_record<GradientReport>(module, "GradientReport", "How far derivatives are from those at the optimum.");
  bind_record<DivergenceGradient>(module, "DivergenceGradient", "Derivatives of a divergence that are numbers.");
  bind_record<LinearReport>(module, "LinearReport", "How a linear system was solved.");
}

}  // namespace monge::python
