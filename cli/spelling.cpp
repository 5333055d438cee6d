#include "spelling.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace monge::cli {
namespace {

/// Names of options in Python and in other packages that no rule of spelling finds.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"reg", "eps"},           {"blur", "eps"},
    {"stopThr", "tolerance"}, {"max-iter", "iterations"},
    {"max-iter", "rounds"},   {"unbalanced", "penalty-a"},
    {"reach", "penalty-a"},   {"metric", "cost-function"}};

/// The least number of letters to insert, delete, replace or exchange with their neighbour that make one of the other.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before, last(to.size() + 1), row(to.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      row[j + 1] = std::min({last[j + 1] + 1, row[j] + 1, last[j] + (from[i] != to[j])});
      if (i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j])
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
    before = std::exchange(last, row);
  }
  return last.back();
}

}  // namespace

std::vector<std::string> spelled_arguments(int argc, char const* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    if (argument.starts_with("--"))
      std::replace(argument.begin(), std::find(argument.begin(), argument.end(), '='), '_', '-');
  }
  return arguments;
}

std::string must_be(std::string_view given, std::string const& allowed) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < allowed.size();) {
    std::size_t const comma = allowed.find(", ", begin), last = allowed.find(" or ", begin);
    std::size_t const end = std::min({comma, last, allowed.size()});
    names.push_back(allowed.substr(begin, end - begin));
    begin = end + (end == comma ? 2 : 4);
  }
  std::string const nearest = names.size() > 1 ? nearest_name(given, names) : "";
  return nearest.empty() ? "; must be " + allowed : "; did you mean " + nearest + "? Must be " + allowed;
}

std::string nearest_name(std::string_view given, std::vector<std::string> const& known) {
  for (auto const& [name, ours] : kElsewhere) {
    if (given == name && std::find(known.begin(), known.end(), ours) != known.end()) return std::string(ours);
  }
  std::string nearest;
  std::size_t const most = given.size() / 3;  // A wrong name has two right letters for each wrong one.
  std::size_t least = most + 1;
  for (std::string const& name : known) {
    bool const begins = given.size() >= 3 && name.size() >= 3 && (name.starts_with(given) || given.starts_with(name));
    std::size_t const changes = std::min(distance(given, name), begins ? most : least);
    if (changes >= least) continue;
    least = changes;
    nearest = name;
  }
  return nearest;
}

}  // namespace monge::cli
