// job_memory.cc: operands of running jobs.
#include "napi/job_memory.h"

#include <cstring>
#include <new>

#include "core/block.h"
#include "core/error.h"
#include "napi/env.h"

namespace spark::napi {
namespace {

constexpr napi_type_tag kHeld{0x64a1f0c35b7e4d29, 0x9c3e8b52d6f14a07};

constexpr size_t kCacheLine = 64;

}  // namespace

bool is_held(const Napi::ArrayBuffer& buffer) { return buffer.CheckTypeTag(&kHeld); }

void hold(Napi::ArrayBuffer buffer) {
  if (is_held(buffer) || Block::find(buffer.Data(), 1)) return;
  EnvState::of(buffer.Env()).make_untransferable.Call({buffer});
  buffer.TypeTag(&kHeld);
  advise_huge_pages(buffer.Data(), buffer.ByteLength());
}

void Copies::Free::operator()(std::byte* data) const {
  ::operator delete (data, std::align_val_t{kCacheLine});
}

void* Copies::add(const char* name, const Napi::TypedArray& array, void* data, const Footprint& touched,
                  Access access) {
  const Napi::ArrayBuffer buffer = array.ArrayBuffer();
  const auto bytes = static_cast<size_t>(touched.span().end);
  if (bytes == 0 || !buffer.IsArrayBuffer() || is_held(buffer)) return data;
  auto* copy = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kCacheLine}));
  memory_.emplace_back(copy);
  std::memcpy(copy, data, bytes);
  if (access != Access::kRead)
    outputs_.push_back({name, Napi::Persistent(array.As<Napi::Object>()), copy, touched});
  return copy;
}

void Copies::write_back() const {
  const std::string* lost = nullptr;
  for (const Output& output : outputs_) {
    const Napi::TypedArray array = output.array.Value().As<Napi::TypedArray>();
    napi_typedarray_type type;
    size_t length;
    void* data;
    const napi_status status =
        napi_get_typedarray_info(array.Env(), array, &type, &length, &data, nullptr, nullptr);
    if (status == napi_ok && data && static_cast<int64_t>(array.ByteLength()) >= output.written.span().end) {
      output.written.copy(static_cast<std::byte*>(data), output.source);
    } else {
      lost = &output.name;
    }
  }
  if (!lost) return;
  throw Error("ERR_DISPOSED", message(*lost, " was detached while the operation ran, so its result is lost"));
}

}  // namespace spark::napi
