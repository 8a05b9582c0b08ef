// plan.h: compiled plans as JavaScript sees them. A handle is an External.
#pragma once

#include <napi.h>

namespace spark::napi {

// planCreate(steps, ordinal, memory, graphs, threads, communicator?, stream?): a handle of { op, args }[] on
// a CUDA device, or on the CPU without `ordinal`; operands are bound once and kept alive. `memory`: what a
// device does not copy at each run, `graphs`: whether it captures its runs, true without a value; see
// CudaPlan. `threads`: how many a plan on the CPU may use, without a value as many as setThreads says.
// `communicator`: the handle of what steps on the CPU call to work with other ranks; runs are then on its
// thread. `stream`: which one of a device its runs go to, see cuda::Device; the first without a value, or
// with ranks.
Napi::Value plan_create(const Napi::CallbackInfo& info);

// planRun(handle, brief, times): a promise of undefined, settled when all steps are done, `times` times, 1
// without a value. With `brief` a plan on the CPU whose last run was short runs once before the call returns
// undefined.
Napi::Value plan_run(const Napi::CallbackInfo& info);

// planStop(handle): ends repeated runs after the one in progress.
Napi::Value plan_stop(const Napi::CallbackInfo& info);

// planFetch(handle): a promise of undefined, settled when the state is in its buffers, where they can be
// read.
Napi::Value plan_fetch(const Napi::CallbackInfo& info);

// planStore(handle): a promise of undefined, settled when the device has the state that is in its buffers.
Napi::Value plan_store(const Napi::CallbackInfo& info);

// planProfile(handle): a promise of undefined, settled after a run on the CPU whose steps were timed.
Napi::Value plan_profile(const Napi::CallbackInfo& info);

// planStepTimes(handle): a Float64Array of the milliseconds that each step of that run took.
Napi::Value plan_step_times(const Napi::CallbackInfo& info);

// planDeviceMs(handle): milliseconds that the last run, which has settled, took on a device, by events around
// it; null on the CPU and before the first run that was timed: timing begins with the first call.
Napi::Value plan_device_ms(const Napi::CallbackInfo& info);

// planProblem(handle): why a device runs the steps one by one, or ''.
Napi::Value plan_problem(const Napi::CallbackInfo& info);

// planDispose(handle): lets the operands go, at once or when the run in progress is done.
Napi::Value plan_dispose(const Napi::CallbackInfo& info);

}  // namespace spark::napi
