// field.cc: values in the arguments of an operation.
#include "napi/field.h"

#include <cmath>

namespace spark::napi {
namespace {

const Part kNothing;

SizeOf read_size(const Napi::Value& value) {
  if (value.IsBigInt()) {
    bool lossless = false;
    return {0, value.As<Napi::BigInt>().Int64Value(&lossless)};
  }
  return {value.As<Napi::Number>().DoubleValue(), -1};
}

}  // namespace

const Part* Field::part() const {
  const Bound* bound = std::get_if<Bound>(&value_);
  return bound ? bound->part : nullptr;
}

bool Field::present() const {
  if (const Part* own = part()) return own->kind != Part::Kind::kNothing;
  return !script()->IsUndefined() && !script()->IsNull();
}

bool Field::is_number() const {
  if (const Part* own = part()) return own->kind == Part::Kind::kNumber;
  return script()->IsNumber();
}

double Field::number() const {
  if (!is_number()) return NAN;
  if (const Part* own = part()) return own->number.value(binding().sizes);
  return script()->As<Napi::Number>().DoubleValue();
}

bool Field::truthy() const {
  const Part* own = part();
  return own ? own->kind == Part::Kind::kFlag && own->flag : script()->ToBoolean().Value();
}

bool Field::is_text() const {
  const Part* own = part();
  return own ? own->kind == Part::Kind::kText : script()->IsString();
}

std::string Field::text() const {
  if (!is_text()) return "";
  const Part* own = part();
  return own ? own->text : script()->As<Napi::String>().Utf8Value();
}

bool Field::is_list() const {
  const Part* own = part();
  return own ? own->kind == Part::Kind::kList : script()->IsArray();
}

uint32_t Field::length() const {
  const Part* own = part();
  return own ? static_cast<uint32_t>(own->parts.size()) : script()->As<Napi::Array>().Length();
}

Field Field::at(uint32_t i) const {
  if (const Part* own = part()) return {own->parts[i], binding()};
  return Field(script()->As<Napi::Array>().Get(i));
}

bool Field::is_object() const {
  const Part* own = part();
  return own ? own->kind == Part::Kind::kObject : script()->IsObject();
}

Field Field::get(const char* name) const {
  const Part* own = part();
  if (!own) return Field(script()->As<Napi::Object>().Get(name));
  for (size_t i = 0; i < own->names.size(); ++i) {
    if (own->names[i] == name) return {own->parts[i], binding()};
  }
  return {kNothing, binding()};
}

const Part* Field::operand() const {
  const Part* own = part();
  return own && own->kind == Part::Kind::kOperand ? own : nullptr;
}

Part read_part(const Napi::Value& value) {
  Part part;
  if (value.IsNumber() || value.IsBigInt()) {
    part.kind = Part::Kind::kNumber;
    part.number = read_size(value);
  } else if (value.IsBoolean()) {
    part.kind = Part::Kind::kFlag;
    part.flag = value.ToBoolean().Value();
  } else if (value.IsString()) {
    part.kind = Part::Kind::kText;
    part.text = value.As<Napi::String>().Utf8Value();
  } else if (value.IsArray()) {
    part.kind = Part::Kind::kList;
    const Napi::Array list = value.As<Napi::Array>();
    for (uint32_t i = 0; i < list.Length(); ++i) part.parts.push_back(read_part(list.Get(i)));
  } else if (value.IsObject()) {
    const Napi::Object object = value.As<Napi::Object>();
    const Napi::Value region = object.Get("region");
    if (region.IsNumber()) {
      part.kind = Part::Kind::kOperand;
      part.region = region.As<Napi::Number>().Uint32Value();
      part.offset = read_size(object.Get("offset"));
      part.count = read_size(object.Get("count"));
      return part;
    }
    part.kind = Part::Kind::kObject;
    const Napi::Array names = object.GetPropertyNames();
    for (uint32_t i = 0; i < names.Length(); ++i) {
      part.names.push_back(names.Get(i).As<Napi::String>().Utf8Value());
      part.parts.push_back(read_part(object.Get(part.names.back())));
    }
  }
  return part;
}

}  // namespace spark::napi
