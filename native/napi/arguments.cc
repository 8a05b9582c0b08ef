// arguments.cc: typed readers of kernel arguments.
#include "napi/arguments.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>

#include "backend/block_formats.h"
#include "core/error.h"

namespace spark::napi {
namespace {

int64_t to_size(const char* name, const Field& value) {
  const double number = value.number();
  if (!(number >= 0 && number <= 9007199254740991.0 && std::floor(number) == number)) {
    throw Error("ERR_ARGUMENT", message(name, " must be a non-negative integer"));
  }
  return static_cast<int64_t>(number);
}

DType to_dtype(const char* name, const Field& value) {
  const std::string text = value.text();
  for (size_t i = 0; i < kDTypeCount; ++i) {
    if (text == kDTypes[i].name) return static_cast<DType>(i);
  }
  throw Error("ERR_DTYPE", message(name, " is not a dtype the kernels know: '", text, "'"));
}

// A resize during an operation would take the memory away from under it. A SharedArrayBuffer only grows.
void expect_fixed(const char* name, const Napi::TypedArray& array) {
  const Napi::Object buffer = array.ArrayBuffer();
  if (!buffer.Get("resizable").ToBoolean()) return;
  throw Error("ERR_ARGUMENT", message(name, " lies in a resizable ArrayBuffer; copy it: array.slice()"));
}

// Where empty operands are: null stands for those that are left out.
alignas(64) std::byte nothing[64];

void expect_attached(const char* name, const Napi::TypedArray& array) {
  bool detached = false;
  if (napi_is_detached_arraybuffer(array.Env(), array.ArrayBuffer(), &detached) == napi_ok && detached) {
    throw Error("ERR_DISPOSED", message(name, " lies in memory that has been detached or disposed"));
  }
}

// Where a piece of a region is that must have `count` elements.
void* piece(const char* name, const Field& field, napi_typedarray_type type, int64_t count) {
  const Part* operand = field.operand();
  if (!operand) throw Error("ERR_ARGUMENT", message(name, " must be an operand"));
  const Binding& binding = field.binding();
  const Region& region = binding.regions->at(operand->region);
  if (region.type != type) throw Error("ERR_DTYPE", message(name, " has the wrong element type"));
  const double offset = operand->offset.value(binding.sizes), length = operand->count.value(binding.sizes);
  if (!(offset >= 0 && length >= 0 && offset + length <= static_cast<double>(region.count))) {
    throw Error("ERR_SHAPE", message(name, " is no piece of its ", region.count, " elements: ", length,
                                     " elements from ", offset, " on"));
  }
  if (length < static_cast<double>(count)) {
    throw Error("ERR_SHAPE", message(name, " has ", length, " elements but ", count, " are needed"));
  }
  return region.data ? region.data + static_cast<int64_t>(offset) * region.element_bytes : nothing;
}

// Whether a weight of this layout is in panels.
bool is_packed(const Field& layout) {
  if (!layout.present()) return false;
  const std::string name = layout.text();
  if (name != "rows" && name != "panels") {
    throw Error("ERR_ARGUMENT", "weight.layout must be 'rows' or 'panels'");
  }
  return name == "panels";
}

}  // namespace

int64_t elements(int64_t rows, int64_t cols) {
  int64_t count;
  if (__builtin_mul_overflow(rows, cols, &count)) {
    throw Error("ERR_SHAPE", message("a matrix of ", rows, " x ", cols, " does not fit in memory"));
  }
  return count;
}

int64_t Arguments::size(const char* name) const { return to_size(name, object_.get(name)); }

double Arguments::number(const char* name) const {
  const Field value = object_.get(name);
  if (!value.is_number()) throw Error("ERR_ARGUMENT", message(name, " must be a number"));
  return value.number();
}

Scalar Arguments::scalar(const char* name) {
  if (object_.get(name).is_number()) return {number(name), nullptr};
  return {0, input<double>(name, 1)};
}

std::string Arguments::text(const char* name) const { return object_.get(name).text(); }

std::vector<int64_t> Arguments::integers(const char* name, int64_t smallest) const {
  const Field list = object_.get(name);
  if (!list.is_list()) throw Error("ERR_ARGUMENT", message(name, " must be an array of integers"));
  std::vector<int64_t> integers(list.length());
  for (uint32_t i = 0; i < integers.size(); ++i) {
    const double number = list.at(i).number();
    if (!(number >= static_cast<double>(smallest) && number <= 9007199254740991.0 &&
          std::floor(number) == number)) {
      throw Error("ERR_ARGUMENT", message(name, "[", i, "] must be an integer of at least ", smallest));
    }
    integers[i] = static_cast<int64_t>(number);
  }
  return integers;
}

void Arguments::numbers(const char* name, double* to, uint32_t count) const {
  const Field list = object_.get(name);
  if (!list.is_list() || list.length() != count) {
    throw Error("ERR_ARGUMENT", message(name, " must be an array of ", count, " numbers"));
  }
  for (uint32_t i = 0; i < count; ++i) to[i] = list.at(i).number();
}

void Arguments::each(const char* name, const std::function<void(uint32_t i, const Arguments&)>& read) const {
  const Field list = object_.get(name);
  if (!list.is_list()) throw Error("ERR_ARGUMENT", message(name, " must be an array of objects"));
  for (uint32_t i = 0; i < list.length(); ++i) {
    const Field entry = list.at(i);
    if (!entry.is_object()) throw Error("ERR_ARGUMENT", message(name, "[", i, "] must be an object"));
    read(i, Arguments(entry));
  }
}

bool Arguments::flag(const char* name) const { return object_.get(name).truthy(); }

DType Arguments::dtype(const char* name) const {
  const DType dtype = to_dtype(name, object_.get(name));
  if (!is_block_format(dtype)) return dtype;
  throw Error("ERR_DTYPE", message(name, " is not a dtype of elements: '", dtype_name(dtype),
                                   "' is a format of weights in blocks; decode them first"));
}

size_t Arguments::choice_of(const char* name, std::initializer_list<const char*> names) const {
  if (!has(name)) return 0;
  const std::string given = text(name);
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (given == names.begin()[i]) return i;
    known += message(i == 0 ? "" : ", ", names.begin()[i]);
  }
  throw Error("ERR_UNSUPPORTED", message(name, " is '", given, "', not one of ", known));
}

