// kernels.h: the backend table as JavaScript sees it.
#pragma once

#include <napi.h>

namespace spark::napi {

// run(op, args): performs the operation before it returns. Blocks the JavaScript thread.
Napi::Value run_sync(const Napi::CallbackInfo& info);

// runAsync(op, args, owned): a promise of undefined, settled when the outputs are written. Without `owned` it
// works on copies of operands that JavaScript may take away; see job_memory.h.
Napi::Value run_async(const Napi::CallbackInfo& info);

// openDevice(ordinal): a promise of undefined, settled when the CUDA device and its kernels are loaded.
Napi::Value open_device(const Napi::CallbackInfo& info);

// measureMemory(ordinal): a promise of the kinds of memory that plans use on an open CUDA device, { resident,
// passing, held, measured }; an integrated one is measured at the first call of a process.
Napi::Value measure_memory(const Napi::CallbackInfo& info);

// deviceFreeBytes(ordinal): bytes that are free on an open CUDA device.
Napi::Value device_free_bytes(const Napi::CallbackInfo& info);

// runCuda(ordinal, op, args): as runAsync, on a CUDA device that is open.
Napi::Value run_cuda(const Napi::CallbackInfo& info);

// nvfp4Problem(ordinal): what a test of the FP4 tensor cores of a CUDA device found and what happens instead,
// or ''. They are tested when a product first asks for them.
Napi::Value nvfp4_problem(const Napi::CallbackInfo& info);

// supports(backend, op): whether 'cpu' or 'cuda' has a kernel for the operation.
Napi::Value supports(const Napi::CallbackInfo& info);

// setThreads(count): threads a CPU kernel may use, 0 for one per core.
Napi::Value set_threads(const Napi::CallbackInfo& info);

// cpuIsa(): the name of the instruction set that CPU kernels use.
Napi::Value cpu_isa(const Napi::CallbackInfo& info);
Napi::Value cpu_isa_problem(const Napi::CallbackInfo& info);
Napi::Value cpu_bf16_units(const Napi::CallbackInfo& info);

}  // namespace spark::napi
