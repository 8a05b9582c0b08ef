// tensor_readers.h: readers of the operations on views of tensors (elementwise, reductions, copies). What
// they check is that no index leaves its operand.
#pragma once

#include "napi/arguments.h"

namespace spark::napi {

UnaryArgs read_unary(Arguments& in);
BinaryArgs read_binary(Arguments& in);
ReduceArgs read_reduce(Arguments& in);
CopyStridedArgs read_copy_strided(Arguments& in);

}  // namespace spark::napi
