// driver.cc: loading of libcuda and its errors.
#include "backend/cuda/runtime/driver.h"

#include "core/error.h"

namespace spark::cuda {

Driver::Driver() {
  library = library_.name();
  reason = library_.reason();
  if (!bind_all()) return;  // also sets every pointer to null when there is no library
  if (const CUresult result = cuInit(0); result != kSuccess) {
    reason = "cuInit failed: " + error_text(result);
    return;
  }
  cuDriverGetVersion(&version);
  if (const CUresult result = cuDeviceGetCount(&devices); result != kSuccess) {
    reason = "cuDeviceGetCount failed: " + error_text(result);
  } else if (devices == 0) {
    reason = "the driver reports no CUDA device";
  }
}

bool Driver::bind_all() {
  const auto require = [this](auto& function, const char* symbol) {
    if (library_.bind(function, symbol)) return;
    if (library_.ok() && reason.empty())
      reason = std::string("libcuda.so.1 lacks ") + symbol + "; update the NVIDIA driver";
  };
  require(cuInit, "cuInit");
  require(cuDriverGetVersion, "cuDriverGetVersion");
  require(cuGetErrorName, "cuGetErrorName");
  require(cuGetErrorString, "cuGetErrorString");
  require(cuDeviceGetCount, "cuDeviceGetCount");
  require(cuDeviceGet, "cuDeviceGet");
  require(cuDeviceGetName, "cuDeviceGetName");
  require(cuDeviceGetUuid, "cuDeviceGetUuid_v2");
  require(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId");
  require(cuDeviceTotalMem, "cuDeviceTotalMem_v2");
  require(cuDeviceGetAttribute, "cuDeviceGetAttribute");
  require(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
  require(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2");
  require(cuCtxSetCurrent, "cuCtxSetCurrent");
  require(cuCtxSynchronize, "cuCtxSynchronize");
  require(cuModuleLoadData, "cuModuleLoadData");
  require(cuModuleGetFunction, "cuModuleGetFunction");
  require(cuFuncSetAttribute, "cuFuncSetAttribute");
  require(cuLaunchKernel, "cuLaunchKernel");
  require(cuStreamCreate, "cuStreamCreate");
  require(cuStreamDestroy, "cuStreamDestroy_v2");
  require(cuStreamSynchronize, "cuStreamSynchronize");
  require(cuStreamQuery, "cuStreamQuery");
  require(cuEventCreate, "cuEventCreate");
  require(cuEventDestroy, "cuEventDestroy_v2");
  require(cuEventRecord, "cuEventRecord");
  require(cuEventSynchronize, "cuEventSynchronize");
  require(cuEventElapsedTime, "cuEventElapsedTime");
  require(cuMemGetInfo, "cuMemGetInfo_v2");
  require(cuMemAlloc, "cuMemAlloc_v2");
  require(cuMemFree, "cuMemFree_v2");
  require(cuMemAllocManaged, "cuMemAllocManaged");
  require(cuMemHostAlloc, "cuMemHostAlloc");
  require(cuMemFreeHost, "cuMemFreeHost");
  require(cuMemcpyAsync, "cuMemcpyAsync");
  require(cuMemsetD8Async, "cuMemsetD8Async");
  library_.bind(cuFuncGetParamInfo, "cuFuncGetParamInfo");
  library_.bind(cuMemAdvise, "cuMemAdvise_v2");
  library_.bind(cuMemPrefetchAsync, "cuMemPrefetchAsync_v2");
  library_.bind(cuStreamBeginCapture, "cuStreamBeginCapture_v2");
  library_.bind(cuStreamEndCapture, "cuStreamEndCapture");
  library_.bind(cuGraphInstantiate, "cuGraphInstantiateWithFlags");
  library_.bind(cuGraphLaunch, "cuGraphLaunch");
  library_.bind(cuGraphDestroy, "cuGraphDestroy");
  library_.bind(cuGraphExecDestroy, "cuGraphExecDestroy");
  return reason.empty();
}

const Driver& Driver::get() {
  static const Driver* driver = new Driver;  // leaked: no destructor may touch CUDA at exit
  return *driver;
}

std::string Driver::error_text(CUresult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName) cuGetErrorName(result, &name);
  if (cuGetErrorString) cuGetErrorString(result, &text);
  return message(name ? name : "CUDA_ERROR_UNKNOWN", " ", result, text ? message(" (", text, ")") : "");
}

void Driver::check(CUresult result, const char* doing) const {
  if (result != kSuccess) throw Error("ERR_CUDA", message(doing, " failed: ", error_text(result)));
}

}  // namespace spark::cuda
