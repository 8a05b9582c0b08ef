// readers.h: a reader turns the JavaScript object of one operation into its Args. Field names are those of
// lib/kernels/kernel-args.ts.
#pragma once

#include "napi/arguments.h"

namespace spark::napi {

// precision_readers.cc
CastArgs read_cast(Arguments& in);
AmaxArgs read_amax(Arguments& in);
Nvfp4QuantizeArgs read_nvfp4_quantize(Arguments& in);
Nvfp4DequantizeArgs read_nvfp4_dequantize(Arguments& in);
Fp8QuantizeArgs read_fp8_quantize(Arguments& in);
SwizzleScalesArgs read_swizzle_scales(Arguments& in);

// dora_readers.cc
WeightNorm2Args read_weight_norm2(Arguments& in);
DoraNormArgs read_dora_norm(Arguments& in);
DoraForwardArgs read_dora_forward(Arguments& in);
DoraMixedArgs read_dora_mixed(Arguments& in);
DoraBackwardArgs read_dora_backward(Arguments& in);
DoraMergeArgs read_dora_merge(Arguments& in);
DoraMergeBackwardArgs read_dora_merge_backward(Arguments& in);
DoraUnmergeArgs read_dora_unmerge(Arguments& in);

// view_readers.cc: what they check is that no index leaves its operand.
UnaryFn unary_fn(const Arguments& in);  // the field `fn`
UnaryArgs read_unary(Arguments& in);
BinaryArgs read_binary(Arguments& in);
SelectArgs read_select(Arguments& in);
ReduceArgs read_reduce(Arguments& in);
CumulateArgs read_cumulate(Arguments& in);
TopKArgs read_top_k(Arguments& in);
CopyStridedArgs read_copy_strided(Arguments& in);
GatherArgs read_gather(Arguments& in);
ScatterArgs read_scatter(Arguments& in);

// integer_readers.cc
LinearIntegerArgs read_linear_integer(Arguments& in);
ConvIntegerArgs read_conv_integer(Arguments& in);
QuantizeArgs read_quantize(Arguments& in);
DequantizeArgs read_dequantize(Arguments& in);
LookupArgs read_lookup(Arguments& in);
BinaryBytesArgs read_binary_bytes(Arguments& in);
MeanBytesArgs read_mean_bytes(Arguments& in);

// layer_readers.cc
PoolArgs read_pool(Arguments& in);
PoolBackwardArgs read_pool_backward(Arguments& in);
ResampleArgs read_resample(Arguments& in);
DropoutMaskArgs read_dropout_mask(Arguments& in);
GridSampleArgs read_grid_sample(Arguments& in);
RecurrentArgs read_recurrent(Arguments& in);

}  // namespace spark::napi
