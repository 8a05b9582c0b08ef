// elements.h: elements of every type as the numbers that are computed with: float, double, int64_t, uint64_t.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/numbers.h"

namespace spark::cpu {

// Elements that are converted at a time.
constexpr int64_t kRun = 512;

// Throws ERR_DTYPE for nvfp4.
Domain domain_of(DType dtype);

// values[i] = the element at base[offset + i · step], for i < count. `dtype` is of the domain of V.
template <typename V>
void load_elements(DType dtype, const void* base, int64_t offset, int64_t step, int64_t count, V* values);

// base[offset + i · step] = values[i] as an element of any type, for i < count.
template <typename V>
void store_elements(DType dtype, const V* values, int64_t count, void* base, int64_t offset, int64_t step,
                    Conversion conversion = {});

// Whether elements of `dtype` are of type V in memory.
template <typename V>
bool stored_as(DType dtype) {
  if constexpr (std::is_same_v<V, float>) return dtype == DType::kF32;
  if constexpr (std::is_same_v<V, double>) return dtype == DType::kF64;
  if constexpr (std::is_same_v<V, int64_t>) return dtype == DType::kI64;
  return dtype == DType::kU64;
}

// Up to kRun elements as numbers: where they are, if they are stored so, else in `buffer`.
template <typename V>
const V* numbers(DType dtype, const void* base, int64_t offset, int64_t step, int64_t count, V* buffer) {
  if (step == 1 && stored_as<V>(dtype)) return static_cast<const V*>(base) + offset;
  load_elements(dtype, base, offset, step, count, buffer);
  return buffer;
}

// Where up to kRun results go: into memory, if elements are stored as V, else into `buffer`, and store()
// stores them.
template <typename V>
class Results {
 public:
  Results(DType dtype, void* base, int64_t offset, int64_t count, V* buffer)
      : dtype_(dtype), base_(base), offset_(offset), count_(count) {
    values = stored_as<V>(dtype) ? static_cast<V*>(base) + offset : buffer;
  }

  void store() const {
    if (!stored_as<V>(dtype_)) store_elements(dtype_, values, count_, base_, offset_, 1);
  }

  V* values;

 private:
  DType dtype_;
  void* base_;
  int64_t offset_, count_;
};

// Calls body(V{}) with the type of number that elements of `dtype` are computed with.
template <typename Body>
void with_number(DType dtype, const Body& body) {
  switch (domain_of(dtype)) {
    case Domain::kFloat:
      return body(float{});
    case Domain::kDouble:
      return body(double{});
    case Domain::kSigned:
      return body(int64_t{});
    case Domain::kUnsigned:
      return body(uint64_t{});
  }
}

}  // namespace spark::cpu
