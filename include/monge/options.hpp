// Constraints on the fields of options. Validation, command line, bindings and reports read the lists of fields
// (visit_solve_options, visit_projection_options).
#pragma once
#include <limits>
#include <monge/export.hpp>
#include <string>

#include <monge/names.hpp>

namespace monge {

/// An interval of allowed numbers. An open end is not allowed; the default allows all finite numbers. NaN is never
/// allowed.
struct MONGE_API Bounds {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool least_open = true, most_open = true;

  constexpr bool contains(double value) const {
    return (least_open ? value > least : value >= least) && (most_open ? value < most : value <= most);
  }
  /// "> 0", "in (0, 1]" or "finite".
  std::string text() const;
  /// The same with "finite and" in front where that is needed: "finite and > 0".
  std::string text_in_full() const;
};

inline constexpr Bounds kFinite{};
inline constexpr Bounds kPositive{.least = 0};
inline constexpr Bounds kPositiveOrInfinite{.least = 0, .most_open = false};
inline constexpr Bounds kNotNegative{.least = 0, .least_open = false};
/// For integers, and for float64 that may be infinite.
constexpr Bounds at_least(double least) {
  return {.least = least, .least_open = false, .most_open = false};
}

/// The values of an enumeration, or true and false.
template <HasNames Choice>
struct OneOf {
  constexpr bool contains(Choice value) const {
    for (auto const& known : kNames<Choice>) {
      if (known.value == value) return true;
    }
    return false;
  }
  /// "alternating or symmetric".
  std::string text() const { return names_text<Choice>(" or "); }
};

/// One member of options: its name in every interface, its constraint (Bounds or OneOf) and its description.
template <class Constraint>
struct Field {
  char const* name;
  Constraint constraint;
  char const* description;
};
template <class Constraint>
Field(char const*, Constraint, char const*) -> Field<Constraint>;

}  // namespace monge
