// network_readers.cc: argument readers of softmax, normalizations, attention, loss and AdamW.
#include <algorithm>

#include "backend/labels.h"
#include "core/error.h"
#include "napi/readers/readers.h"

namespace spark::napi {
namespace {

void check(bool fits, const char* what) {
  if (!fits) throw Error("ERR_SHAPE", what);
}

// Sizes that normalization forward and backward share.
template <typename Args>
void read_norm_sizes(Arguments& in, Args& args) {
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.groups = in.size("groups");
  args.inner = in.size("inner");
  args.centered = in.flag("centered");
  check(args.cols > 0 && args.inner > 0 && args.cols % args.inner == 0, "cols must be a multiple of inner");
  check(args.groups > 0 && args.rows % args.groups == 0, "rows must be a multiple of groups");
}

template <typename Args>
int64_t read_batch_sizes(Arguments& in, Args& args) {
  args.batch = in.size("batch");
  args.channels = in.size("channels");
  args.positions = in.size("positions");
  return elements(args.batch, args.channels, args.positions);
}

AttentionShape read_attention_shape(Arguments& in) {
  AttentionShape shape{};
  shape.batch = in.size("batch");
  shape.heads = in.size("heads");
  shape.kv_heads = in.size("kvHeads");
  shape.queries = in.size("queries");
  shape.keys = in.size("keys");
  shape.depth = in.size("depth");
  shape.value_depth = in.size("valueDepth");
  check(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "heads must be a multiple of kvHeads");
  return shape;
}

// Elements up to the last one of [batch, heads, rows, width] with these strides.
int64_t extent(const HeadStrides& strides, int64_t batch, int64_t heads, int64_t rows, int64_t width) {
  if (batch == 0 || heads == 0 || rows == 0 || width == 0) return 0;
  int64_t last = width;
  for (const int64_t part : {elements(batch - 1, strides.batch), elements(heads - 1, strides.head),
                             elements(rows - 1, strides.step)}) {
    check(!__builtin_add_overflow(last, part, &last), "strides go beyond all memory");
  }
  return last;
}

// The elements of [batch, heads, rows, width] with these strides.
Footprint touched(const HeadStrides& strides, int64_t batch, int64_t heads, int64_t rows, int64_t width) {
  extent(strides, batch, heads, rows, width);  // refuses what leaves the address space
  const Footprint::Axis axes[] = {
      {batch, strides.batch}, {heads, strides.head}, {rows, strides.step}, {width, 1}};
  return {0, axes};
}

AttentionArgs read_attention_inputs(Arguments& in) {
  AttentionArgs args{};
  const AttentionShape& shape = args.shape = read_attention_shape(in);
  args.scale = in.number("scale");
  args.softcap = in.optional_number("softcap", 0);
  args.causal = in.flag("causal");
  args.causal_offset = static_cast<int64_t>(in.optional_number("causalOffset", 0));
  args.q_strides = in.head_strides("qStrides");
  args.k_strides = in.head_strides("kStrides");
  args.v_strides = in.head_strides("vStrides");
  args.y_strides = in.head_strides("yStrides");
  const auto [batch, heads, kv_heads, queries, keys, depth, value_depth] = shape;
  args.q = in.input<float>("q", extent(args.q_strides, batch, heads, queries, depth));
  args.k = in.input<float>("k", extent(args.k_strides, batch, kv_heads, keys, depth));
  args.v = in.input<float>("v", extent(args.v_strides, batch, kv_heads, keys, value_depth));
  if (in.has("mask")) {
    args.mask_strides = in.head_strides("maskStrides");
    args.mask = in.input<float>("mask", extent(args.mask_strides, batch, heads, queries, keys));
  }
  args.compute = in.choice<Compute>("compute", {"f32", "bf16", "f16"});
  return args;
}

PagedAttentionShape read_paged_shape(const Arguments& in) {
  PagedAttentionShape shape{};
  shape.tokens = in.size("tokens");
  shape.sequences = in.size("sequences");
  shape.heads = in.size("heads");
  shape.kv_heads = in.size("kvHeads");
  shape.depth = in.size("depth");
  shape.rotary = in.size("rotary");
  shape.blocks = in.size("blocks");
  shape.block_size = in.size("blockSize");
  shape.table = in.size("table");
  check(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0, "heads must be a multiple of kvHeads");
  check(shape.depth > 0 && shape.block_size > 0, "depth and blockSize must be at least 1");
  check(shape.rotary % 2 == 0 && shape.rotary <= shape.depth, "rotary must be even, and depth at most");
  return shape;
}

}  // namespace

SoftmaxArgs read_softmax(Arguments& in) {
  SoftmaxArgs args{};
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.log = in.flag("log");
  args.x = in.input<float>("x", elements(args.rows, args.cols));
  args.y = in.output<float>("y", elements(args.rows, args.cols));
  return args;
}

SoftmaxBackwardArgs read_softmax_backward(Arguments& in) {
  SoftmaxBackwardArgs args{};
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.log = in.flag("log");
  args.y = in.input<float>("y", elements(args.rows, args.cols));
  args.dy = in.input<float>("dy", elements(args.rows, args.cols));
  args.dx = in.output<float>("dx", elements(args.rows, args.cols));
  return args;
}

NormArgs read_norm(Arguments& in) {
  NormArgs args{};
  read_norm_sizes(in, args);
  const int64_t count = elements(args.rows, args.cols),
                scales = elements(args.groups, args.cols / args.inner);
  args.eps = in.number("eps");
  args.x = in.input<float>("x", count);
  args.scale = in.optional_input<float>("scale", scales);
  args.bias = in.optional_input<float>("bias", scales);
  args.y_dtype = read_float_type(in, "yDtype");
  if (in.has("yRounded")) {
    expect_rounded_rows(in, "yRounded", args.cols);
    check(args.groups == 1 && args.inner == 1 && args.y_dtype == FloatType::kF32,
          "yRounded is for groups and inner of 1, and y in f32");
    args.y_rounded = static_cast<uint16_t*>(in.output("yRounded", DType::kBF16, count));
    args.y_scale = read_tensor_scale(in, "yScale");
    args.y = in.optional_output<float>("y", count);
  } else {
    args.y = in.output("y", dtype_of(args.y_dtype), count);
  }
  if (in.has("yHalf")) {
    args.half_dtype = read_float_type(in, "halfDtype");
    check(args.half_dtype != FloatType::kF32 && args.y_dtype == FloatType::kF32 && !args.y_rounded,
          "yHalf is 16 bits beside y in f32");
    args.y_half = static_cast<uint16_t*>(in.output("yHalf", dtype_of(args.half_dtype), count));
  }
  args.mean = in.optional_output<float>("mean", args.rows);
  args.inv_std = in.optional_output<float>("invStd", args.rows);
  return args;
}

NormBackwardArgs read_norm_backward(Arguments& in) {
  NormBackwardArgs args{};
  read_norm_sizes(in, args);
  const int64_t count = elements(args.rows, args.cols),
                scales = elements(args.groups, args.cols / args.inner);
  args.x = in.input<float>("x", count);
  args.scale = in.optional_input<float>("scale", scales);
  if (args.centered) args.mean = in.input<float>("mean", args.rows);
  args.inv_std = in.input<float>("invStd", args.rows);
  args.dy = in.input<float>("dy", count);
  args.dx = in.optional_output<float>("dx", count);
  args.dscale = in.optional_output<float>("dscale", scales);
  args.dbias = in.optional_output<float>("dbias", scales);
  return args;
}

BatchStatisticsArgs read_batch_statistics(Arguments& in) {
  BatchStatisticsArgs args{};
  const int64_t count = read_batch_sizes(in, args);
  check(args.batch > 0 && args.positions > 0, "there is nothing to take statistics of");
  args.x = in.input<float>("x", count);
  args.mean = in.output<float>("mean", args.channels);
  args.variance = in.output<float>("variance", args.channels);
  return args;
}

BatchNormArgs read_batch_norm(Arguments& in) {
  BatchNormArgs args{};
  const int64_t count = read_batch_sizes(in, args);
  args.eps = in.number("eps");
  args.x = in.input<float>("x", count);
  args.mean = in.input<float>("mean", args.channels);
  args.variance = in.input<float>("variance", args.channels);
  args.scale = in.optional_input<float>("scale", args.channels);
  args.bias = in.optional_input<float>("bias", args.channels);
  args.y = in.output<float>("y", count);
  return args;
}

BatchNormBackwardArgs read_batch_norm_backward(Arguments& in) {
  BatchNormBackwardArgs args{};
  const int64_t count = read_batch_sizes(in, args);
  args.training = in.flag("training");
  args.eps = in.number("eps");
  args.x = in.input<float>("x", count);
  args.mean = in.input<float>("mean", args.channels);
  args.variance = in.input<float>("variance", args.channels);
  args.scale = in.optional_input<float>("scale", args.channels);
  args.dy = in.input<float>("dy", count);
  args.dx = in.optional_output<float>("dx", count);
  args.dscale = in.optional_output<float>("dscale", args.channels);
  args.dbias = in.optional_output<float>("dbias", args.channels);
  return args;
}

AttentionArgs read_attention(Arguments& in) {
  AttentionArgs args = read_attention_inputs(in);
  const auto [batch, heads, kv_heads, queries, keys, depth, value_depth] = args.shape;
  args.y_dtype = read_float_type(in, "yDtype");
  check(args.y_dtype == FloatType::kF32 || extent(args.y_strides, batch, heads, queries, value_depth) ==
                                               elements(batch, heads, queries, value_depth),
        "y in 16 bits has no gaps");
  args.y =
      in.output("y", dtype_of(args.y_dtype), touched(args.y_strides, batch, heads, queries, value_depth));
  args.log_sum = in.optional_output<float>("logSum", elements(batch, heads, queries));
  return args;
}

AttentionBackwardArgs read_attention_backward(Arguments& in) {
  AttentionBackwardArgs args{};
  AttentionArgs& forward = args.forward = read_attention_inputs(in);
  const auto [batch, heads, kv_heads, queries, keys, depth, value_depth] = forward.shape;
  const int64_t outputs = extent(forward.y_strides, batch, heads, queries, value_depth);
  forward.y = const_cast<float*>(in.input<float>("y", outputs));
  forward.log_sum = const_cast<float*>(in.input<float>("logSum", elements(batch, heads, queries)));
  args.dy = in.input<float>("dy", outputs);
  args.dq = in.optional_output<float>("dq", touched(forward.q_strides, batch, heads, queries, depth));
  args.dk = in.optional_output<float>("dk", touched(forward.k_strides, batch, kv_heads, keys, depth));
  args.dv = in.optional_output<float>("dv", touched(forward.v_strides, batch, kv_heads, keys, value_depth));
  return args;
}

PagedAttentionArgs read_paged_attention(Arguments& in) {
  PagedAttentionArgs args{};
  const auto [tokens, sequences, heads, kv_heads, depth, rotary, blocks, block_size, table] = args.shape =
      read_paged_shape(in);
  args.scale = in.number("scale");
  args.softcap = in.optional_number("softcap", 0);
  args.epsilon = in.optional_number("epsilon", 0);
  args.window = static_cast<int64_t>(in.optional_number("window", 0));
  args.interleaved = in.flag("interleaved");
  args.query = in.input<float>("query", elements(tokens, heads, depth));
  args.key = in.input<float>("key", elements(tokens, kv_heads, depth));
  args.value = in.input<float>("value", elements(tokens, kv_heads, depth));
  args.query_norm = in.optional_input<float>("queryNorm", depth);
  args.key_norm = in.optional_input<float>("keyNorm", depth);
  if (rotary > 0) {
    args.cos = in.input<float>("cos", elements(tokens, rotary / 2));
    args.sin = in.input<float>("sin", elements(tokens, rotary / 2));
  }
  args.sinks = in.optional_input<float>("sinks", heads);
  args.starts = in.input<int32_t>("starts", sequences + 1);
  args.past = in.input<int32_t>("past", sequences);
  args.block = in.input<int32_t>("block", elements(sequences, table));
  args.slots = in.optional_input<int32_t>("slots", tokens);
  constexpr DType kCacheTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kI8};
  args.cache_dtype = kCacheTypes[in.choice<int>("cacheDtype", {"f32", "f16", "bf16", "f8_e4m3", "i8"})];
  const int64_t heads_cached = elements(blocks, block_size, kv_heads), cached = elements(heads_cached, depth);
  args.key_cache = in.update("keyCache", args.cache_dtype, cached);
  args.value_cache = in.update("valueCache", args.cache_dtype, cached);
  if (args.cache_dtype == DType::kI8) {
    args.key_scales = in.update<float>("keyScales", heads_cached);
    args.value_scales = in.update<float>("valueScales", heads_cached);
  }
  const int64_t results = elements(tokens, heads, depth);
  args.y_dtype = read_float_type(in, "yDtype");
  if (in.has("yRounded")) {
    expect_rounded_rows(in, "yRounded", heads * depth);
    args.y_scale = read_tensor_scale(in, "yScale");
    check(args.y_scale != 0 && args.y_dtype == FloatType::kF32, "yRounded is for a yScale and y in f32");
    args.y_rounded = static_cast<uint16_t*>(in.output("yRounded", DType::kBF16, results));
    args.y = in.optional_output<float>("y", results);
  } else {
    args.y = in.output("y", dtype_of(args.y_dtype), results);
  }
  args.compute = in.choice<Compute>("compute", {"f32", "bf16", "f16"});
  return args;
}

