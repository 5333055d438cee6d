// Formulas that the CPU code and the CUDA kernels share.
#pragma once

#ifdef __CUDACC__
#define MONGE_HOST_DEVICE __host__ __device__
#else
#define MONGE_HOST_DEVICE
#endif
