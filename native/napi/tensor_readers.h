// tensor_readers.h: readers of the operations on views of tensors (elementwise, reductions, copies). What
// they check is that no index leaves its operand.
#pragma once

#include "napi/arguments.h"

namespace spark::napi {

UnaryArgs read_unary(Arguments& in);
BinaryArgs read_binary(Arguments& in);
SelectArgs read_select(Arguments& in);
ReduceArgs read_reduce(Arguments& in);
CumulateArgs read_cumulate(Arguments& in);
TopKArgs read_top_k(Arguments& in);
CopyStridedArgs read_copy_strided(Arguments& in);
GatherArgs read_gather(Arguments& in);
ScatterArgs read_scatter(Arguments& in);
PoolArgs read_pool(Arguments& in);
ResampleArgs read_resample(Arguments& in);
GridSampleArgs read_grid_sample(Arguments& in);
RecurrentArgs read_recurrent(Arguments& in);

}  // namespace spark::napi