RotaryArgs read_rotary(Arguments& in) {
  RotaryArgs args{};
  args.batch = in.size("batch");
  args.tokens = in.size("tokens");
  args.heads = in.size("heads");
  args.depth = in.size("depth");
  args.rotary = in.size("rotary");
  check(args.rotary % 2 == 0 && args.rotary <= args.depth, "rotary must be even and at most depth");
  args.interleaved = in.flag("interleaved");
  args.heads_first = in.flag("headsFirst");
  const int64_t rows = elements(args.batch, args.tokens), width = elements(args.heads, args.depth);
  args.x = in.input<float>("x", elements(rows, width));
  args.cos = in.input<float>("cos", elements(rows, args.rotary / 2));
  args.sin = in.input<float>("sin", elements(rows, args.rotary / 2));
  args.y = in.output<float>("y", elements(rows, width));
  return args;
}

SoftmaxCrossEntropyArgs read_softmax_cross_entropy(Arguments& in) {
  SoftmaxCrossEntropyArgs args{};
  args.tokens = in.size("tokens");
  args.classes = in.size("classes");
  args.logits = in.input<float>("logits", elements(args.tokens, args.classes));
  args.labels = in.input<int32_t>("labels", args.tokens);
  args.loss = in.output<float>("loss", 1);
  args.dlogits = in.optional_output<float>("dlogits", elements(args.tokens, args.classes));
  if (in.placed()) expect_labels(in.values<int32_t>("labels", args.tokens), args.tokens, args.classes);
  return args;
}

AdamwArgs read_adamw(Arguments& in) {
  AdamwArgs args{};
  args.step = in.scalar("step");
  args.lr = in.scalar("lr");
  args.beta1 = in.number("beta1");
  args.beta2 = in.number("beta2");
  args.eps = in.number("eps");
  args.weight_decay = in.number("weightDecay");
  args.tensor_count = in.each("tensors", kMaxAdamwTensors, [&](int64_t i) {
    const int64_t count = in.size("count");
    args.tensors[i] = {count, in.input<float>("grad", count), in.update<float>("param", count),
                       in.update<float>("m", count), in.update<float>("v", count)};
  });
  return args;
}

}  // namespace spark::napi
