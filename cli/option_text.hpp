// Options as text and as JSON; the lists of them are visit_solve_options and visit_forward_options.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <monge/entropic.hpp>
#include <monge/projection.hpp>
#include <nlohmann/json.hpp>

namespace monge::cli {

/// "check_every" as a flag: "--check-every".
std::string flag(std::string_view option);

/// Sets the value from all of `text`; false if it spells no value of that type. The library checks ranges.
bool parse(std::string_view text, double& value);
bool parse(std::string_view text, int& value);
bool parse(std::string_view text, std::uint64_t& value);
template <HasNames Choice>
bool parse(std::string_view text, Choice& value) {
  auto const choice = from_name<Choice>(text);
  if (choice) value = *choice;
  return choice.has_value();
}

/// For an option without a default, which has no value if it is not given.
template <class Value>
bool parse(std::string_view text, std::optional<Value>& value) {
  Value given{};
  if (!parse(text, given)) return false;
  value = given;
  return true;
}

template <class Value>
nlohmann::ordered_json to_json(Value value) {
  if constexpr (std::is_enum_v<Value>) {
    return name(value);
  } else {
    return value;
  }
}
template <class Value>
nlohmann::ordered_json to_json(std::optional<Value> const& value) {
  return value ? to_json(*value) : nullptr;
}

/// As the command line spells it; empty where there is no value.
template <class Value>
std::string option_text(Value value) {
  nlohmann::ordered_json const json = to_json(value);
  if (json.is_null()) return {};
  if (json.is_string()) return json.template get<std::string>();
  return json.is_number_float() ? fmt::format("{}", json.template get<double>()) : json.dump();
}

}  // namespace monge::cli
