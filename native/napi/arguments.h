// arguments.h: typed readers for the one object argument of a kernel call. Names and values were checked in
// TypeScript; here only what could corrupt memory is checked again: element types, element counts and
// non-negative sizes.
#pragma once

#include <napi.h>

#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "collective/communicator.h"
#include "core/footprint.h"
#include "napi/field.h"
#include "napi/job_memory.h"

namespace spark::napi {

// The product of sizes, refused where it would overflow: the sizes come from JavaScript.
int64_t elements(int64_t rows, int64_t cols);
template <typename... Sizes>
int64_t elements(int64_t first, int64_t second, Sizes... more) {
  return elements(elements(first, second), more...);
}

// Elements of the arrays of a weight, padding included; refuses shapes that its format cannot have.
struct WeightSize {
  int64_t data, block_scale;
};
WeightSize weight_size(const Weight& weight);
// Elements of what winograd_weight() makes of filters.
int64_t winograd_elements(int64_t filters, int64_t channels);

// Says where the backend finds the elements of `array` at `data`; `touched` are the bytes of them that the
// operation reads or writes.
using Placement =
    std::function<void*(Napi::Object array, void* data, const Footprint& touched, Access access)>;

class Arguments {
 public:
  // With a `placement` operands are where that says, with `copies` in blocks, held memory and copies; else
  // they are used where they are.
  explicit Arguments(Napi::Object object, Placement placement = {}, Copies* copies = nullptr)
      : object_(object), placement_(std::move(placement)), copies_(copies) {}
  // Those of a step of a blueprint: operands are pieces of the regions of its binding.
  explicit Arguments(Field object) : object_(std::move(object)) {}

  // What steps of the plan call that these arguments are of; null where it has none.
  void set_communicator(collective::Communicator* communicator) { communicator_ = communicator; }
  collective::Communicator* communicator() const { return communicator_; }

  int64_t size(const char* name) const;  // a non-negative integer
  double number(const char* name) const;
  Scalar scalar(const char* name);  // a number, or one f64 that is read at each run
  double optional_number(const char* name, double otherwise) const {
    return has(name) ? number(name) : otherwise;
  }
  bool has(const char* name) const;
  bool flag(const char* name) const;
  std::string text(const char* name) const;
  std::vector<int64_t> integers(const char* name, int64_t smallest) const;
  // An array of so many numbers.
  void numbers(const char* name, double* to, uint32_t count) const;
  // Calls read with the number and the fields of each object of a list.
  void each(const char* name, const std::function<void(uint32_t i, const Arguments&)>& read) const;
  // That of elements: formats of blocks are those of weights.
  DType dtype(const char* name) const;
  Nvfp4Recipe nvfp4_recipe(const char* name) const;  // modelopt where it is absent
  Activation activation(const char* name) const;     // none where it is absent
  // Of products with the rows of `weight`; f32 where it is absent. plain_compute is that of gradients and
  // convolutions, which are not formed in NVFP4.
  Compute compute(const char* name, const Weight& weight) const;
  Compute plain_compute(const char* name, const Weight& weight) const;

  // One of an enum whose values have these names, in their order; the first one where it is absent.
  template <typename Enum>
  Enum choice(const char* name, std::initializer_list<const char*> names) const {
    return static_cast<Enum>(choice_of(name, names));
  }
  std::array<int64_t, 4> strides(const char* name) const;

  // Operands: a typed array that has the elements which are touched, a count meaning the first ones. An input
  // is read, an output written, an update both.
  template <typename T>
  const T* input(const char* name, const Footprint& touched) {
    return static_cast<const T*>(operand(object_, name, element_type<T>(), touched, Access::kRead));
  }
  template <typename T>
  const T* optional_input(const char* name, const Footprint& touched) {
    return has(name) ? input<T>(name, touched) : nullptr;
  }
  template <typename T>
  T* output(const char* name, const Footprint& touched) {
    return static_cast<T*>(operand(object_, name, element_type<T>(), touched, Access::kWrite));
  }
  template <typename T>
  T* optional_output(const char* name, const Footprint& touched) {
    return has(name) ? output<T>(name, touched) : nullptr;
  }
  template <typename T>
  T* update(const char* name, const Footprint& touched) {
    return static_cast<T*>(operand(object_, name, element_type<T>(), touched, Access::kReadWrite));
  }
  const void* input(const char* name, DType dtype, const Footprint& touched) {
    return operand(object_, name, element_type(dtype), touched, Access::kRead);
  }
  void* output(const char* name, DType dtype, const Footprint& touched) {
    return operand(object_, name, element_type(dtype), touched, Access::kWrite);
  }
  void* optional_output(const char* name, DType dtype, const Footprint& touched) {
    return has(name) ? output(name, dtype, touched) : nullptr;
  }
  void* update(const char* name, DType dtype, const Footprint& touched) {
    return operand(object_, name, element_type(dtype), touched, Access::kReadWrite);
  }

  // Whether operands are moved to where a device reaches them.
  bool placed() const { return static_cast<bool>(placement_); }

  // The same array as the CPU sees it, for checks of its values.
  template <typename T>
  const T* values(const char* name, int64_t count) const {
    return static_cast<const T*>(typed_array(object_, name, element_type<T>(), count));
  }

  // Reads an array of at most `most` objects: during read(i) the fields are those of element i.
  int64_t each(const char* name, int64_t most, const std::function<void(int64_t)>& read);

  Weight weight(const char* name);
  // The same in any format, those in blocks included.
  Weight stored_weight(const char* name);
  // A weight without its elements.
  Weight weight_shape(const char* name) const;
  LowRank low_rank(int64_t rows, int64_t cols);
  HeadStrides head_strides(const char* name) const;
  ConvShape conv_shape(const Weight& weight) const;
  // Three sizes of at least `smallest`; one or two stand for the last ones, the others are `missing`.
  void axes(const char* name, int64_t smallest, int64_t missing, int64_t (&sizes)[3]) const;

  // What keeps the operands alive until a job is done: references, and the blocks under views of ours, which
  // dispose() would free otherwise.
  std::vector<Napi::ObjectReference> take_references() { return std::move(references_); }
  std::vector<std::shared_ptr<Block>> take_blocks() { return std::move(blocks_); }

 private:
  size_t choice_of(const char* name, std::initializer_list<const char*> names) const;

  template <typename T>
  static napi_typedarray_type element_type() {
    if constexpr (std::is_same_v<T, float>) return napi_float32_array;
    if constexpr (std::is_same_v<T, double>) return napi_float64_array;
    if constexpr (std::is_same_v<T, int32_t>) return napi_int32_array;
    if constexpr (std::is_same_v<T, uint8_t>) return napi_uint8_array;
    if constexpr (std::is_same_v<T, int8_t>) return napi_int8_array;
    if constexpr (std::is_same_v<T, uint16_t>) return napi_uint16_array;
    if constexpr (std::is_same_v<T, int64_t>) return napi_bigint64_array;
  }
  static napi_typedarray_type element_type(DType dtype);

  static void* typed_array(const Field& object, const char* name, napi_typedarray_type type, int64_t count);
  void* operand(const Field& object, const char* name, napi_typedarray_type type, const Footprint& touched,
                Access access);

  Field object_;
  Placement placement_;
  Copies* copies_ = nullptr;
  collective::Communicator* communicator_ = nullptr;
  std::vector<std::shared_ptr<Block>> blocks_;
  std::vector<Napi::ObjectReference> references_;
};

}  // namespace spark::napi
