// Any bytes are a .npy file or an Error; what was read is written and read back as the same array.
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

#include <monge/error.hpp>

#include "npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace monge::cli;
  std::istringstream in(std::string(reinterpret_cast<char const*>(data), size));
  try {
    Array const array = read_npy(in, "fuzz");
    std::stringstream file;
    write_npy(file, array);
    std::string const written = file.str();
    Array const again = read_npy(file, "written");
    std::ostringstream twice;  // compared as bytes, since NaN differs from itself
    write_npy(twice, again);
    if (again.shape != array.shape || twice.str() != written) std::abort();
  } catch (monge::Error const&) {
  }
  return 0;
}
