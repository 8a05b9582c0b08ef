// recurrent.cc: RNN, GRU and LSTM layers, a few samples per task.
#include <algorithm>

#include "backend/cpu/cpu.h"
#include "backend/cpu/grain.h"
#include "backend/cpu/scratch.h"
#include "backend/cpu/simd/cpu_kernels.h"
#include "backend/recurrent_units.h"
#include "core/thread_pool.h"

namespace spark::cpu {
namespace {

constexpr int64_t kGrainTerms = 1 << 17;  // products worth waking a thread for

// Samples of one direction that go through the steps together: a weight is read once for several of them.
struct Run {
  const RecurrentArgs& args;
  const RecurrentKernels& loops;
  const float* panels;  // R of the direction
  RecurrentSample first;
  int64_t samples;
};

// The sums of the gates [begin, end) from a state of all samples.
void add_states(const Run& run, const float* state, int64_t begin, int64_t end) {
  const RecurrentArgs& args = run.args;
  const int64_t hidden = args.hidden, width = gate_count(args.cell) * hidden, d = run.first.direction;
  run.loops.product({run.samples, hidden, begin * hidden, end * hidden, width, state, run.panels,
                     args.bias ? args.bias + d * width : nullptr, run.first.gates});
}

// Calls body(sample, units) for each sample that takes step t.
template <typename Body>
void for_samples(const Run& run, int64_t t, const Body& body) {
  const RecurrentArgs& args = run.args;
  const Function* functions = args.functions + run.first.direction * function_count(args.cell);
  for (int64_t i = 0; i < run.samples; ++i) {
    const RecurrentSample at = sample_of(args, run.first.direction, run.first.index + i);
    if (t >= at.length) continue;
    body(at, RecurrentUnits{args.hidden, inputs_of(args, at, step_of(args, at, t)), at.gates, functions,
                            static_cast<float>(args.clip), at.h});
  }
}

void rnn_step(const Run& run, int64_t t) {
  add_states(run, run.first.h, 0, 1);
  for_samples(run, t, [&](const RecurrentSample&, const RecurrentUnits& units) { run.loops.rnn(units); });
}

void gru_step(const Run& run, int64_t t) {
  const bool after = run.args.linear_before_reset;
  add_states(run, run.first.h, 0, after ? 3 : 2);
  for_samples(run, t, [&](const RecurrentSample& at, const RecurrentUnits& units) {
    run.loops.gru_gates(units, at.reset);
  });
  if (!after) add_states(run, run.first.reset, 2, 3);
  for_samples(run, t,
              [&](const RecurrentSample&, const RecurrentUnits& units) { run.loops.gru(units, after); });
}

void lstm_step(const Run& run, int64_t t) {
  const RecurrentArgs& args = run.args;
  const int64_t weights = run.first.direction * 3 * args.hidden;
  const float* peepholes = args.peepholes ? args.peepholes + weights : nullptr;
  add_states(run, run.first.h, 0, 4);
  for_samples(run, t, [&](const RecurrentSample& at, const RecurrentUnits& units) {
    run.loops.lstm(units, args.couple_gates, peepholes, at.c);
  });
}

void start(const float* from, int64_t first, int64_t count, float* to) {
  if (from) {
    std::copy_n(from + first, count, to);
  } else {
    std::fill_n(to, count, 0.0f);
  }
}

void run_samples(const Run& run) {
  const RecurrentArgs& args = run.args;
  const int64_t hidden = args.hidden, count = run.samples * hidden;
  const int64_t first = (run.first.direction * args.batch + run.first.index) * hidden;
  start(args.initial_h, first, count, run.first.h);
  if (run.first.c) start(args.initial_c, first, count, run.first.c);
  for (int64_t t = 0; t < args.steps; ++t) {
    if (args.cell == RecurrentCell::kRnn) rnn_step(run, t);
    if (args.cell == RecurrentCell::kGru) gru_step(run, t);
    if (args.cell == RecurrentCell::kLstm) lstm_step(run, t);
    for (int64_t i = 0; args.y && i < run.samples; ++i) {
      const RecurrentSample at = sample_of(args, run.first.direction, run.first.index + i);
      float* y = result_of(args, at, step_of(args, at, t));
      start(t < at.length ? at.h : nullptr, 0, hidden, y);
    }
  }
}

// Elements of the panels of a direction.
int64_t panels_size(const RecurrentArgs& args) {
  const int64_t width = gate_count(args.cell) * args.hidden;
  return (width + kPanelRows - 1) / kPanelRows * kPanelRows * args.hidden;
}

// Rᵀ in panels.
void pack_panels(const RecurrentArgs& args, const float* from, float* to) {
  const int64_t width = gate_count(args.cell) * args.hidden;
  for (int64_t first = 0; first < width; first += kPanelRows) {
    const int64_t count = std::min(kPanelRows, width - first);
    for (int64_t k = 0; k < args.hidden; ++k, to += kPanelRows) {
      std::copy_n(from + k * width + first, count, to);
      std::fill(to + count, to + kPanelRows, 0.0f);
    }
  }
}

void run_directions(const RecurrentArgs& args, const float* panels) {
  const int64_t terms = args.steps * gate_count(args.cell) * args.hidden * args.hidden;
  const int64_t samples = args.directions * args.batch;
  // Each thread takes as many samples as it can: they share what is read of the weights.
  const int64_t share = (samples + thread_count() - 1) / thread_count();
  const int64_t grain = std::max(share, grain_for(terms, kGrainTerms));
  const RecurrentKernels& loops = kernels().recurrent;
  parallel_for(samples, grain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      const int64_t direction = at / args.batch, first = at % args.batch;
      const int64_t count = std::min(end - at, args.batch - first);
      run_samples(
          {args, loops, panels + direction * panels_size(args), sample_of(args, direction, first), count});
      at += count;
    }
  });
}

}  // namespace

void recurrent(const RecurrentArgs& args) {
  if (args.packed) return run_directions(args, args.recurrence);
  const int64_t size = panels_size(args), rows = gate_count(args.cell) * args.hidden;
  const Scratch panels(args.directions * size);
  for (int64_t d = 0; d < args.directions; ++d) {
    pack_panels(args, args.recurrence + d * args.hidden * rows, panels.data() + d * size);
  }
  run_directions(args, panels.data());
}

}  // namespace spark::cpu
