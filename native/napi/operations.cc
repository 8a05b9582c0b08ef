// operations.cc: lookup of operations by name.
#include "napi/operations.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "backend/cuda/nccl/nccl.h"
#include "collective/communicator.h"
#include "core/error.h"
#include "napi/readers/readers.h"

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

// A step of plans that is no kernel: y[count] = the sums of x over all ranks. y may be x.
constexpr std::string_view kAllReduce = "allReduce";

// Sums of a plan on a device, which are work of its stream. Ranks compare them in the first run, which is not
// captured.
Work enqueued(collective::Communicator* communicator, const float* x, float* y, int64_t count) {
  auto* const ranks = dynamic_cast<cuda::StreamCommunicator*>(communicator);
  if (!ranks) {
    throw Error("ERR_UNSUPPORTED",
                "a plan on the GPU sums over ranks of kind 'nccl' only: join them so, or use backend 'cpu'");
  }
  return [=, is_first = true]() mutable {
    ranks->enqueue_all_reduce(x, y, static_cast<size_t>(count), is_first);
    is_first = false;
  };
}

Work prepare_all_reduce(Arguments& in) {
  collective::Communicator* communicator = in.communicator();
  if (!communicator) throw Error("ERR_UNSUPPORTED", "only plans with a communicator sum over ranks");
  const int64_t count = in.size("count"), world = in.size("world");
  if (world != communicator->world()) {
    throw Error("ERR_ARGUMENT",
                message("world is ", world, ", but the communicator has ", communicator->world(), " ranks"));
  }
  const float* x = in.input<float>("x", count);
  float* y = in.output<float>("y", count);
  if (in.placed()) return enqueued(communicator, x, y, count);
  return [=] {
    if (y != x) std::copy_n(x, count, y);
    communicator->all_reduce(y, static_cast<size_t>(count));
  };
}

const Operation& operation_named(const std::string& name) {
  static const auto kByName = [] {
    std::unordered_map<std::string_view, const Operation*> by_name;
    for (const Operation& operation : kOperations) by_name.emplace(operation.name, &operation);
    return by_name;
  }();
  const auto found = kByName.find(name);
  if (found != kByName.end()) return *found->second;
  throw Error("ERR_UNSUPPORTED", message("there is no operation called '", name, "'"));
}

}  // namespace

Work prepare(const std::string& op, const Backend& backend, Arguments& in) {
  if (op == kAllReduce) return prepare_all_reduce(in);
  return operation_named(op).prepare(backend, in);
}

bool has_operation(const std::string& op, const Backend& backend) {
  if (op == kAllReduce) return true;
  return operation_named(op).supported(backend);
}

std::vector<const char*> operation_names() {
  std::vector<const char*> names{kAllReduce.data()};
  for (const Operation& operation : kOperations) names.push_back(operation.name);
  return names;
}

}  // namespace spark::napi
