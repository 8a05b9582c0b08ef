// arguments.h: typed readers for the one object argument of a kernel call. Names and values were checked in
// TypeScript; here only what could corrupt memory is checked again: element types, element counts and
// non-negative sizes.
#pragma once

#include <napi.h>

#include <type_traits>
#include <vector>

#include "backend/backend.h"

namespace spark::napi {

// rows · cols, refused where it would overflow: the sizes come from JavaScript.
int64_t elements(int64_t rows, int64_t cols);

class Arguments {
 public:
  explicit Arguments(Napi::Object object) : object_(object) {}

  int64_t size(const char* name) const;  // a non-negative integer
  double number(const char* name) const;
  bool flag(const char* name) const;
  DType dtype(const char* name) const;

  // Operands: a typed array of at least `count` elements of T, read or written in place.
  template <typename T>
  const T* input(const char* name, int64_t count) {
    return static_cast<const T*>(operand(object_, name, element_type<T>(), count, Use::kRequired));
  }
  template <typename T>
  const T* optional_input(const char* name, int64_t count) {
    return static_cast<const T*>(operand(object_, name, element_type<T>(), count, Use::kOptional));
  }
  template <typename T>
  T* output(const char* name, int64_t count) {
    return static_cast<T*>(operand(object_, name, element_type<T>(), count, Use::kRequired));
  }
  template <typename T>
  T* optional_output(const char* name, int64_t count) {
    return static_cast<T*>(operand(object_, name, element_type<T>(), count, Use::kOptional));
  }
  const void* input(const char* name, DType dtype, int64_t count) {
    return operand(object_, name, element_type(dtype), count, Use::kRequired);
  }
  void* output(const char* name, DType dtype, int64_t count) {
    return operand(object_, name, element_type(dtype), count, Use::kRequired);
  }

  Weight weight(const char* name);
  LowRank low_rank(int64_t rows, int64_t cols);

  // References that keep the operands alive until a job is done.
  std::vector<Napi::ObjectReference> take_references() { return std::move(references_); }

 private:
  enum class Use { kRequired, kOptional };

  template <typename T>
  static napi_typedarray_type element_type() {
    if constexpr (std::is_same_v<T, float>) return napi_float32_array;
    if constexpr (std::is_same_v<T, int32_t>) return napi_int32_array;
    if constexpr (std::is_same_v<T, uint8_t>) return napi_uint8_array;
  }
  static napi_typedarray_type element_type(DType dtype);

  void* operand(Napi::Object object, const char* name, napi_typedarray_type type, int64_t count, Use use);

  Napi::Object object_;
  std::vector<Napi::ObjectReference> references_;
};

}  // namespace spark::napi
