// dora_readers.cc: argument readers of the DoRA operations.
#include "backend/labels.h"
#include "core/error.h"
#include "napi/readers/readers.h"

namespace spark::napi {

WeightNorm2Args read_weight_norm2(Arguments& in) {
  WeightNorm2Args args{};
  args.weight = in.weight("weight");
  args.out = in.output<float>("out", args.weight.rows);
  return args;
}

DoraNormArgs read_dora_norm(Arguments& in) {
  DoraNormArgs args{};
  args.weight = in.weight("weight");
  args.low_rank = in.low_rank(args.weight.rows, args.weight.cols);
  args.weight_norm2 = in.input<float>("weightNorm2", args.weight.rows);
  args.magnitude = in.input<float>("magnitude", args.weight.rows);
  args.norm = in.output<float>("norm", args.weight.rows);
  args.gain = in.output<float>("gain", args.weight.rows);
  return args;
}

DoraForwardArgs read_dora_forward(Arguments& in) {
  DoraForwardArgs args{};
  args.weight = in.weight("weight");
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  args.low_rank = in.low_rank(rows, cols);
  args.tokens = in.size("tokens");
  args.x = in.input<float>("x", elements(args.tokens, cols));
  args.gain = in.input<float>("gain", rows);
  args.bias = in.optional_input<float>("bias", rows);
  args.mask = in.optional_input<float>("mask", elements(args.tokens, cols));
  args.xa = in.output<float>("xa", elements(args.tokens, args.low_rank.rank));
  args.z = in.optional_output<float>("z", elements(args.tokens, rows));
  args.y = in.output<float>("y", elements(args.tokens, rows));
  args.compute = in.compute("compute", args.weight);
  if (args.compute == Compute::kNVFP4 && args.mask) {
    throw Error("ERR_UNSUPPORTED", "compute nvfp4 has no dropout: leave the mask out, or use bf16");
  }
  return args;
}

DoraMixedArgs read_dora_mixed(Arguments& in) {
  DoraMixedArgs args{};
  args.weight = in.weight("weight");
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  args.tokens = in.size("tokens");
  args.x = in.input<float>("x", elements(args.tokens, cols));
  args.count = in.each("adapters", kMaxMixedAdapters, [&](int64_t i) {
    args.adapters[i] = {in.low_rank(rows, cols), in.input<float>("gain", rows)};
  });
  args.index = in.input<int32_t>("index", args.tokens);
  if (in.placed()) {
    const int32_t* index = in.values<int32_t>("index", args.tokens);
    for (int64_t t = 0; t < args.tokens; ++t) expect_adapter(index, t, args.count);
  }
  args.bias = in.optional_input<float>("bias", rows);
  args.y = in.output<float>("y", elements(args.tokens, rows));
  return args;
}

DoraBackwardArgs read_dora_backward(Arguments& in) {
  DoraBackwardArgs args{};
  args.weight = in.weight("weight");
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  args.low_rank = in.low_rank(rows, cols);
  args.tokens = in.size("tokens");
  args.exact_norm = in.flag("exactNorm");
  args.x = in.input<float>("x", elements(args.tokens, cols));
  args.mask = in.optional_input<float>("mask", elements(args.tokens, cols));
  args.dy = in.input<float>("dy", elements(args.tokens, rows));
  args.xa = in.input<float>("xa", elements(args.tokens, args.low_rank.rank));
  args.z = in.input<float>("z", elements(args.tokens, rows));
  args.norm = in.input<float>("norm", rows);
  args.gain = in.input<float>("gain", rows);
  args.magnitude = in.input<float>("magnitude", rows);
  args.dx = in.optional_output<float>("dx", elements(args.tokens, cols));
  args.da = in.output<float>("da", elements(args.low_rank.rank, cols));
  args.db = in.output<float>("db", elements(rows, args.low_rank.rank));
  args.dmagnitude = in.output<float>("dmagnitude", rows);
  args.dbias = in.optional_output<float>("dbias", rows);
  args.compute = in.plain_compute("compute", args.weight);
  return args;
}

DoraMergeArgs read_dora_merge(Arguments& in) {
  DoraMergeArgs args{};
  args.weight = in.weight("weight");
  args.low_rank = in.low_rank(args.weight.rows, args.weight.cols);
  args.gain = in.input<float>("gain", args.weight.rows);
  args.merged = in.output<float>("merged", elements(args.weight.rows, args.weight.cols));
  return args;
}

DoraMergeBackwardArgs read_dora_merge_backward(Arguments& in) {
  DoraMergeBackwardArgs args{};
  args.weight = in.weight("weight");
  const int64_t rows = args.weight.rows, cols = args.weight.cols;
  args.low_rank = in.low_rank(rows, cols);
  args.exact_norm = in.flag("exactNorm");
  args.dmerged = in.input<float>("dmerged", elements(rows, cols));
  args.norm = in.input<float>("norm", rows);
  args.gain = in.input<float>("gain", rows);
  args.dv = in.output<float>("dv", elements(rows, cols));
  args.da = in.output<float>("da", elements(args.low_rank.rank, cols));
  args.db = in.output<float>("db", elements(rows, args.low_rank.rank));
  args.dmagnitude = in.output<float>("dmagnitude", rows);
  return args;
}

DoraUnmergeArgs read_dora_unmerge(Arguments& in) {
  DoraUnmergeArgs args{};
  args.rows = in.size("rows");
  args.cols = in.size("cols");
  args.low_rank = in.low_rank(args.rows, args.cols);
  args.merged = in.input<float>("merged", elements(args.rows, args.cols));
  args.gain = in.input<float>("gain", args.rows);
  args.restored = in.output<float>("restored", elements(args.rows, args.cols));
  return args;
}

}  // namespace spark::napi
