// Names of enumerations: one list for each, from which name(), from_name() and the messages on allowed values follow.
#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace monge {

template <class Choice>
struct Named {
  Choice value;
  std::string_view name;
};

/// Every value and its stable lower-case name. Such a function follows each enumeration.
template <std::same_as<bool> Bool>
constexpr auto names_of(Bool) {
  return std::to_array<Named<bool>>({{true, "true"}, {false, "false"}});
}

/// An enumeration with names, or bool.
template <class Choice>
concept HasNames = requires {
  names_of(Choice{});
};

template <HasNames Choice>
inline constexpr auto kNames = names_of(Choice{});

/// "unknown" for a value that the list lacks.
template <HasNames Choice>
constexpr std::string_view name(Choice value) {
  for (auto const& [known, text] : kNames<Choice>) {
    if (known == value) return text;
  }
  return "unknown";
}

/// The value of that name, if there is one.
template <HasNames Choice>
constexpr std::optional<Choice> from_name(std::string_view text) {
  for (auto const& [value, known] : kNames<Choice>) {
    if (known == text) return value;
  }
  return std::nullopt;
}

/// All names, as in "float32, float64". `last`, for example " or ", replaces the last comma.
template <HasNames Choice>
std::string names_text(std::string_view last = ", ") {
  std::string text;
  for (std::size_t k = 0; k < kNames<Choice>.size(); ++k) {
    if (k > 0) text += k + 1 < kNames<Choice>.size() ? ", " : last;
    text += kNames<Choice>[k].name;
  }
  return text;
}

}  // namespace monge
