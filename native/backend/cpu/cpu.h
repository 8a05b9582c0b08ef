// cpu.h: the CPU backend. Plain loops that define what is correct; `parallel_for` spreads rows over threads.
#pragma once

#include "backend/backend.h"

namespace spark::cpu {

const Backend& backend();

void cast(const CastArgs&);
void amax(const AmaxArgs&);
void nvfp4_quantize(const Nvfp4QuantizeArgs&);
void nvfp4_dequantize(const Nvfp4DequantizeArgs&);
void fp8_quantize(const Fp8QuantizeArgs&);
void swizzle_scales(const SwizzleScalesArgs&);
void pack_weight(const PackWeightArgs&);
void winograd_weight(const WinogradWeightArgs&);
void linear(const LinearArgs&);
void linear_backward(const LinearBackwardArgs&);
void conv(const ConvArgs&);
void conv_backward(const ConvBackwardArgs&);
void conv_transpose(const ConvTransposeArgs&);
void linear_integer(const LinearIntegerArgs&);
void conv_integer(const ConvIntegerArgs&);
void quantize(const QuantizeArgs&);
void dequantize(const DequantizeArgs&);
void lookup(const LookupArgs&);
void binary_bytes(const BinaryBytesArgs&);
void mean_bytes(const MeanBytesArgs&);
void matmul(const MatmulArgs&);
void weight_norm2(const WeightNorm2Args&);
void dora_norm(const DoraNormArgs&);
void dora_forward(const DoraForwardArgs&);
void dora_mixed(const DoraMixedArgs&);
void dora_backward(const DoraBackwardArgs&);
void dora_merge(const DoraMergeArgs&);
void dora_merge_backward(const DoraMergeBackwardArgs&);
void dora_unmerge(const DoraUnmergeArgs&);
void softmax_cross_entropy(const SoftmaxCrossEntropyArgs&);
void softmax(const SoftmaxArgs&);
void softmax_backward(const SoftmaxBackwardArgs&);
void norm(const NormArgs&);
void norm_backward(const NormBackwardArgs&);
void batch_statistics(const BatchStatisticsArgs&);
void batch_norm(const BatchNormArgs&);
void batch_norm_backward(const BatchNormBackwardArgs&);
void attention(const AttentionArgs&);
void attention_backward(const AttentionBackwardArgs&);
void adamw(const AdamwArgs&);
void unary(const UnaryArgs&);
void binary(const BinaryArgs&);
void select(const SelectArgs&);
void reduce(const ReduceArgs&);
void cumulate(const CumulateArgs&);
void top_k(const TopKArgs&);
void copy_strided(const CopyStridedArgs&);
void gather(const GatherArgs&);
void scatter(const ScatterArgs&);
void pool(const PoolArgs&);
void pool_backward(const PoolBackwardArgs&);
void resample(const ResampleArgs&);
void dropout_mask(const DropoutMaskArgs&);
void grid_sample(const GridSampleArgs&);
void recurrent(const RecurrentArgs&);

}  // namespace spark::cpu
