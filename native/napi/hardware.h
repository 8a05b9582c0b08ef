// hardware.h: NVML and the CUDA device list as JavaScript sees them.
#pragma once

#include <napi.h>

namespace spark::napi {

// queryNvml(): a promise of what NVML says of every GPU.
Napi::Value query_nvml(const Napi::CallbackInfo& info);

// queryCuda(): a promise of the CUDA driver's device list.
Napi::Value query_cuda(const Napi::CallbackInfo& info);

// sampleGpu(uuid): a promise of one measurement.
Napi::Value sample_gpu(const Napi::CallbackInfo& info);

// queryCublasLt(): a promise of whether cuBLASLt can be opened.
Napi::Value query_cublaslt(const Napi::CallbackInfo& info);

// kernelFamilies(): names of the CUDA kernel families in this addon.
Napi::Value kernel_families(const Napi::CallbackInfo& info);

}  // namespace spark::napi
