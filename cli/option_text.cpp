#include "option_text.hpp"

#include <algorithm>
#include <charconv>
#include <initializer_list>

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

template <class Choice>
bool parse_choice(std::string_view text, std::initializer_list<Choice> choices, Choice& value) {
  auto const found = std::find_if(choices.begin(), choices.end(), [&](Choice choice) { return name(choice) == text; });
  if (found == choices.end()) return false;
  value = *found;
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

bool parse(std::string_view text, bool& value) {
  if (text != "true" && text != "false") return false;
  value = text == "true";
  return true;
}

bool parse(std::string_view text, Schedule& value) {
  return parse_choice(text, {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}, value);
}

bool parse(std::string_view text, Precision& value) {
  return parse_choice(text, {Precision::float32, Precision::tf32, Precision::float64}, value);
}

bool parse(std::string_view text, ProjectionOrder& value) {
  return parse_choice(text, {ProjectionOrder::rows_first, ProjectionOrder::columns_first}, value);
}

bool parse(std::string_view text, ProjectionStart& value) {
  return parse_choice(
      text, {ProjectionStart::exp, ProjectionStart::exp_shifted, ProjectionStart::softmax, ProjectionStart::positive},
      value);
}

bool parse(std::string_view text, EpsilonMode& value) {
  return parse_choice(
      text,
      {EpsilonMode::none, EpsilonMode::denominator, EpsilonMode::scaling, EpsilonMode::matrix, EpsilonMode::clamp},
      value);
}

bool parse(std::string_view text, ProjectionGradient& value) {
  return parse_choice(text, {ProjectionGradient::unrolled, ProjectionGradient::implicit}, value);
}

}  // namespace monge::cli
