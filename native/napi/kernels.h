// kernels.h: the backend table and the token sampler as JavaScript sees them.
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

// testFp4(ordinal, way): a promise of what is wrong with the products that 'own' or 'cublaslt' forms on FP4
// tensor cores, '' or null where there are none. It may ruin the context: for a process of its own.
Napi::Value test_fp4(const Napi::CallbackInfo& info);

// allowFp4(ordinal, own, cublaslt): what products with compute 'nvfp4' may be formed by, besides tensor cores
// for bf16. The first answer of a process stands.
Napi::Value allow_fp4(const Napi::CallbackInfo& info);

// sampleTokens({ logits, vocabulary, rows }): a promise of undefined, settled when each row has its token;
// see SamplerRow in core/token_sampler.h.
Napi::Value sample_tokens(const Napi::CallbackInfo& info);

// supports(backend, op): whether 'cpu' or 'cuda' has a kernel for the operation.
Napi::Value supports(const Napi::CallbackInfo& info);

// kernelNames(): { operations, unary, binary }, the names of the operations and of elementwise functions.
Napi::Value kernel_names(const Napi::CallbackInfo& info);

// setThreads(count, cores?): threads a CPU kernel may use, 0 for one per core; cores they may keep busy.
Napi::Value set_threads(const Napi::CallbackInfo& info);

// cpuIsa(): the name of the instruction set that CPU kernels use.
Napi::Value cpu_isa(const Napi::CallbackInfo& info);
Napi::Value cpu_isa_problem(const Napi::CallbackInfo& info);
Napi::Value cpu_bf16_support(const Napi::CallbackInfo& info);

}  // namespace spark::napi
