// token_sampler.h: chooses the next token of a sequence from logits, with the steps of lib/text/sampler.ts in
// f64.
#pragma once

#include <cstdint>

namespace spark {

// How a row is sampled; the options of SamplingOptions. A token id beyond the vocabulary is passed over.
struct SamplerRow {
  double temperature;  // 0: the most likely token
  int64_t top_k;       // 0: all
  double top_p, min_p, typical_p;
  double repetition_penalty, presence_penalty, frequency_penalty;
  double uniform;  // the random number in [0, 1) that decides

  const int32_t* seen;  // [seen_count], distinct tokens of the prompt and of the text
  int64_t seen_count;
  const int32_t* counted;  // [counted_count], distinct tokens of the text
  const int32_t* counts;   // [counted_count], how often each is there
  int64_t counted_count;
  const int32_t* biased;  // [biased_count]
  const double* biases;   // [biased_count]
  int64_t biased_count;

  // Outputs: the token, or -1 where a logit is NaN or ∞ or all are -∞; its log probability by the logits as
  // given; the likeliest tokens with theirs, [top_count], -1 beyond the vocabulary.
  int32_t* id;
  double* logprob;  // null: not wanted
  int32_t* top;
  double* top_logprobs;
  int64_t top_count;
};

// One row of logits, [vocabulary].
void sample_token(const float* logits, int64_t vocabulary, const SamplerRow& row);

}  // namespace spark
