// MONGE_INSTRUCTION_SET in the environment of a test or a benchmark: one instruction set, by Highway's name.
#pragma once
#include <hwy/highway.h>

#include <cstdlib>
#include <string_view>

#include <monge/context.hpp>

namespace monge::oracle {

/// Restricts the CPU's kernels to the instruction set that the environment names. Returns whether they use it; true if
/// none is named.
inline bool restrict_instruction_set() {
  char const* const name = std::getenv("MONGE_INSTRUCTION_SET");
  if (!name) return true;
  for (std::int64_t const target : hwy::SupportedAndGeneratedTargets()) {
    if (hwy::TargetName(target) != std::string_view(name)) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
  }
  return devices().front().instruction_set == name;
}

}  // namespace monge::oracle
