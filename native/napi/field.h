// field.h: a value in the arguments of an operation: of a JavaScript object, or of a blueprint bound to
// sizes.
#pragma once

#include <napi.h>

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace spark::napi {

// A number that is known, or that of a size.
struct SizeOf {
  double number = 0;
  int64_t index = -1;  // into the sizes; -1: none

  double value(const double* sizes) const { return index < 0 ? number : sizes[index]; }
};

// A value in the arguments of a blueprint's step.
struct Part {
  enum class Kind { kNothing, kNumber, kFlag, kText, kList, kObject, kOperand };

  Kind kind = Kind::kNothing;
  SizeOf number;
  bool flag = false;
  std::string text;
  std::vector<Part> parts;         // of a list, or of an object
  std::vector<std::string> names;  // of an object's parts
  uint32_t region = 0;             // of an operand
  SizeOf offset, count;
};

// Elements that operands are pieces of.
struct Region {
  std::byte* data;
  int64_t count;
  napi_typedarray_type type;
  int64_t element_bytes;
};

// What the parts of a blueprint stand for in one plan.
struct Binding {
  const double* sizes;
  const std::vector<Region>* regions;
};

class Field {
 public:
  explicit Field(Napi::Value value) : value_(value) {}
  Field(const Part& part, const Binding& binding) : value_(Bound{&part, &binding}) {}

  bool present() const;  // neither undefined nor null
  bool is_number() const;
  double number() const;  // NaN for what is no number
  bool truthy() const;
  bool is_text() const;
  std::string text() const;
  bool is_list() const;
  uint32_t length() const;
  Field at(uint32_t i) const;
  bool is_object() const;
  Field get(const char* name) const;

  // The JavaScript value; null for a part of a blueprint.
  const Napi::Value* script() const { return std::get_if<Napi::Value>(&value_); }

  // The operand of a blueprint; null when it is none.
  const Part* operand() const;
  const Binding& binding() const { return *std::get<Bound>(value_).binding; }

 private:
  struct Bound {
    const Part* part;
    const Binding* binding;
  };

  const Part* part() const;

  std::variant<Napi::Value, Bound> value_;
};

// Reads the arguments of a step of a blueprint: a bigint is the index of a size, an object with a `region` an
// operand.
Part read_part(const Napi::Value& value);

}  // namespace spark::napi
