#include "option_text.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace monge::cli {
namespace {

template <class Number>
bool parse_number(std::string_view text, Number& value) {
  Number parsed{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error != std::errc{} || end != text.data() + text.size()) return false;
  value = parsed;
  return true;
}

}  // namespace

std::string flag(std::string_view option) {
  std::string text = fmt::format("--{}", option);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

bool parse(std::string_view text, double& value) {
  return parse_number(text, value);
}
bool parse(std::string_view text, int& value) {
  return parse_number(text, value);
}
bool parse(std::string_view text, std::uint64_t& value) {
  return parse_number(text, value);
}

}  // namespace monge::cli
