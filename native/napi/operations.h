// operations.h: the operations by the names that JavaScript calls them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "napi/arguments.h"

namespace spark::napi {

// One call of an operation, its operands bound. May run any number of times while they live.
using Work = std::function<void()>;

// Reads the operands of `op`. Throws ERR_UNSUPPORTED when there is no such operation or the backend lacks it.
Work prepare(const std::string& op, const Backend& backend, Arguments& in);

// Whether the backend has the operation. Throws ERR_UNSUPPORTED for an unknown one.
bool has_operation(const std::string& op, const Backend& backend);

std::vector<const char*> operation_names();

}  // namespace spark::napi
