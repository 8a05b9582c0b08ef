// sampling.cc: bindings of the token sampler.
#include "napi/sampling.h"

#include <memory>
#include <vector>

#include "core/thread_pool.h"
#include "core/token_sampler.h"
#include "napi/arguments.h"
#include "napi/job.h"

namespace spark::napi {
namespace {

constexpr int64_t kMostRows = 1 << 16;

SamplerRow read_row(Arguments& in) {
  SamplerRow row{};
  row.temperature = in.number("temperature");
  row.top_k = in.size("topK");
  row.top_p = in.number("topP");
  row.min_p = in.number("minP");
  row.typical_p = in.number("typicalP");
  row.repetition_penalty = in.number("repetitionPenalty");
  row.presence_penalty = in.number("presencePenalty");
  row.frequency_penalty = in.number("frequencyPenalty");
  row.uniform = in.number("uniform");
  row.seen_count = in.size("seenCount");
  row.seen = in.input<int32_t>("seen", row.seen_count);
  row.counted_count = in.size("countedCount");
  row.counted = in.input<int32_t>("counted", row.counted_count);
  row.counts = in.input<int32_t>("counts", row.counted_count);
  row.biased_count = in.size("biasedCount");
  row.biased = in.input<int32_t>("biased", row.biased_count);
  row.biases = in.input<double>("biases", row.biased_count);
  row.id = in.output<int32_t>("id", 1);
  row.logprob = in.optional_output<double>("logprob", 1);
  row.top_count = row.logprob ? in.size("topCount") : 0;
  row.top = in.optional_output<int32_t>("top", row.top_count);
  row.top_logprobs = in.optional_output<double>("topLogprobs", row.top_count);
  return row;
}

}  // namespace

Napi::Value sample_tokens(const Napi::CallbackInfo& info) {
  const auto copies = std::make_shared<Copies>();
  Arguments in(info[0].As<Napi::Object>(), {}, copies.get());
  const int64_t vocabulary = in.size("vocabulary");
  std::vector<SamplerRow> rows;
  in.each("rows", kMostRows, [&](int64_t) { rows.push_back(read_row(in)); });
  const float* logits = in.input<float>("logits", elements(rows.size(), vocabulary));
  const auto work = [logits, vocabulary, rows = std::move(rows), blocks = in.take_blocks()] {
    parallel_for(rows.size(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sample_token(logits + i * vocabulary, vocabulary, rows[i]);
    });
  };
  return start_job(info.Env(), work, in.take_references(), [copies](Napi::Env env) {
    copies->write_back();
    return env.Undefined();
  });
}

}  // namespace spark::napi