Activation Arguments::activation(const char* name) const {
  if (!has(name)) return Activation::kNone;
  const std::string text = this->text(name);
  const char* names[] = {"none",    "relu", "gelu",  "gelu_tanh", "silu",
                         "sigmoid", "tanh", "relu6", "hard_swish"};
  const auto found = std::find(std::begin(names), std::end(names), text);
  if (found != std::end(names)) return static_cast<Activation>(found - names);
  throw Error("ERR_ARGUMENT", message(name, " is not an activation: '", text, "'"));
}

Compute Arguments::compute(const char* name, const Weight& weight) const {
  const char* names[] = {"f32", "bf16", "f16", "nvfp4", "i8"};
  const std::string given = has(name) ? text(name) : names[0];
  const auto found = std::find(std::begin(names), std::end(names), given);
  if (found == std::end(names)) {
    throw Error("ERR_ARGUMENT", message(name, " is not f32, bf16, f16, nvfp4 or i8: '", given, "'"));
  }
  const auto compute = static_cast<Compute>(found - names);
  const bool halves = weight.dtype == DType::kF16 || weight.dtype == DType::kF32;
  const bool fits =
      compute == Compute::kNVFP4 ? weight.dtype == DType::kNVFP4 : compute != Compute::kF16 || halves;
  const bool integers = compute == Compute::kI8;
  if (integers && placement_) throw Error("ERR_UNSUPPORTED", message(name, " i8 is for the CPU. Use f32"));
  if (integers && !has_integer_codes(weight.dtype)) {
    throw Error("ERR_UNSUPPORTED", message(name, " i8 is for weights in blocks of integers; this one is ",
                                           dtype_name(weight.dtype), ". Use f32"));
  }
  const bool rounds = compute != Compute::kF32 && !integers;
  if (rounds && is_block_format(weight.dtype) && !(compute == Compute::kBF16 && placement_)) {
    throw Error("ERR_UNSUPPORTED", message(name, " ", given, " is not for weights of ",
                                           dtype_name(weight.dtype), ", which need f32, or bf16 on a GPU"));
  }
  if (fits) return compute;
  throw Error("ERR_UNSUPPORTED", message(name, " ", given, " is for weights of ",
                                         compute == Compute::kF16 ? "f16 and f32" : "nvfp4", "; this one is ",
                                         dtype_name(weight.dtype), ". Use bf16"));
}

Compute Arguments::plain_compute(const char* name, const Weight& weight) const {
  const Compute result = compute(name, weight);
  if (result != Compute::kNVFP4 && result != Compute::kI8) return result;
  const auto given = result == Compute::kI8 ? " i8" : " nvfp4";
  throw Error("ERR_UNSUPPORTED", message(name, given, " is for linear layers, not for gradients. Use bf16"));
}

