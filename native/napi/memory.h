// memory.h: blocks of memory as JavaScript sees them. A handle is an External; lib/memory/unified-buffer.ts
// checks names, kinds and ranges, here only what could corrupt memory is checked again.
#pragma once

#include <napi.h>

namespace spark::napi {

// allocate({ bytes, kind, device, zeroed, unified }): a promise of { handle, kind, cuda }. Opens the device
// when the kind needs it, off the JavaScript thread.
Napi::Value memory_allocate(const Napi::CallbackInfo& info);

// allocateApart(ordinal, bytes): a promise of { handle, kind, cuda } for memory that an open CUDA device
// reads fastest. Views of it may have no elements, but name it to plans on that device.
Napi::Value memory_allocate_apart(const Napi::CallbackInfo& info);

// upload(handle, offset, source): a promise of undefined, settled when the bytes of a Uint8Array, which must
// be held, are where the device of the block finds them.
Napi::Value memory_upload(const Napi::CallbackInfo& info);

// allocateHost(bytes): { handle, kind, cuda } at once.
Napi::Value memory_allocate_host(const Napi::CallbackInfo& info);

// view(handle, offset, bytes): an ArrayBuffer over the block, or null where Node refuses external memory.
Napi::Value memory_view(const Napi::CallbackInfo& info);

// read(handle, offset, target), write(handle, offset, source): copies; the arrays are Uint8Arrays.
Napi::Value memory_read(const Napi::CallbackInfo& info);
Napi::Value memory_write(const Napi::CallbackInfo& info);

// copy(source, sourceOffset, target, targetOffset, bytes)
Napi::Value memory_copy(const Napi::CallbackInfo& info);

// prefetch(handle, toGpu), advise(handle, advice, toGpu): whether the driver took the hint.
Napi::Value memory_prefetch(const Napi::CallbackInfo& info);
Napi::Value memory_advise(const Napi::CallbackInfo& info);

// dispose(handle): detaches the views and drops the block, which is freed unless a kernel still uses it.
Napi::Value memory_dispose(const Napi::CallbackInfo& info);

// hold(array): makes sure that the memory of a typed array can no longer be transferred; see job_memory.h.
Napi::Value memory_hold(const Napi::CallbackInfo& info);

// release(buffer): detaches an ArrayBuffer that nobody reads any more, so that its memory goes at once.
Napi::Value memory_release(const Napi::CallbackInfo& info);

// linePadding(buffer): bytes from the start of an ArrayBuffer to that of a cache line.
Napi::Value memory_line_padding(const Napi::CallbackInfo& info);

// stats(): { blocks, managed, pinned, device, host, peak }
Napi::Value memory_stats(const Napi::CallbackInfo& info);

// externalBuffers(): whether Node makes ArrayBuffers over foreign memory; Electron does not.
Napi::Value external_buffers(const Napi::CallbackInfo& info);

// refuseExternalBuffers(refuse): test hook, makes the addon behave as in Electron.
Napi::Value refuse_external_buffers(const Napi::CallbackInfo& info);

}  // namespace spark::napi
