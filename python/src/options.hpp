// Options by name: keyword arguments in, the lists of the library (visit_solve_options, ...) out.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <limits>
#include <monge/error.hpp>
#include <monge/names.hpp>
#include <monge/options.hpp>
#include <string>
#include <type_traits>

namespace monge::python {

namespace nb = nanobind;

using OptionDict = nb::typed<nb::dict, nb::str, nb::any>;
using OptionList = nb::typed<nb::list, nb::any>;

template <class Value>
std::string kind_of() {
  if constexpr (std::is_same_v<Value, bool>)
    return "bool";
  else if constexpr (std::is_enum_v<Value>)
    return "str";
  else
    return std::is_integral_v<Value> ? "int" : "float";
}

/// A wrong value for a message: its repr if that is short, else its type.
inline std::string shown(nb::handle given) {
  constexpr std::size_t kMost = 60;
  std::string text = nb::cast<std::string>(nb::repr(given));
  if (text.size() <= kMost && text.find('\n') == std::string::npos) return text;
  return "of type " + nb::cast<std::string>(given.type().attr("__name__"));
}

/// Sets `value` from an object of Python, or throws TypeError. The library checks its range.
template <class Constraint, class Value>
void set_option(Field<Constraint> const& field, nb::handle given, Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    if (nb::isinstance<nb::str>(given)) {
      auto const choice = from_name<Value>(nb::cast<std::string>(given));
      if (!choice)
        throw Error(ErrorCode::invalid_argument, std::string(field.name) + ": is '" + nb::cast<std::string>(given) +
                                                     "'; must be " + field.constraint.text());
      value = *choice;
      return;
    }
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (nb::isinstance<nb::bool_>(given)) {
      value = nb::cast<bool>(given);
      return;
    }
  } else if (!nb::isinstance<nb::bool_>(given) && nb::try_cast(given, value)) {
    return;
  }
  if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>) {
    if (nb::isinstance<nb::int_>(given) && !nb::isinstance<nb::bool_>(given))
      throw Error(ErrorCode::invalid_argument, std::string(field.name) + ": is " + shown(given) + "; must be " +
                                                   field.constraint.text() + " and at most " +
                                                   std::to_string(std::numeric_limits<Value>::max()));
  }
  throw nb::type_error((std::string(field.name) + ": is " + shown(given) + "; must be " +
                        (std::is_enum_v<Value> ? "" : kind_of<Value>() + ", ") + field.constraint.text())
                           .c_str());
}

/// Sets the options of `visit_list` that `given` names; throws TypeError for a name that is not on the list.
template <class Options, class VisitList>
void set_options(Options& options, OptionDict const& given, VisitList const& visit_list) {
  std::size_t used = 0;
  std::string names;
  visit_list(options, [&](auto const& field, auto& value) {
    names += std::string(names.empty() ? "" : ", ") + field.name;
    if (!given.contains(field.name)) return;
    set_option(field, given[field.name], value);
    ++used;
  });
  if (used == given.size()) return;
  std::string const listed = ", " + names + ",";
  for (auto const& [key, value] : given) {
    std::string const name = nb::cast<std::string>(nb::str(key));
    if (listed.find(", " + name + ",") == std::string::npos)
      throw nb::type_error((name + ": is no option; options are " + names).c_str());
  }
}

/// (name, type, default, allowed values, description) of each option, in the order of the list.
template <class Options, class VisitList>
OptionList option_list(VisitList const& visit_list) {
  OptionList list;
  Options standard;
  visit_list(standard, [&](auto const& field, auto& value) {
    using Value = std::remove_cvref_t<decltype(value)>;
    nb::object initial;
    if constexpr (std::is_enum_v<Value>)
      initial = nb::cast(std::string(name(value)));
    else
      initial = nb::cast(value);
    nb::tuple choices = nb::make_tuple();
    if constexpr (std::is_enum_v<Value>) {
      nb::list names;
      for (auto const& known : kNames<Value>) names.append(std::string(known.name));
      choices = nb::tuple(names);
    }
    list.append(nb::make_tuple(std::string(field.name), kind_of<Value>(), initial, choices, field.constraint.text(),
                               std::string(field.description)));
  });
  return list;
}

}  // namespace monge::python