std::array<int64_t, 4> Arguments::strides(const char* name) const {
  std::array<int64_t, 4> result{};
  const Field list = object_.get(name);
  if (!list.is_list() || list.length() != result.size()) {
    throw Error("ERR_ARGUMENT", message(name, " must be an array of four strides"));
  }
  for (size_t i = 0; i < result.size(); ++i) result[i] = to_size(name, list.at(static_cast<uint32_t>(i)));
  return result;
}

Nvfp4Recipe Arguments::nvfp4_recipe(const char* name) const {
  if (!has(name)) return Nvfp4Recipe::kModelopt;
  const std::string text = this->text(name);
  if (text == "modelopt") return Nvfp4Recipe::kModelopt;
  if (text == "te") return Nvfp4Recipe::kTe;
  if (text == "mse") return Nvfp4Recipe::kMse;
  throw Error("ERR_ARGUMENT", message(name, " is not modelopt, te or mse: '", text, "'"));
}

napi_typedarray_type Arguments::element_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return napi_float32_array;
    case DType::kF64:
      return napi_float64_array;
    case DType::kF16:
    case DType::kBF16:
    case DType::kU16:
      return napi_uint16_array;
    case DType::kI64:
      return napi_bigint64_array;
    case DType::kU64:
      return napi_biguint64_array;
    case DType::kI32:
      return napi_int32_array;
    case DType::kU32:
      return napi_uint32_array;
    case DType::kI16:
      return napi_int16_array;
    case DType::kI8:
      return napi_int8_array;
    default:
      return napi_uint8_array;
  }
}

bool Arguments::has(const char* name) const { return object_.get(name).present(); }

void* Arguments::typed_array(const Field& object, const char* name, napi_typedarray_type type,
                             int64_t count) {
  const Field field = object.get(name);
  if (!field.script()) return piece(name, field, type, count);
  const Napi::Value value = *field.script();
  if (!value.IsTypedArray()) throw Error("ERR_ARGUMENT", message(name, " must be a typed array"));
  napi_typedarray_type actual;
  size_t length;
  void* data;
  if (napi_get_typedarray_info(value.Env(), value, &actual, &length, &data, nullptr, nullptr) != napi_ok) {
    throw Error("ERR_ARGUMENT", message(name, " is not a usable typed array"));
  }
  if (actual != type) throw Error("ERR_DTYPE", message(name, " has the wrong element type"));
  if (static_cast<int64_t>(length) < count) {
    expect_attached(name, value.As<Napi::TypedArray>());
    throw Error("ERR_SHAPE", message(name, " has ", length, " elements but ", count, " are needed"));
  }
  return data ? data : nothing;
}

void* Arguments::operand(const Field& object, const char* name, napi_typedarray_type type,
                         const Footprint& touched, Access access) {
  void* data = typed_array(object, name, type, touched.span().end);
  const Field field = object.get(name);
  if (!field.script()) return data;
  const Napi::TypedArray array = field.script()->As<Napi::TypedArray>();
  expect_fixed(name, array);
  const Footprint bytes = touched.scaled(array.ElementSize());
  references_.push_back(Napi::Persistent(array.As<Napi::Object>()));
  if (placement_) return placement_(array, data, bytes, access);
  if (std::shared_ptr<Block> block = Block::find(data, bytes.span().end)) {
    blocks_.push_back(std::move(block));
    return data;
  }
  return copies_ ? copies_->add(name, array, data, bytes, access) : data;
}

Weight Arguments::weight_shape(const char* name) const {
  const Field object = object_.get(name);
  if (!object.is_object()) throw Error("ERR_ARGUMENT", message(name, " must be a weight"));
  Weight weight{};
  weight.dtype = to_dtype("weight.format", object.get("format"));
  if (weight.dtype == DType::kF8E5M2) throw Error("ERR_DTYPE", "a weight cannot be stored as f8_e5m2");
  weight.rows = to_size("weight.rows", object.get("rows"));
  weight.cols = to_size("weight.cols", object.get("cols"));
  weight.packed = is_packed(object.get("layout"));
  return weight;
}

Weight Arguments::weight(const char* name) {
  const DType dtype = weight_shape(name).dtype;
  if (!is_block_format(dtype)) return stored_weight(name);
  throw Error("ERR_UNSUPPORTED", message("this operation does not read weights of ", dtype_name(dtype)));
}

