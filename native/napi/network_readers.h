// network_readers.h: readers of the operations that networks are made of, besides their linear layers.
#pragma once

#include "napi/arguments.h"

namespace spark::napi {

ConvArgs read_conv(Arguments& in);
ConvBackwardArgs read_conv_backward(Arguments& in);
ConvTransposeArgs read_conv_transpose(Arguments& in);
SoftmaxArgs read_softmax(Arguments& in);
SoftmaxBackwardArgs read_softmax_backward(Arguments& in);
NormArgs read_norm(Arguments& in);
NormBackwardArgs read_norm_backward(Arguments& in);
BatchStatisticsArgs read_batch_statistics(Arguments& in);
BatchNormArgs read_batch_norm(Arguments& in);
BatchNormBackwardArgs read_batch_norm_backward(Arguments& in);
AttentionArgs read_attention(Arguments& in);
AttentionBackwardArgs read_attention_backward(Arguments& in);
SoftmaxCrossEntropyArgs read_softmax_cross_entropy(Arguments& in);

}  // namespace spark::napi
