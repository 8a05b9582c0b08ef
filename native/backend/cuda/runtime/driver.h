// driver.h: the CUDA driver calls we use, resolved from libcuda.so.1 at first use. Types and numbers are
// declared here because cuda.h is not needed for anything else. Suffixed names (_v2) are the current ABI;
// plain ones may be the old.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/library.h"

namespace spark::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;

struct CUuuid {
  unsigned char bytes[16];
};

// CUmemLocation of CUDA 12.2 and later.
struct CUmemLocation {
  int type;  // 1 device, 2 host
  int id;
};

constexpr CUresult kSuccess = 0;
constexpr CUresult kInvalidValue = 1;
constexpr CUresult kOutOfMemory = 2;

// CUdevice_attribute
enum Attribute : int {
  kMaxSharedMemoryPerBlockOptin = 97,
  kMultiprocessorCount = 16,
  kIntegrated = 18,
  kUnifiedAddressing = 41,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kManagedMemory = 83,
  kPageableMemoryAccess = 88,
  kConcurrentManagedAccess = 89,
  kHostRegisterSupported = 99,
  kPageableUsesHostPageTables = 100,
};

struct Driver {
  CUresult (*cuInit)(unsigned flags);
  CUresult (*cuDriverGetVersion)(int* version);
  CUresult (*cuGetErrorName)(CUresult, const char** name);
  CUresult (*cuGetErrorString)(CUresult, const char** text);

  CUresult (*cuDeviceGetCount)(int* count);
  CUresult (*cuDeviceGet)(CUdevice*, int ordinal);
  CUresult (*cuDeviceGetName)(char* name, int length, CUdevice);
  CUresult (*cuDeviceGetUuid)(CUuuid*, CUdevice);
  CUresult (*cuDeviceGetPCIBusId)(char* id, int length, CUdevice);
  CUresult (*cuDeviceTotalMem)(size_t* bytes, CUdevice);
  CUresult (*cuDeviceGetAttribute)(int* value, int attribute, CUdevice);

  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*cuDevicePrimaryCtxRelease)(CUdevice);
  CUresult (*cuCtxSetCurrent)(CUcontext);
  CUresult (*cuCtxSynchronize)();

  CUresult (*cuModuleLoadData)(CUmodule*, const void* image);
  CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, const char* name);
  CUresult (*cuFuncSetAttribute)(CUfunction, int attribute, int value);
  CUresult (*cuLaunchKernel)(CUfunction, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                             unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream,
                             void** parameters, void** extra);

  CUresult (*cuStreamCreate)(CUstream*, unsigned flags);
  CUresult (*cuStreamDestroy)(CUstream);
  CUresult (*cuStreamSynchronize)(CUstream);
  CUresult (*cuStreamQuery)(CUstream);

  CUresult (*cuEventCreate)(CUevent*, unsigned flags);
  CUresult (*cuEventDestroy)(CUevent);
  CUresult (*cuEventRecord)(CUevent, CUstream);
  CUresult (*cuEventSynchronize)(CUevent);
  CUresult (*cuEventElapsedTime)(float* milliseconds, CUevent start, CUevent end);

  CUresult (*cuMemGetInfo)(size_t* free, size_t* total);
  CUresult (*cuMemAlloc)(CUdeviceptr*, size_t bytes);
  CUresult (*cuMemFree)(CUdeviceptr);
  CUresult (*cuMemAllocManaged)(CUdeviceptr*, size_t bytes, unsigned flags);
  CUresult (*cuMemHostAlloc)(void**, size_t bytes, unsigned flags);
  CUresult (*cuMemFreeHost)(void*);
  CUresult (*cuMemcpyAsync)(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream);
  CUresult (*cuMemsetD8Async)(CUdeviceptr, unsigned char value, size_t bytes, CUstream);
  // Optional, null before CUDA 12.4.
  CUresult (*cuFuncGetParamInfo)(CUfunction, size_t index, size_t* offset, size_t* bytes);
  // Optional, null before CUDA 12.2: the forms that take a CUmemLocation.
  CUresult (*cuMemAdvise)(CUdeviceptr, size_t bytes, int advice, CUmemLocation);
  CUresult (*cuMemPrefetchAsync)(CUdeviceptr, size_t bytes, CUmemLocation, unsigned flags, CUstream);
  // Optional, null before CUDA 12: kernels that were captured from a stream are launched again as one.
  CUresult (*cuStreamBeginCapture)(CUstream, int mode);
  CUresult (*cuStreamEndCapture)(CUstream, CUgraph*);
  CUresult (*cuGraphInstantiate)(CUgraphExec*, CUgraph, unsigned long long flags);
  CUresult (*cuGraphLaunch)(CUgraphExec, CUstream);
  CUresult (*cuGraphDestroy)(CUgraph);
  CUresult (*cuGraphExecDestroy)(CUgraphExec);

  // Empty when the driver is usable, otherwise why not, in words.
  std::string reason;
  std::string library;  // the file that was opened
  int version = 0;      // 13000 for CUDA 13.0
  int devices = 0;

  // One per process, shared by every environment. The first call runs cuInit, which can take hundreds of ms.
  static const Driver& get();

  // "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)"
  std::string error_text(CUresult) const;

  // Throws ERR_CUDA with the driver's name of the failure and `doing`, unless `result` is success.
  void check(CUresult result, const char* doing) const;

 private:
  Driver();
  bool bind_all();
  Library library_{"libcuda.so.1"};
};

}  // namespace spark::cuda
