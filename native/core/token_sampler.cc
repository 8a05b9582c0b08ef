// token_sampler.cc: penalties, filters and draws of tokens. Sums are formed in the order of ids, as in
// lib/text/sampling-filters.ts; tokens that are excluded have no candidate.
#include "core/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

namespace spark {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kExcluded = -std::numeric_limits<double>::infinity();

struct Candidate {
  int32_t id;
  double logit;
};
using Candidates = std::vector<Candidate>;  // by rising ids

// Whether no logit is NaN or ∞ and one is finite.
bool is_usable(const float* logits, int64_t count) {
  bool wrong = false, any = false;
  for (int64_t id = 0; id < count; ++id) {
    wrong |= !(logits[id] <= std::numeric_limits<float>::max());
    any |= logits[id] >= std::numeric_limits<float>::lowest();
  }
  return !wrong && any;
}

bool changes_logits(const SamplerRow& row) {
  const bool repeats = row.repetition_penalty != 1 && row.seen_count > 0;
  const bool counts = (row.presence_penalty != 0 || row.frequency_penalty != 0) && row.counted_count > 0;
  return repeats || counts || row.biased_count > 0;
}

void penalize(const SamplerRow& row, std::vector<double>& logits) {
  const int64_t vocabulary = static_cast<int64_t>(logits.size());
  const auto inside = [&](int32_t id) { return id >= 0 && id < vocabulary; };
  for (int64_t i = 0; row.repetition_penalty != 1 && i < row.seen_count; ++i) {
    if (!inside(row.seen[i])) continue;
    double& logit = logits[row.seen[i]];
    logit = logit < 0 ? logit * row.repetition_penalty : logit / row.repetition_penalty;
  }
  for (int64_t i = 0; i < row.counted_count; ++i) {
    if (!inside(row.counted[i])) continue;
    logits[row.counted[i]] -= row.presence_penalty + row.frequency_penalty * row.counts[i];
  }
  for (int64_t i = 0; i < row.biased_count; ++i) {
    if (inside(row.biased[i])) logits[row.biased[i]] += row.biases[i];
  }
}

double max_logit(const Candidates& candidates) {
  double max = kExcluded;
  for (const Candidate& candidate : candidates) max = std::max(max, candidate.logit);
  return max;
}

std::vector<double> softmax(const Candidates& candidates) {
  const double max = max_logit(candidates);
  std::vector<double> weights(candidates.size());
  double sum = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    weights[i] = std::exp(candidates[i].logit - max);
    sum += weights[i];
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

template <typename Keep>
void keep_if(Candidates& candidates, const Keep& keep) {
  size_t kept = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (keep(i)) candidates[kept++] = candidates[i];
  }
  candidates.resize(kept);
}

// The `count`-th largest value; there are more.
template <typename Value>
double nth_largest(int64_t length, int64_t count, const Value& value) {
  std::vector<double> heap;  // its first element is the least of the largest ones so far
  heap.reserve(count);
  for (int64_t i = 0; i < length; ++i) {
    const double one = value(i);
    if (static_cast<int64_t>(heap.size()) < count) {
      heap.push_back(one);
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    } else if (one > heap.front()) {
      std::pop_heap(heap.begin(), heap.end(), std::greater<>());
      heap.back() = one;
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  return heap.front();
}

void keep_top_k(Candidates& candidates, int64_t count) {
  const int64_t length = static_cast<int64_t>(candidates.size());
  if (count >= length) return;
  const double threshold = nth_largest(length, count, [&](int64_t i) { return candidates[i].logit; });
  keep_if(candidates, [&](size_t i) { return candidates[i].logit >= threshold; });
}

// Elements that are large enough to be among the first to have `mass` together, whatever sums round to: all
// others have less than half of what is beyond it.
std::vector<double> large_ones(const std::vector<double>& probabilities, double mass) {
  const double least = mass > 1 - 1e-6 ? 0 : (1 - mass) / 2 / static_cast<double>(probabilities.size());
  std::vector<double> large;
  for (double probability : probabilities) {
    if (probability >= least) large.push_back(probability);
  }
  return large;
}

void keep_top_p(Candidates& candidates, double mass) {
  constexpr size_t kFirstSorted = 256;
  const std::vector<double> probabilities = softmax(candidates);
  std::vector<double> large = large_ones(probabilities, mass);
  size_t sorted = 0, kept = 0;
  double above = 0;
  while (kept < large.size() && (kept == 0 || above < mass)) {
    if (kept == sorted) {
      const auto from = large.begin() + static_cast<int64_t>(sorted);
      sorted = std::min(large.size(), std::max(kFirstSorted, 8 * sorted));
      const auto to = large.begin() + static_cast<int64_t>(sorted);
      if (to != large.end()) std::nth_element(from, to, large.end(), std::greater<>());
      std::sort(from, to, std::greater<>());
    }
    above += large[kept++];
  }
  const double threshold = large[kept - 1];
  int64_t equal = 0;
  for (size_t i = kept; i > 0 && large[i - 1] == threshold; --i) ++equal;
  keep_if(candidates, [&](size_t i) {
    return probabilities[i] == threshold ? equal-- > 0 : probabilities[i] > threshold;
  });
}

void keep_min_p(Candidates& candidates, double fraction) {
  const double threshold = max_logit(candidates) + std::log(fraction);
  keep_if(candidates, [&](size_t i) { return candidates[i].logit >= threshold; });
}

void keep_typical(Candidates& candidates, double mass) {
  const std::vector<double> probabilities = softmax(candidates);
  std::vector<double> distances(candidates.size());
  double entropy = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    distances[i] = -std::log(probabilities[i]);
    if (probabilities[i] > 0) entropy += probabilities[i] * distances[i];
  }
  for (double& distance : distances) distance = std::fabs(distance - entropy);
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return distances[a] < distances[b]; });
  double sum = 0;
  size_t last = 0;
  for (; last + 1 < order.size(); ++last) {
    sum += probabilities[order[last]];
    if (sum >= mass) break;
  }
  const double threshold = distances[order[last]];
  keep_if(candidates, [&](size_t i) { return distances[i] <= threshold; });
}

