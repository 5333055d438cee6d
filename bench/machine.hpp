// The device of a study of whole solves.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <monge/context.hpp>

namespace monge::bench {

struct Machine {
  Context context;
  std::string provenance;  ///< Fields of a result file, without braces: what it is, and what runs there.
  /// A copy in the memory of the device.
  std::function<std::shared_ptr<double const>(std::vector<double> const&)> copy;
  double read_rate = 0;  ///< Bytes a second, and
  double exp_rate = 0;   ///< float64 exponentials a second; 0: not measured.
};

Machine cpu_machine();
/// The first GPU.
Machine cuda_machine();

}  // namespace monge::bench
