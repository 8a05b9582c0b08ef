// blueprint.cc: plans of one list of steps for any sizes.
#include "napi/blueprint.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "napi/arguments.h"
#include "napi/bound_plan.h"
#include "napi/operations.h"

namespace spark::napi {
namespace {

struct BlueprintStep {
  std::string op, what;
  Part args;
  std::vector<uint32_t> sizes, regions;  // that the arguments refer to
};

void note_size(const SizeOf& size, BlueprintStep& step) {
  if (size.index >= 0) step.sizes.push_back(static_cast<uint32_t>(size.index));
}

void note_uses(const Part& part, BlueprintStep& step) {
  note_size(part.number, step);
  if (part.kind == Part::Kind::kOperand) {
    note_size(part.offset, step);
    note_size(part.count, step);
    step.regions.push_back(part.region);
  }
  for (const Part& inner : part.parts) note_uses(inner, step);
}

// Memory that operands are pieces of, as far as it is known before a plan is bound.
struct RegionPlan {
  enum class Kind { kShared, kSlot, kArena };

  Kind kind;
  Region region;      // all of kShared; the type of kArena
  uint32_t slot = 0;  // of kSlot
  SizeOf count;       // of kArena
};

struct Blueprint {
  std::vector<BlueprintStep> steps;
  std::vector<RegionPlan> regions;
  int threads = 0;
  std::shared_ptr<PlanCommunicator> communicator;
  std::shared_ptr<HeldMemory> shared = std::make_shared<HeldMemory>();
};

using Handle = std::shared_ptr<Blueprint>;

// Operands are where their arrays are; what keeps these goes to `memory`, unless that is null.
Region region_of(const Napi::Value& value, HeldMemory* memory) {
  if (!value.IsTypedArray()) throw Error("ERR_ARGUMENT", "a region must be a typed array");
  const Napi::TypedArray array = value.As<Napi::TypedArray>();
  napi_typedarray_type type;
  size_t length;
  void* data;
  if (napi_get_typedarray_info(value.Env(), value, &type, &length, &data, nullptr, nullptr) != napi_ok) {
    throw Error("ERR_ARGUMENT", "a region is not a usable typed array");
  }
  const auto bytes = static_cast<int64_t>(array.ElementSize());
  const Region region{static_cast<std::byte*>(data), static_cast<int64_t>(length), type, bytes};
  if (!memory) return region;
  std::vector<Napi::ObjectReference> references;
  references.push_back(Napi::Persistent(array.As<Napi::Object>()));
  std::vector<std::shared_ptr<Block>> blocks;
  if (std::shared_ptr<Block> block = Block::find(data, static_cast<int64_t>(length) * bytes)) {
    blocks.push_back(std::move(block));
  }
  memory->keep(std::move(references), std::move(blocks));
  return region;
}

RegionPlan read_region(const Napi::Object& object, HeldMemory& memory) {
  RegionPlan plan{};
  if (object.Get("slot").IsNumber()) {
    plan.kind = RegionPlan::Kind::kSlot;
    plan.slot = object.Get("slot").As<Napi::Number>().Uint32Value();
    return plan;
  }
  const Napi::Value array = object.Get("array");
  if (array.IsTypedArray()) {
    const bool is_private = object.Get("isPrivate").ToBoolean();
    plan.kind = RegionPlan::Kind::kShared;
    plan.region = region_of(array, is_private ? nullptr : &memory);
    if (is_private) memory.keep_private(Napi::Persistent(array.As<Napi::Object>()));
    return plan;
  }
  plan.kind = RegionPlan::Kind::kArena;
  const Napi::TypedArray type = object.Get("type").As<Napi::TypedArray>();
  plan.region = {nullptr, 0, type.TypedArrayType(), static_cast<int64_t>(type.ElementSize())};
  plan.count = read_part(object.Get("count")).number;
  return plan;
}

// Where the regions of a plan are; arrays that are undefined are where they were.
std::vector<Region> regions_of(const Blueprint& blueprint, const Napi::CallbackInfo& info,
                               const std::vector<Region>& before, HeldMemory* memory) {
  const double* sizes = info[1].As<Napi::Float64Array>().Data();
  const Napi::Array arrays = info[2].As<Napi::Array>();
  const Napi::Float64Array offsets = info[4].As<Napi::Float64Array>();
  const Region arena = region_of(info[3], memory);
  std::vector<Region> regions;
  regions.reserve(blueprint.regions.size());
  size_t part = 0;
  for (const RegionPlan& plan : blueprint.regions) {
    Region region = plan.region;
    if (plan.kind == RegionPlan::Kind::kSlot) {
      const Napi::Value array = arrays.Get(plan.slot);
      const size_t i = regions.size();
      region = array.IsUndefined() && i < before.size() ? before[i] : region_of(array, memory);
    } else if (plan.kind == RegionPlan::Kind::kArena) {
      if (part >= offsets.ElementLength()) throw Error("ERR_ARGUMENT", "an offset in the arena is missing");
      const double offset = offsets[part++], count = plan.count.value(sizes);
      if (!(offset >= 0 && count >= 0 &&
            offset + count * static_cast<double>(region.element_bytes) <= static_cast<double>(arena.count))) {
        throw Error("ERR_SHAPE", message("a part of the arena of ", count, " elements at ", offset,
                                         " is outside of its ", arena.count, " bytes"));
      }
      region.data = arena.data + static_cast<int64_t>(offset);
      region.count = static_cast<int64_t>(count);
    }
    regions.push_back(region);
  }
  return regions;
}

bool has_undefined(const Napi::Array& arrays) {
  for (uint32_t i = 0; i < arrays.Length(); ++i) {
    if (arrays.Get(i).IsUndefined()) return true;
  }
  return false;
}

// A plan that does not run, reserved until the last copy of the pointer goes.
PlanHandle idle_plan(const Napi::Value& value) {
  const PlanHandle& handle = *value.As<Napi::External<PlanHandle>>().Data();
  if (!handle) throw Error("ERR_DISPOSED", "the plan has been disposed");
  handle->plan.claim();
  return {handle.get(), [handle](BoundPlan* bound) { bound->plan.release(); }};
}

double bytes_of(const std::vector<Region>& regions) {
  double bytes = 0;
  for (const Region& region : regions) bytes += static_cast<double>(region.count * region.element_bytes);
  return bytes;
}

// A plan whose steps are being bound. Dies on the JavaScript thread.
struct PlanBinding {
  Handle blueprint;
  Napi::Reference<Napi::Value> handle;  // of the plan
  PlanHandle plan;                      // reserved; null when all steps are bound
  bool again;                           // whether it was bound before
  std::vector<double> old_sizes;
  std::vector<Region> old_regions;
  size_t next = 0;  // step
};

// Whether a step of a plan that was bound before refers to nothing that has changed since.
bool is_bound(const BlueprintStep& step, const PlanBinding& binding) {
  const BoundPlan& plan = *binding.plan;
  const auto resized = [&](uint32_t i) { return plan.sizes[i] != binding.old_sizes[i]; };
  const auto moved = [&](uint32_t i) {
    const Region &now = plan.regions[i], &before = binding.old_regions[i];
    return now.data != before.data || now.count != before.count;
  };
  return std::none_of(step.sizes.begin(), step.sizes.end(), resized) &&
         std::none_of(step.regions.begin(), step.regions.end(), moved);
}

void bind_step(const BlueprintStep& step, PlanBinding& binding) {
  BoundPlan& bound = *binding.plan;
  const Binding values{bound.sizes.data(), &bound.regions};
  Arguments in(Field(step.args, values));
  if (bound.communicator) in.set_communicator(bound.communicator->communicator.get());
  try {
    std::function<void()> work = prepare(step.op, cpu::backend(), in);
    if (binding.again) {
      bound.plan.replace(binding.next, std::move(work));
    } else {
      bound.plan.add(step.what, std::move(work));
    }
  } catch (const Error& error) {
    throw Error(error.code, message(step.what, " for these sizes: ", error.what()));
  }
}

}  // namespace

Napi::Value blueprint_create(const Napi::CallbackInfo& info) {
  auto blueprint = std::make_shared<Blueprint>();
  blueprint->threads = info[0].IsNumber() ? info[0].ToNumber().Int32Value() : 0;
  blueprint->communicator = PlanCommunicator::of(info[1]);
  return Napi::External<Handle>::New(info.Env(), new Handle(std::move(blueprint)),
                                     [](Napi::BasicEnv, Handle* handle) { delete handle; });
}

Napi::Value blueprint_add(const Napi::CallbackInfo& info) {
  const Handle& blueprint = *info[0].As<Napi::External<Handle>>().Data();
  if (!blueprint) throw Error("ERR_DISPOSED", "the plan has been disposed");
  const Napi::Array steps = info[1].As<Napi::Array>(), regions = info[2].As<Napi::Array>();
  for (uint32_t i = 0; i < steps.Length(); ++i) {
    const Napi::HandleScope scope(info.Env());
    const Napi::Object step = steps.Get(i).As<Napi::Object>();
    const std::string op = step.Get("op").ToString();
    const Napi::Value node = step.Get("node");
    const std::string what =
        node.IsString() ? message(op, " of node '", node.ToString().Utf8Value(), "'") : op;
    BlueprintStep& added =
        blueprint->steps.emplace_back(BlueprintStep{op, what, read_part(step.Get("args")), {}, {}});
    note_uses(added.args, added);
  }
  for (uint32_t i = 0; i < regions.Length(); ++i) {
    const Napi::HandleScope scope(info.Env());
    blueprint->regions.push_back(read_region(regions.Get(i).As<Napi::Object>(), *blueprint->shared));
  }
  return info.Env().Undefined();
}

Napi::Value blueprint_bind(const Napi::CallbackInfo& info) {
  const Handle blueprint = *info[0].As<Napi::External<Handle>>().Data();
  if (!blueprint) throw Error("ERR_DISPOSED", "the plan has been disposed");
  blueprint->shared->expect_attached();
  const bool again = info[5].IsExternal();
  const Napi::Value handle = again ? info[5] : plan_handle(info.Env(), std::make_shared<BoundPlan>());
  auto binding = std::make_unique<PlanBinding>(
      PlanBinding{blueprint, Napi::Persistent(handle), idle_plan(handle), again, {}, {}});
  BoundPlan& bound = *binding->plan;
  bound.threads = blueprint->threads;
  bound.communicator = blueprint->communicator;
  bound.shared = blueprint->shared;
  const bool keeps = again && has_undefined(info[2].As<Napi::Array>());
  HeldMemory memory;
  std::vector<Region> regions = regions_of(*blueprint, info, bound.regions, keeps ? nullptr : &memory);
  const Napi::Float64Array sizes = info[1].As<Napi::Float64Array>();
  binding->old_regions = std::exchange(bound.regions, std::move(regions));
  binding->old_sizes = std::exchange(bound.sizes, {sizes.Data(), sizes.Data() + sizes.ElementLength()});
  if (!keeps) bound.memory = std::move(memory);
  if (again) {
    bound.plan.scale_last_run(bytes_of(bound.regions) / std::max(bytes_of(binding->old_regions), 1.0));
  }
  return Napi::External<PlanBinding>::New(info.Env(), binding.release(),
                                          [](Napi::BasicEnv, PlanBinding* binding) { delete binding; });
}

Napi::Value blueprint_bind_steps(const Napi::CallbackInfo& info) {
  PlanBinding& binding = *info[0].As<Napi::External<PlanBinding>>().Data();
  if (!binding.plan) throw Error("ERR_ARGUMENT", "all steps of the plan are bound");
  binding.plan->memory.expect_attached();
  const std::vector<BlueprintStep>& steps = binding.blueprint->steps;
  const ThreadLimit limit(binding.plan->threads);
  const size_t end = std::min(steps.size(), binding.next + info[1].As<Napi::Number>().Uint32Value());
  for (; binding.next < end; ++binding.next) {
    const BlueprintStep& step = steps[binding.next];
    if (!binding.again || !is_bound(step, binding)) bind_step(step, binding);
  }
  if (end < steps.size()) return info.Env().Undefined();
  binding.plan = nullptr;
  return binding.handle.Value();
}

Napi::Value blueprint_dispose(const Napi::CallbackInfo& info) {
  info[0].As<Napi::External<Handle>>().Data()->reset();
  return info.Env().Undefined();
}

}  // namespace spark::napi