Weight Arguments::stored_weight(const char* name) {
  const Field object = object_.get(name);
  Weight weight = weight_shape(name);
  if (placement_ && weight.packed) {
    throw Error("ERR_UNSUPPORTED", "the cuda backend does not read a weight in panels");
  }
  const WeightSize size = weight_size(weight);
  weight.data = operand(object, "data", element_type(weight.dtype), size.data, Access::kRead);
  // Kernels read two elements at once.
  if (weight.packed && weight.dtype == DType::kBF16 && reinterpret_cast<uintptr_t>(weight.data) % 4 != 0) {
    throw Error("ERR_ARGUMENT",
                "a weight of bf16 in panels must begin at a multiple of 4 bytes; copy it: data.slice()");
  }
  if (weight.dtype == DType::kF8E4M3 || weight.dtype == DType::kI8) {
    weight.row_scale = static_cast<const float*>(
        operand(object, "rowScale", napi_float32_array, weight.rows, Access::kRead));
  }
  if (weight.dtype == DType::kNVFP4) {
    weight.block_scale = static_cast<const uint8_t*>(
        operand(object, "blockScale", napi_uint8_array, size.block_scale, Access::kRead));
    weight.tensor_scale = static_cast<float>(object.get("tensorScale").number());
  }
  return weight;
}

int64_t Arguments::each(const char* name, int64_t most, const std::function<void(int64_t)>& read) {
  const Field list = object_.get(name);
  if (!list.is_list()) throw Error("ERR_ARGUMENT", message(name, " must be an array"));
  const int64_t count = list.length();
  if (count > most) throw Error("ERR_ARGUMENT", message(name, " has ", count, " elements; at most ", most));
  const Field outer = object_;
  for (int64_t i = 0; i < count; ++i) {
    const Field element = list.at(static_cast<uint32_t>(i));
    if (!element.is_object()) throw Error("ERR_ARGUMENT", message(name, "[", i, "] must be an object"));
    object_ = element;
    read(i);
  }
  object_ = outer;
  return count;
}

LowRank Arguments::low_rank(int64_t rows, int64_t cols) {
  LowRank low_rank{};
  low_rank.rank = size("rank");
  low_rank.scale = number("scale");
  low_rank.a = input<float>("a", elements(low_rank.rank, cols));
  low_rank.b = input<float>("b", elements(rows, low_rank.rank));
  return low_rank;
}

void Arguments::axes(const char* name, int64_t smallest, int64_t missing, int64_t (&sizes)[3]) const {
  constexpr double kLargest = 2147483647;  // keeps the sums and products of an index within 64 bits
  const Field list = object_.get(name), image = object_.get("image");
  const uint32_t count = list.is_list() ? list.length() : 0;
  if (count < 1 || count > 3 || !image.is_list() || image.length() != count) {
    throw Error("ERR_SHAPE", message(name, " must be an array of 1 to 3 integers, as long as image"));
  }
  for (uint32_t i = 0; i < 3; ++i) sizes[i] = missing;
  for (uint32_t i = 0; i < count; ++i) {
    const double number = list.at(i).number();
    if (!(number >= smallest && number <= kLargest && std::floor(number) == number)) {
      throw Error("ERR_SHAPE",
                  message(name, "[", i, "] must be an integer from ", smallest, " to ", kLargest));
    }
    sizes[3 - count + i] = static_cast<int64_t>(number);
  }
}

HeadStrides Arguments::head_strides(const char* name) const {
  const Field strides = object_.get(name);
  if (!strides.is_list() || strides.length() != 3) {
    throw Error("ERR_ARGUMENT", message(name, " must be an array of three strides"));
  }
  return {to_size(name, strides.at(0)), to_size(name, strides.at(1)), to_size(name, strides.at(2))};
}

ConvShape Arguments::conv_shape(const Weight& weight) const {
  ConvShape shape{};
  shape.batch = size("batch");
  shape.groups = size("groups");
  axes("image", 0, 1, shape.image);
  axes("kernel", 1, 1, shape.kernel);
  axes("out", 0, 1, shape.out);
  axes("strides", 1, 1, shape.stride);
  axes("dilations", 1, 1, shape.dilation);
  axes("padsBegin", -2147483647, 0, shape.pad);
  const int64_t taps = elements(shape.kernel[0], shape.kernel[1], shape.kernel[2]);
  if (shape.groups < 1 || weight.rows % shape.groups != 0 || weight.cols % taps != 0) {
    throw Error("ERR_SHAPE", message("a weight of ", weight.rows, " x ", weight.cols, " does not fit ",
                                     shape.groups, " groups and a kernel of ", taps, " taps"));
  }
  shape.filters = weight.rows;
  shape.channels = elements(weight.cols / taps, shape.groups);
  return shape;
}

}  // namespace spark::napi
