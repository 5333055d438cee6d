// Tables of numbers as text.
#pragma once
#include <string>
#include <string_view>

#include "array.hpp"

namespace monge::cli {

/// One row per line. Fields are separated by semicolons, commas, tabs or blanks: the first of these, in this order,
/// that the first line has. A first line without any number is a header. Empty lines and lines that begin with # are
/// skipped. Returns an n x d float64 array. `name` opens every message. Throws Error (input_output).
Array parse_csv(std::string_view text, std::string const& name);

}  // namespace monge::cli