// The first token, in the order of ids, at which the sum of probabilities is above `uniform`.
int32_t draw(const Candidates& candidates, double uniform) {
  const std::vector<double> probabilities = softmax(candidates);
  double sum = 0;
  int32_t last = candidates.front().id;
  for (size_t i = 0; i < candidates.size() && sum <= uniform; ++i) {
    if (probabilities[i] == 0) continue;
    sum += probabilities[i];
    last = candidates[i].id;
  }
  return last;
}

template <typename Number>
Candidates candidates_of(const Number* logits, int64_t count, double temperature) {
  Candidates candidates;
  candidates.reserve(count);
  for (int64_t id = 0; id < count; ++id) {
    const double logit = logits[id];
    if (logit == kExcluded) continue;
    candidates.push_back({static_cast<int32_t>(id), std::clamp(logit / temperature, -kLargest, kLargest)});
  }
  return candidates;
}

template <typename Number>
int32_t choose(const Number* logits, int64_t count, const SamplerRow& row) {
  if (row.temperature == 0) {
    const int64_t best = std::max_element(logits, logits + count) - logits;
    return logits[best] == kExcluded ? -1 : static_cast<int32_t>(best);
  }
  Candidates candidates = candidates_of(logits, count, row.temperature);
  if (candidates.empty()) return -1;
  if (row.top_k > 0) keep_top_k(candidates, row.top_k);
  if (row.top_p < 1) keep_top_p(candidates, row.top_p);
  if (row.min_p > 0) keep_min_p(candidates, row.min_p);
  if (row.typical_p < 1) keep_typical(candidates, row.typical_p);
  return draw(candidates, row.uniform);
}

void log_probabilities(const float* logits, int64_t count, const SamplerRow& row) {
  const double max = *std::max_element(logits, logits + count);
  double sum = 0;
  for (int64_t id = 0; id < count; ++id) sum += std::exp(logits[id] - max);
  const double log_sum = max + std::log(sum);
  *row.logprob = logits[*row.id] - log_sum;
  std::fill_n(row.top, row.top_count, -1);
  const int64_t wanted = std::min(row.top_count, count);
  if (wanted == 0) return;
  const double threshold = nth_largest(count, wanted, [&](int64_t id) { return logits[id]; });
  std::vector<int32_t> top;
  for (int64_t id = 0; id < count; ++id) {
    if (logits[id] >= threshold) top.push_back(static_cast<int32_t>(id));
  }
  std::stable_sort(top.begin(), top.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  for (int64_t i = 0; i < wanted; ++i) {
    row.top[i] = top[i];
    row.top_logprobs[i] = logits[top[i]] - log_sum;
  }
}

}  // namespace

void sample_token(const float* logits, int64_t vocabulary, const SamplerRow& row) {
  *row.id = -1;
  if (!is_usable(logits, vocabulary)) return;
  if (changes_logits(row)) {
    std::vector<double> changed(logits, logits + vocabulary);
    penalize(row, changed);
    *row.id = choose(changed.data(), vocabulary, row);
  } else {
    *row.id = choose(logits, vocabulary, row);
  }
  if (row.logprob && *row.id >= 0) log_probabilities(logits, vocabulary, row);
}

}  // namespace spark
