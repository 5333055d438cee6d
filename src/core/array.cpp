#include <monge/array.hpp>

namespace monge {

std::string to_string(Device device) {
  return device.type == DeviceType::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace monge
