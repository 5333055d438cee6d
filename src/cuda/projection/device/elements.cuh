// Elements of a batch as float: one at a time, or four neighbours of a row.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/projection/device/arguments.hpp"

namespace monge::cuda {

__device__ __forceinline__ float load_one(float const* from) {
  return *from;
}
__device__ __forceinline__ float load_one(__nv_bfloat16 const* from) {
  return __bfloat162float(*from);
}
__device__ __forceinline__ float load_one(__half const* from) {
  return __half2float(*from);
}

__device__ __forceinline__ void store_one(float* to, float value) {
  *to = value;
}
__device__ __forceinline__ void store_one(__nv_bfloat16* to, float value) {
  *to = __float2bfloat16_rn(value);
}
__device__ __forceinline__ void store_one(__half* to, float value) {
  *to = __float2half_rn(value);
}

__device__ __forceinline__ float4 load_four(float const* from) {
  return __ldcs(reinterpret_cast<float4 const*>(from));  // Read once, so it may leave the caches first.
}
__device__ __forceinline__ float4 load_four(__nv_bfloat16 const* from) {
  uint2 const bits = __ldcs(reinterpret_cast<uint2 const*>(from));
  return {__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u), __uint_as_float(bits.y << 16),
          __uint_as_float(bits.y & 0xffff0000u)};
}
__device__ __forceinline__ float4 load_four(__half const* from) {
  uint2 const bits = __ldcs(reinterpret_cast<uint2 const*>(from));
  float2 const low = __half22float2(*reinterpret_cast<__half2 const*>(&bits.x));
  float2 const high = __half22float2(*reinterpret_cast<__half2 const*>(&bits.y));
  return {low.x, low.y, high.x, high.y};
}

__device__ __forceinline__ void store_four(float* to, float4 value) {
  __stcs(reinterpret_cast<float4*>(to), value);
}
__device__ __forceinline__ void store_four(__nv_bfloat16* to, float4 value) {
  __nv_bfloat162 const low = __floats2bfloat162_rn(value.x, value.y), high = __floats2bfloat162_rn(value.z, value.w);
  __stcs(reinterpret_cast<uint2*>(to),
         make_uint2(*reinterpret_cast<unsigned const*>(&low), *reinterpret_cast<unsigned const*>(&high)));
}
__device__ __forceinline__ void store_four(__half* to, float4 value) {
  __half2 const low = __floats2half2_rn(value.x, value.y), high = __floats2half2_rn(value.z, value.w);
  __stcs(reinterpret_cast<uint2*>(to),
         make_uint2(*reinterpret_cast<unsigned const*>(&low), *reinterpret_cast<unsigned const*>(&high)));
}

/// Calls function(pointer) with the view's data in its type.
template <class Function>
__device__ __forceinline__ void with_type(BatchArguments const& view, Function&& function) {
  if (view.type == DataType::float32) {
    function(static_cast<float*>(view.data));
  } else if (view.type == DataType::bfloat16) {
    function(static_cast<__nv_bfloat16*>(view.data));
  } else {
    function(static_cast<__half*>(view.data));
  }
}

__device__ __forceinline__ float load_element(BatchArguments const& view, std::int64_t at) {
  float value = 0;
  with_type(view, [&](auto const* data) { value = load_one(data + at); });
  return value;
}

__device__ __forceinline__ void store_element(BatchArguments const& view, std::int64_t at, float value) {
  with_type(view, [&](auto* data) { store_one(data + at, value); });
}

}  // namespace monge::cuda
