// plan.h: compiled plans as JavaScript sees them. A handle is an External.
#pragma once

#include <napi.h>

namespace spark::napi {

// planCreate(steps): a handle of { op, args }[] on the CPU; operands are bound once and kept alive.
Napi::Value plan_create(const Napi::CallbackInfo& info);

// planRun(handle): a promise of undefined, settled when all steps are done.
Napi::Value plan_run(const Napi::CallbackInfo& info);

// planDispose(handle): lets the operands go, at once or when the run in progress is done.
Napi::Value plan_dispose(const Napi::CallbackInfo& info);

}  // namespace spark::napi
