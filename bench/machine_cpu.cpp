#include <monge/monge.hpp>

#include "machine.hpp"
#include "provenance.hpp"

namespace monge::bench {

Machine cpu_machine() {
  return {.context = Context::cpu(), .provenance = provenance_on(), .copy = [](std::vector<double> const& values) {
            auto const copy = std::make_shared<std::vector<double> const>(values);
            return std::shared_ptr<double const>(copy, copy->data());
          }};
}

}  // namespace monge::bench
