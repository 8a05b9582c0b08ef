#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu.h"
#include "backend/cpu/functions.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

// The state of one sample between two steps, and room for its gates.
struct Sample {
  float* h;
  float* c;        // LSTM
  float* gates;    // [gates · hidden]
  float* product;  // [hidden]
};

// y[j] += Σ_k h[k] · weight[k, begin + j] for j < count
void add_product(const RecurrentArgs& args, const float* h, int64_t begin, int64_t count, float* y) {
  const int64_t stride = gate_count(args.cell) * args.hidden;
  for (int64_t k = 0; k < args.hidden; ++k) {
    const float* weight = args.recurrence + k * stride + begin;
    for (int64_t j = 0; j < count; ++j) y[j] += h[k] * weight[j];
  }
}

void activate(const RecurrentArgs& args, int function, float* x) {
  if (std::isfinite(args.clip)) {
    const float clip = static_cast<float>(args.clip);
    for (int64_t j = 0; j < args.hidden; ++j) x[j] = std::clamp(x[j], -clip, clip);
  }
  apply(args.functions[function], x, args.hidden);
}

// gates = x + bias + h · Rᵀ over the gates [0, count)
void add_state(const RecurrentArgs& args, const Sample& at, const float* x, int64_t count) {
  for (int64_t j = 0; j < count; ++j) at.gates[j] = x[j] + (args.bias ? args.bias[j] : 0);
  add_product(args, at.h, 0, count, at.gates);
}

void rnn_step(const RecurrentArgs& args, const Sample& at, const float* x) {
  add_state(args, at, x, args.hidden);
  activate(args, 0, at.gates);
  std::copy_n(at.gates, args.hidden, at.h);
}

void gru_step(const RecurrentArgs& args, const Sample& at, const float* x) {
  const int64_t hidden = args.hidden;
  float *z = at.gates, *r = z + hidden, *candidate = r + hidden;
  add_state(args, at, x, 2 * hidden);
  activate(args, 0, z);
  activate(args, 0, r);
  for (int64_t j = 0; j < hidden; ++j) {
    at.product[j] = args.linear_before_reset ? at.h[j] : r[j] * at.h[j];
    candidate[j] = args.bias ? args.bias[2 * hidden + j] : 0;
  }
  add_product(args, at.product, 2 * hidden, hidden, candidate);
  for (int64_t j = 0; j < hidden; ++j) {
    candidate[j] = x[2 * hidden + j] + (args.linear_before_reset ? r[j] * candidate[j] : candidate[j]);
  }
  activate(args, 1, candidate);
  for (int64_t j = 0; j < hidden; ++j) at.h[j] = (1 - z[j]) * candidate[j] + z[j] * at.h[j];
}

void add_peephole(const RecurrentArgs& args, int64_t n, const float* c, float* gate) {
  if (!args.peepholes) return;
  for (int64_t j = 0; j < args.hidden; ++j) gate[j] += args.peepholes[n * args.hidden + j] * c[j];
}

void lstm_step(const RecurrentArgs& args, const Sample& at, const float* x) {
  const int64_t hidden = args.hidden;
  float *i = at.gates, *o = i + hidden, *f = o + hidden, *candidate = f + hidden;
  add_state(args, at, x, 4 * hidden);
  add_peephole(args, 0, at.c, i);
  add_peephole(args, 2, at.c, f);
  activate(args, 0, i);
  activate(args, 0, f);
  activate(args, 1, candidate);
  for (int64_t j = 0; j < hidden; ++j) {
    at.c[j] = (args.couple_gates ? 1 - i[j] : f[j]) * at.c[j] + i[j] * candidate[j];
    at.product[j] = at.c[j];
  }
  add_peephole(args, 1, at.c, o);
  activate(args, 0, o);
  apply(args.functions[2], at.product, hidden);
  for (int64_t j = 0; j < hidden; ++j) at.h[j] = o[j] * at.product[j];
}

void run_sample(const RecurrentArgs& args, int64_t n) {
  const int64_t hidden = args.hidden, width = gate_count(args.cell) * hidden;
  float* scratch = args.scratch + n * (width + hidden);
  const Sample at{args.last_h + n * hidden, args.last_c ? args.last_c + n * hidden : nullptr, scratch,
                  scratch + width};
  const auto start = [&](const float* from, float* to) {
    if (from)
      std::copy_n(from + n * hidden, hidden, to);
    else
      std::fill_n(to, hidden, 0.0f);
  };
  start(args.initial_h, at.h);
  if (at.c) start(args.initial_c, at.c);
  const int64_t given = args.lengths ? args.lengths[n] : args.steps;
  const int64_t length = std::clamp<int64_t>(given, 0, args.steps);
  for (int64_t t = 0; t < args.steps; ++t) {
    const int64_t step = args.reverse && t < length ? length - 1 - t : t;
    if (t < length) {
      const float* x = args.gates + (step * args.batch + n) * width;
      if (args.cell == RecurrentCell::kRnn) rnn_step(args, at, x);
      if (args.cell == RecurrentCell::kGru) gru_step(args, at, x);
      if (args.cell == RecurrentCell::kLstm) lstm_step(args, at, x);
    }
    if (!args.y) continue;
    float* y = args.y + step * args.y_step + n * hidden;
    if (t < length)
      std::copy_n(at.h, hidden, y);
    else
      std::fill_n(y, hidden, 0.0f);
  }
}

}  // namespace

void recurrent(const RecurrentArgs& args) {
  parallel_for(args.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) run_sample(args, n);
  });
}

}  // namespace spark::cpu
