// blueprint.h: the steps of a plan before its sizes are known, as JavaScript sees them. A handle is an
// External.
#pragma once

#include <napi.h>

namespace spark::napi {

// blueprintCreate(threads, communicator?): a handle for the CPU; these are those of planCreate().
Napi::Value blueprint_create(const Napi::CallbackInfo& info);

// blueprintAdd(handle, steps, regions): { op, args, node }[]. In `args` a bigint is the index of a size, and
// { region, offset, count } an operand. A region is { array }: memory that all plans share; { slot }: the
// array of this number that a plan is given; { type, count }: a part of the arena with elements as those of
// the typed array `type`.
Napi::Value blueprint_add(const Napi::CallbackInfo& info);

// blueprintBind(handle, sizes, arrays, arena, offsets, plan?): the binding of a plan as planCreate() makes
// it. `sizes`: Float64Array of their values; `arrays`: by slot; `arena`: Uint8Array; `offsets`: Float64Array
// of where in it each part is. A `plan` of this blueprint that does not run is bound to these instead of a
// new one: only what has changed is. When that fails, the plan cannot be used any more. Its `arrays` may be
// undefined where they are what they were; all others then, and the arena, lie in the ArrayBuffers that they
// were in before.
Napi::Value blueprint_bind(const Napi::CallbackInfo& info);

// blueprintBindSteps(binding, count): binds so many steps more. The plan when these were the last ones, else
// undefined.
Napi::Value blueprint_bind_steps(const Napi::CallbackInfo& info);

// blueprintDispose(handle): lets the shared memory go; plans keep it.
Napi::Value blueprint_dispose(const Napi::CallbackInfo& info);

}  // namespace spark::napi
