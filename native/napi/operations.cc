// operations.cc: lookup of operations by name.
#include "napi/operations.h"

#include "core/error.h"
#include "napi/readers.h"

namespace spark::napi {
namespace {

template <typename Args>
Work bind(const Backend& backend, const char* op, void (*entry)(const Args&), Args (*read)(Arguments&),
          Arguments& in) {
  if (!entry)
    throw Error("ERR_UNSUPPORTED", message("the ", backend.name, " backend has no kernel for ", op));
  return [entry, args = read(in)] { entry(args); };
}

struct Operation {
  const char* name;
  bool (*supported)(const Backend& backend);
  Work (*prepare)(const Backend& backend, Arguments& in);
};

const Operation kOperations[] = {
#define SPARK_OPERATION(entry, Args, name)                                \
  {name, [](const Backend& backend) { return backend.entry != nullptr; }, \
   [](const Backend& backend, Arguments& in) {                            \
     return bind(backend, name, backend.entry, read_##entry, in);         \
   }},
#include "backend/operations.def"
};

const Operation& operation_named(const std::string& name) {
  for (const Operation& operation : kOperations) {
    if (name == operation.name) return operation;
  }
  throw Error("ERR_UNSUPPORTED", message("there is no operation called '", name, "'"));
}

}  // namespace

Work prepare(const std::string& op, const Backend& backend, Arguments& in) {
  return operation_named(op).prepare(backend, in);
}

bool has_operation(const std::string& op, const Backend& backend) {
  return operation_named(op).supported(backend);
}

std::vector<const char*> operation_names() {
  std::vector<const char*> names;
  for (const Operation& operation : kOperations) names.push_back(operation.name);
  return names;
}

}  // namespace spark::napi
