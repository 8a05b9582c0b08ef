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

// A plan that was bound before.
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

// Binds the steps; of a plan that was bound before those that refer to what has changed since.
void bind_steps(const Blueprint& blueprint, std::vector<double> sizes, std::vector<Region> regions,
                bool again, BoundPlan& bound) {
  const std::vector<double> old_sizes = std::exchange(bound.sizes, std::move(sizes));
  const std::vector<Region> old_regions = std::exchange(bound.regions, std::move(regions));
  if (again) bound.plan.scale_last_run(bytes_of(bound.regions) / std::max(bytes_of(old_regions), 1.0));
  const auto resized = [&](uint32_t i) { return bound.sizes[i] != old_sizes[i]; };
  const auto moved = [&](uint32_t i) {
    return bound.regions[i].data != old_regions[i].data || bound.regions[i].count != old_regions[i].count;
  };
  const Binding binding{bound.sizes.data(), &bound.regions};
  const ThreadLimit limit(bound.threads);
  for (size_t i = 0; i < blueprint.steps.size(); ++i) {
    const BlueprintStep& step = blueprint.steps[i];
    if (again && std::none_of(step.sizes.begin(), step.sizes.end(), resized) &&
        std::none_of(step.regions.begin(), step.regions.end(), moved)) {
      continue;
    }
    Arguments in(Field(step.args, binding));
    if (bound.communicator) in.set_communicator(bound.communicator->communicator.get());
    try {
      std::function<void()> work = prepare(step.op, cpu::backend(), in);
      if (again) {
        bound.plan.replace(i, std::move(work));
      } else {
        bound.plan.add(step.what, std::move(work));
      }
    } catch (const Error& error) {
      throw Error(error.code, message(step.what, " for these sizes: ", error.what()));
    }
  }
}

}  // namespace

Napi::Value blueprint_create(const Napi::CallbackInfo& info) {
  auto blueprint = std::make_shared<Blueprint>();
  blueprint->threads = info[2].IsNumber() ? info[2].ToNumber().Int32Value() : 0;
  blueprint->communicator = PlanCommunicator::of(info[3]);
  const Napi::Array steps = info[0].As<Napi::Array>(), regions = info[1].As<Napi::Array>();
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
  return Napi::External<Handle>::New(info.Env(), new Handle(std::move(blueprint)),
                                     [](Napi::BasicEnv, Handle* handle) { delete handle; });
}

Napi::Value blueprint_bind(const Napi::CallbackInfo& info) {
  const Handle blueprint = *info[0].As<Napi::External<Handle>>().Data();
  if (!blueprint) throw Error("ERR_DISPOSED", "the plan has been disposed");
  blueprint->shared->expect_attached();
  const bool again = info[5].IsExternal();
  const PlanHandle bound = again ? idle_plan(info[5]) : std::make_shared<BoundPlan>();
  bound->threads = blueprint->threads;
  bound->communicator = blueprint->communicator;
  bound->shared = blueprint->shared;
  const bool keeps = again && has_undefined(info[2].As<Napi::Array>());
  HeldMemory memory;
  std::vector<Region> regions = regions_of(*blueprint, info, bound->regions, keeps ? nullptr : &memory);
  const Napi::Float64Array sizes = info[1].As<Napi::Float64Array>();
  bind_steps(*blueprint, {sizes.Data(), sizes.Data() + sizes.ElementLength()}, std::move(regions), again,
             *bound);
  if (!keeps) bound->memory = std::move(memory);
  return again ? info[5] : plan_handle(info.Env(), bound);
}

Napi::Value blueprint_dispose(const Napi::CallbackInfo& info) {
  info[0].As<Napi::External<Handle>>().Data()->reset();
  return info.Env().Undefined();
}

}  // namespace spark::napi
