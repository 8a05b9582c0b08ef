// memory.cc: bindings of memory blocks.
#include "napi/memory.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/memory.h"
#include "backend/cuda/runtime/memory_speed.h"
#include "backend/cuda/runtime/staging.h"
#include "core/block.h"
#include "core/error.h"
#include "napi/job.h"
#include "napi/job_memory.h"

namespace spark::napi {
namespace {

std::atomic<bool> refuse_external{false};  // test hook

// An ArrayBuffer over a block. Shared by the handle, which can end it early, and the ArrayBuffer's finalizer.
struct View {
  std::shared_ptr<Block> block;               // null once nobody can reach the bytes through this view
  Napi::Reference<Napi::ArrayBuffer> buffer;  // weak
};

// What a UnifiedBuffer owns.
struct Handle {
  std::shared_ptr<Block> block;  // null after dispose
  std::vector<std::shared_ptr<View>> views;
  int64_t accounted = 0;  // bytes V8 was told of; it counts ArrayBuffers itself
};

void account(napi_env env, Handle& handle, int64_t change) {
  int64_t now;
  handle.accounted += change;
  napi_adjust_external_memory(env, change, &now);
}

Handle& handle_of(const Napi::Value& value) {
  Handle& handle = *value.As<Napi::External<Handle>>().Data();
  if (!handle.block) throw Error("ERR_DISPOSED", "the buffer has been disposed");
  return handle;
}

size_t size_of(const Napi::Value& value) {
  const double number = value.IsNumber() ? value.As<Napi::Number>().DoubleValue() : -1;
  if (!(number >= 0 && number <= 9007199254740991.0 && std::floor(number) == number)) {
    throw Error("ERR_ARGUMENT", "an offset or size must be a non-negative integer");
  }
  return static_cast<size_t>(number);
}

std::byte* range(const Block& block, size_t offset, size_t bytes) {
  if (offset > block.bytes || bytes > block.bytes - offset) {
    throw Error("ERR_RANGE",
                message(bytes, " bytes at offset ", offset, " do not lie in a buffer of ", block.bytes));
  }
  return block.data + offset;
}

Napi::Value wrap(Napi::Env env, std::shared_ptr<Block> block, bool cuda) {
  const size_t bytes = block->bytes;
  const MemoryKind kind = block->kind;
  auto handle = std::make_unique<Handle>(Handle{std::move(block), {}, 0});
  Napi::Object result = Napi::Object::New(env);
  const auto finalize = [](Napi::BasicEnv env, Handle* handle) {
    account(env, *handle, -handle->accounted);
    delete handle;
  };
  const auto external = Napi::External<Handle>::New(env, handle.get(), finalize);
  account(env, *handle.release(), static_cast<int64_t>(bytes));  // the External owns it now
  result["handle"] = external;
  result["kind"] = Napi::String::New(env, memory_kind_name(kind));
  result["cuda"] = Napi::Boolean::New(env, cuda);
  return result;
}

struct Request {
  size_t bytes;
  std::string kind;
  int device;
  bool zeroed, unified;
};

struct Allocation {
  std::shared_ptr<Block> block;
  bool cuda = false;
};

Allocation allocate(const Request& request) {
  const bool automatic = request.kind == "auto";
  const bool cuda = request.kind != "host" && (!automatic || cuda::Driver::get().reason.empty());
  if (!cuda || (automatic && !request.unified)) return {Block::allocate_host(request.bytes), cuda};
  cuda::Device& device = cuda::Device::open(request.device);
  const bool managed = automatic ? device.attributes.managed : request.kind == "managed";
  const MemoryKind kind = managed ? MemoryKind::kManaged : MemoryKind::kPinned;
  Allocation allocation{cuda::allocate(device, kind, request.bytes), true};
  if (request.zeroed) cuda::zero(device, *allocation.block);
  return allocation;
}

void finalize_view(node_api_basic_env, void*, void* hint) {
  std::unique_ptr<std::shared_ptr<View>> view(static_cast<std::shared_ptr<View>*>(hint));
  (*view)->block.reset();
}

// Ends a view so that its memory can go at once. An ArrayBuffer that somebody else has detached has handed
// its bytes to another one (transfer()): those stay until the finalizer runs.
void end(napi_env env, View& view) {
  if (!view.block) return;
  const Napi::ArrayBuffer buffer = view.buffer.Value();
  bool detached = true;
  if (buffer.IsEmpty() || napi_is_detached_arraybuffer(env, buffer, &detached) != napi_ok || detached) return;
  if (napi_detach_arraybuffer(env, buffer) == napi_ok) view.block.reset();
}

std::byte* bytes_of(const Napi::Value& array, size_t& count) {
  napi_typedarray_type type;
  void* data;
  if (napi_get_typedarray_info(array.Env(), array, &type, &count, &data, nullptr, nullptr) != napi_ok ||
      type != napi_uint8_array) {
    throw Error("ERR_ARGUMENT", "a Uint8Array is needed");
  }
  return static_cast<std::byte*>(data);
}

// The device of a block whose kind the driver can move and advise on, or null.
cuda::Device* hints_go_to(const Block& block) {
  if (block.kind != MemoryKind::kManaged) return nullptr;
  cuda::Device& device = cuda::Device::get(block.device);
  return cuda::takes_hints(device) ? &device : nullptr;
}

}  // namespace

Napi::Value memory_allocate(const Napi::CallbackInfo& info) {
  const Napi::Object options = info[0].As<Napi::Object>();
  const Request request{size_of(options.Get("bytes")), options.Get("kind").ToString(),
                        options.Get("device").ToNumber().Int32Value(), options.Get("zeroed").ToBoolean(),
                        options.Get("unified").ToBoolean()};
  return start_query<Allocation>(
      info.Env(), [request] { return allocate(request); },
      [](Napi::Env env, const Allocation& made) { return wrap(env, made.block, made.cuda); });
}

Napi::Value memory_allocate_apart(const Napi::CallbackInfo& info) {
  cuda::Device& device = cuda::Device::get(info[0].ToNumber().Int32Value());
  const auto make = [&device, bytes = size_of(info[1])] {
    return cuda::allocate_apart(device, cuda::memory_choice(device).resident, bytes);
  };
  return start_query<std::shared_ptr<Block>>(
      info.Env(), make,
      [](Napi::Env env, const std::shared_ptr<Block>& block) { return wrap(env, block, true); });
}

Napi::Value memory_upload(const Napi::CallbackInfo& info) {
  const std::shared_ptr<Block> block = handle_of(info[0]).block;
  size_t count;
  const std::byte* source = bytes_of(info[2], count);
  const std::byte* known = range(*block, size_of(info[1]), count);
  if (block->device < 0) throw Error("ERR_ARGUMENT", "the block is in ordinary memory");
  cuda::Device& device = cuda::Device::get(block->device);
  std::vector<Napi::ObjectReference> references;
  references.push_back(Napi::Persistent(info[2].As<Napi::Object>()));
  const auto work = [&device, block, known, source, count] {
    if (count > 0) cuda::upload(device, cuda::on_device(*block, known), source, static_cast<int64_t>(count));
  };
  return start_job(info.Env(), work, std::move(references));
}

Napi::Value memory_allocate_host(const Napi::CallbackInfo& info) {
  return wrap(info.Env(), Block::allocate_host(size_of(info[0])), false);
}

Napi::Value memory_view(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (refuse_external) return env.Null();
  Handle& handle = handle_of(info[0]);
  const size_t bytes = size_of(info[2]);
  std::byte* data = range(*handle.block, size_of(info[1]), bytes);
  if (handle.block->kind == MemoryKind::kDevice && handle.block->on_device == handle.block->data)
    throw Error("ERR_NO_ZERO_COPY", "the CPU cannot read device memory");
  auto view = std::make_shared<View>();
  view->block = handle.block;
  auto* hint = new std::shared_ptr<View>(view);
  napi_value buffer;
  const napi_status status = napi_create_external_arraybuffer(env, data, bytes, finalize_view, hint, &buffer);
  if (status != napi_ok) {
    if (status == napi_no_external_buffers_allowed) {
      delete hint;
      return env.Null();
    }
    // Beyond its limit Node 20 fails and calls the finalizer nonetheless, so the hint stays its own.
    view->block.reset();
    throw Napi::Error::New(env);
  }
  view->buffer = Napi::Weak(Napi::ArrayBuffer(env, buffer));
  std::erase_if(handle.views, [](const std::shared_ptr<View>& old) { return !old->block; });
  handle.views.push_back(std::move(view));
  account(env, handle, -std::min(static_cast<int64_t>(bytes), handle.accounted));
  return Napi::Value(env, buffer);
}

Napi::Value memory_read(const Napi::CallbackInfo& info) {
  const Handle& handle = handle_of(info[0]);
  size_t count;
  std::byte* target = bytes_of(info[2], count);
  const std::byte* source = range(*handle.block, size_of(info[1]), count);
  if (count > 0) std::memmove(target, source, count);
  return info.Env().Undefined();
}

Napi::Value memory_write(const Napi::CallbackInfo& info) {
  const Handle& handle = handle_of(info[0]);
  size_t count;
  const std::byte* source = bytes_of(info[2], count);
  std::byte* target = range(*handle.block, size_of(info[1]), count);
  if (count > 0) std::memmove(target, source, count);
  return info.Env().Undefined();
}

Napi::Value memory_copy(const Napi::CallbackInfo& info) {
  const Handle &source = handle_of(info[0]), &target = handle_of(info[2]);
  const size_t bytes = size_of(info[4]);
  const std::byte* from = range(*source.block, size_of(info[1]), bytes);
  std::memmove(range(*target.block, size_of(info[3]), bytes), from, bytes);
  return info.Env().Undefined();
}

Napi::Value memory_prefetch(const Napi::CallbackInfo& info) {
  const Handle& handle = handle_of(info[0]);
  cuda::Device* device = hints_go_to(*handle.block);
  if (device) cuda::prefetch(*device, *handle.block, info[1].ToBoolean());
  return Napi::Boolean::New(info.Env(), device != nullptr);
}

Napi::Value memory_advise(const Napi::CallbackInfo& info) {
  const Handle& handle = handle_of(info[0]);
  cuda::Device* device = hints_go_to(*handle.block);
  if (device) cuda::advise(*device, *handle.block, info[1].ToNumber().Int32Value(), info[2].ToBoolean());
  return Napi::Boolean::New(info.Env(), device != nullptr);
}

Napi::Value memory_dispose(const Napi::CallbackInfo& info) {
  Handle& handle = handle_of(info[0]);
  for (const std::shared_ptr<View>& view : handle.views) end(info.Env(), *view);
  handle.views.clear();
  handle.block.reset();
  account(info.Env(), handle, -handle.accounted);
  return info.Env().Undefined();
}

Napi::Value memory_hold(const Napi::CallbackInfo& info) {
  const Napi::ArrayBuffer buffer = info[0].As<Napi::TypedArray>().ArrayBuffer();
  if (buffer.IsArrayBuffer()) hold(buffer);
  return info.Env().Undefined();
}

Napi::Value memory_release(const Napi::CallbackInfo& info) {
  // What cannot be detached is left to the garbage collector. Node.js 24 ends the process for a held buffer.
  if (info[0].IsArrayBuffer() && !is_held(info[0].As<Napi::ArrayBuffer>())) {
    napi_detach_arraybuffer(info.Env(), info[0]);
  }
  return info.Env().Undefined();
}

Napi::Value memory_line_padding(const Napi::CallbackInfo& info) {
  constexpr uintptr_t kCacheLine = 64;
  const auto address = reinterpret_cast<uintptr_t>(info[0].As<Napi::ArrayBuffer>().Data());
  return Napi::Number::New(info.Env(), static_cast<double>(-address % kCacheLine));
}

Napi::Value memory_stats(const Napi::CallbackInfo& info) {
  const MemoryStats stats = spark::memory_stats();
  Napi::Object result = Napi::Object::New(info.Env());
  result["blocks"] = static_cast<double>(stats.blocks);
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    result[memory_kind_name(static_cast<MemoryKind>(kind))] = static_cast<double>(stats.bytes[kind]);
  }
  result["peak"] = static_cast<double>(stats.peak_bytes);
  return result;
}

Napi::Value external_buffers(const Napi::CallbackInfo& info) {
  static char probe[64];
  if (refuse_external) return Napi::Boolean::New(info.Env(), false);
  static std::atomic<int> allowed{-1};  // -1: not asked yet
  if (allowed < 0) {
    napi_value buffer;
    allowed = napi_create_external_arraybuffer(
                  info.Env(), probe, sizeof probe, [](node_api_basic_env, void*, void*) {}, nullptr,
                  &buffer) != napi_no_external_buffers_allowed;
  }
  return Napi::Boolean::New(info.Env(), allowed > 0);
}

Napi::Value refuse_external_buffers(const Napi::CallbackInfo& info) {
  refuse_external = info[0].ToBoolean();
  return info.Env().Undefined();
}

}  // namespace spark::napi
