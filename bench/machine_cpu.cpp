#include <monge/monge.hpp>

#include "machine.hpp"
#include "provenance.hpp"

namespace monge::bench {

Machine cpu_machine() {
  DeviceInfo const processor = devices().front();
  return {.context = Context::cpu(),
          .provenance = "\"device\": \"" + processor.name + "\", \"instruction_set\": \"" + processor.instruction_set +
                        "\", \"threads\": " + std::to_string(processor.units) + ", " + provenance_of_run(),
          .copy = [](std::vector<double> const& values) {
            auto const copy = std::make_shared<std::vector<double> const>(values);
            return std::shared_ptr<double const>(copy, copy->data());
          }};
}

}  // namespace monge::bench
