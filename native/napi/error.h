// error.h: from spark::Error to SparkError.
#pragma once

#include <napi.h>

#include <exception>

namespace spark::napi {

// The JavaScript error for `failure`: a SparkError with its code, ERR_OUT_OF_MEMORY for bad_alloc, else
// ERR_INTERNAL.
Napi::Value to_js_error(Napi::Env env, std::exception_ptr failure);

// Wraps a binding so that no C++ exception reaches Node.
template <Napi::Value (*Function)(const Napi::CallbackInfo&)>
Napi::Value guarded(const Napi::CallbackInfo& info) {
  try {
    return Function(info);
  } catch (const Napi::Error&) {
    throw;  // already a JavaScript error
  } catch (...) {
    throw Napi::Error(info.Env(), to_js_error(info.Env(), std::current_exception()));
  }
}

}  // namespace spark::napi
