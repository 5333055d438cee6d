// The options of a solve as text and as JSON, from the one list in monge/entropic.hpp.
#pragma once
#include <string>
#include <string_view>

#include <monge/entropic.hpp>
#include <nlohmann/json.hpp>

namespace monge::cli {

/// "check_every" as a flag: "--check-every".
std::string flag(std::string_view option);

/// Sets the value from all of `text`; false where it spells no value of that type. Ranges are the library's to check.
bool parse(std::string_view text, double& value);
bool parse(std::string_view text, int& value);
bool parse(std::string_view text, bool& value);
bool parse(std::string_view text, Schedule& value);
bool parse(std::string_view text, Precision& value);

inline nlohmann::ordered_json to_json(double value) {
  return value;
}
inline nlohmann::ordered_json to_json(int value) {
  return value;
}
inline nlohmann::ordered_json to_json(bool value) {
  return value;
}
inline nlohmann::ordered_json to_json(Schedule value) {
  return name(value);
}
inline nlohmann::ordered_json to_json(Precision value) {
  return name(value);
}

}  // namespace monge::cli
