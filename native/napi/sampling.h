// sampling.h: bindings of the token sampler.
#pragma once

#include <napi.h>

namespace spark::napi {

Napi::Value sample_tokens(const Napi::CallbackInfo& info);

}  // namespace spark::napi
