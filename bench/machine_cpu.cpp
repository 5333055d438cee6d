#include <ctime>

#include <monge/monge.hpp>

#include "machine.hpp"

namespace monge::bench {

Machine cpu_machine() {
  DeviceInfo const processor = devices().front();
  std::time_t const now = std::time(nullptr);
  char date[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  return {.context = Context::cpu(),
          .provenance = "\"device\": \"" + processor.name + "\", \"instruction_set\": \"" + processor.instruction_set +
                        "\", \"threads\": " + std::to_string(processor.units) + ", \"date\": \"" + date +
                        "\", \"monge\": \"" + version() + "\"",
          .copy = [](std::vector<double> const& values) {
            auto const copy = std::make_shared<std::vector<double> const>(values);
            return std::shared_ptr<double const>(copy, copy->data());
          }};
}

}  // namespace monge::bench
