#include <monge/options.hpp>

#include <cmath>

#include <fmt/format.h>

#include "core/numbers.hpp"

namespace monge {

std::string Bounds::text() const {
  if (std::isfinite(least) && std::isfinite(most))
    return fmt::format("in {}{}, {}{}", least_open ? '(' : '[', least, most, most_open ? ')' : ']');
  if (std::isfinite(least)) return fmt::format("{} {}", least_open ? ">" : ">=", least);
  if (std::isfinite(most)) return fmt::format("{} {}", most_open ? "<" : "<=", most);
  return "finite";
}

std::string Bounds::text_in_full() const {
  bool const one_sided = std::isfinite(least) != std::isfinite(most);
  bool const infinite = contains(kInfinity) || contains(-kInfinity);
  return (one_sided && !infinite ? "finite and " : "") + text();
}

}  // namespace monge
