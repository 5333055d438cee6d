#include "csv.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>
#include <monge/error.hpp>

namespace monge::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r\v\f";
constexpr char kBlankSeparated = ' ';

std::string_view trim(std::string_view text) {
  std::size_t const begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

char separator_of(std::string_view line) {
  for (char const candidate : {';', ',', '\t'}) {
    if (line.find(candidate) != std::string_view::npos) return candidate;
  }
  return kBlankSeparated;
}

void split(std::string_view line, char separator, std::vector<std::string_view>& fields) {
  fields.clear();
  if (separator == kBlankSeparated) {
    for (line = trim(line); !line.empty(); line = trim(line)) {
      std::string_view const field = line.substr(0, line.find_first_of(kBlanks));
      fields.push_back(field);
      line.remove_prefix(field.size());
    }
    return;
  }
  for (;;) {
    std::size_t const end = line.find(separator);
    fields.push_back(trim(line.substr(0, end)));
    if (end == std::string_view::npos) return;
    line.remove_prefix(end + 1);
  }
}

/// The number that `field` spells, if it spells one; infinite if it is too large for float64.
std::optional<double> number(std::string_view field) {
  if (field.size() > 1 && field[0] == '+' && field[1] != '-') field.remove_prefix(1);  // from_chars knows no plus sign
  double value = 0;
  auto const [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (end != field.data() + field.size() || error == std::errc::invalid_argument) return std::nullopt;
  // from_chars does not say whether the number was too large or too small; strtod does.
  if (error == std::errc::result_out_of_range) return std::strtod(std::string(field).c_str(), nullptr);
  return value;
}

bool spells_infinity(std::string_view field) {
  return field.find_first_of("iI") != std::string_view::npos;
}

}  // namespace

Array parse_csv(std::string_view text, std::string const& name) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());

  std::vector<double> values;
  std::vector<std::string_view> fields;
  std::int64_t line_number = 0, rows = 0, columns = 0;
  char separator = kBlankSeparated;
  bool first = true;
  while (!text.empty()) {
    std::size_t const end = text.find('\n');
    std::string_view const line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line_number;
    if (trim(line).empty() || trim(line).front() == '#') continue;

    if (first) separator = separator_of(line);
    split(line, separator, fields);
    auto const is_word = [](std::string_view field) { return !field.empty() && !number(field); };
    if (first && std::all_of(fields.begin(), fields.end(), is_word)) {
      first = false;
      continue;
    }
    first = false;
    if (rows == 0) columns = static_cast<std::int64_t>(fields.size());
    if (static_cast<std::int64_t>(fields.size()) != columns) {
      throw Error(ErrorCode::input_output,
                  fmt::format("{}: line {} has {} columns; must have {}, like the lines before", name, line_number,
                              fields.size(), columns));
    }
    for (std::size_t k = 0; k < fields.size(); ++k) {
      std::optional<double> const value = number(fields[k]);
      char const* problem = fields[k].empty()                                   ? "is empty"
                            : !value                                            ? "is no number"
                            : std::isinf(*value) && !spells_infinity(fields[k]) ? "is too large for float64"
                                                                                : nullptr;
      if (problem != nullptr) {
        throw Error(ErrorCode::input_output, fmt::format("{}: line {}, column {}: '{}' {}", name, line_number, k + 1,
                                                         printable(fields[k]), problem));
      }
      values.push_back(*value);
    }
    ++rows;
  }
  if (rows == 0)
    throw Error(ErrorCode::input_output, fmt::format("{}: holds no numbers; must have one row a line", name));
  return {{rows, columns}, std::move(values)};
}

}  // namespace monge::cli
