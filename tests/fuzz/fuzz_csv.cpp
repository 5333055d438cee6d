// Any text is a table or an Error; a table has rows x columns numbers.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <monge/error.hpp>

#include "csv.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace monge::cli;
  try {
    Array const array = parse_csv(std::string_view(reinterpret_cast<char const*>(data), size), "fuzz");
    auto const count = static_cast<std::int64_t>(std::get<std::vector<double>>(array.values).size());
    if (count == 0 || array.rows() * array.columns() != count) std::abort();
  } catch (monge::Error const&) {
  }
  return 0;
}
