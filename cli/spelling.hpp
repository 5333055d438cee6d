// Spelling of options and commands: underscores, and the names that a wrong one may stand for.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace monge::cli {

/// The arguments of main(), in which an option may have the name that messages and Python give it: --eps_relative is
/// --eps-relative. The values of options and all that follows "--" stay as they are.
std::vector<std::string> spelled_arguments(int argc, char const* const* argv);

/// The one of `known` names that `given` is likely to mean: it begins with the other or differs by a few letters. Empty
/// if there is none.
std::string nearest_name(std::string_view given, std::vector<std::string> const& known);

/// The end of a message about a value: "; must be newton, sinkhorn or auto" for these allowed values. If `given` is
/// near one of them, a proposal comes first: "; did you mean newton? Must be newton, ...".
std::string must_be(std::string_view given, std::string const& allowed);

}  // namespace monge::cli
