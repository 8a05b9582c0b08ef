// readers.h: a reader turns the JavaScript object of one operation into its Args. Field names are those of
// lib/kernels/<family>-args.ts. A reader makes sure that no index leaves its operand.
#pragma once

#include "napi/arguments.h"

namespace spark::napi {

#define SPARK_OPERATION(entry, Args, name) Args read_##entry(Arguments& in);
#include "backend/operations.def"

UnaryFn unary_fn(const Arguments& in);  // the field `fn`

// Of an activation; f32 where it is absent, and on the CPU.
FloatType read_float_type(const Arguments& in, const char* name);

// Refuses `name`, rows rounded to NVFP4 for products, on the CPU and where `cols` do not fit.
void expect_rounded_rows(const Arguments& in, const char* name, int64_t cols);

// The tensor scale of rounded rows; 0 where it is absent. Refuses what is no power of two.
float read_tensor_scale(const Arguments& in, const char* name);

}  // namespace spark::napi
