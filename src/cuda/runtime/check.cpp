#include "cuda/runtime/check.hpp"

#include <string>

#include <monge/error.hpp>

namespace monge::cuda {

void check(cudaError_t code, char const* call) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();  // Clears the error, so that the next call does not report it again.
  std::string name = call;
  name = name.substr(0, name.find('('));
  ErrorCode const kind = code == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device_failure;
  throw Error(kind, "CUDA: " + name + ": " + cudaGetErrorString(code));
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  MONGE_CUDA_TRY(cudaGetDevice(&device));
  MONGE_CUDA_TRY(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace monge::cuda
