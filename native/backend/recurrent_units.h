// recurrent_units.h: the memory layout of states and gates of a recurrent layer, and its cells. One source
// for the CPU and CUDA. F is float or a vector of floats (backend/cpu/simd/vector_math.h).
#pragma once

#include "backend/float_functions.h"
#include "backend/layer_args.h"

namespace spark {

// A sample of a direction: its state between two steps, and room for a step. Those of the next sample lie
// behind each of them.
struct RecurrentSample {
  int64_t direction, index, length;
  float* h;      // [hidden]
  float* c;      // LSTM: [hidden]
  float* gates;  // [gates · hidden]
  float* reset;  // GRU: [hidden]
};

SPARK_HOST_DEVICE inline RecurrentSample sample_of(const RecurrentArgs& args, int64_t direction, int64_t n) {
  const int64_t hidden = args.hidden, width = gate_count(args.cell) * hidden;
  const int64_t at = direction * args.batch + n, samples = args.directions * args.batch;
  const int64_t given = args.lengths ? args.lengths[n] : args.steps;
  return {direction,
          n,
          given < 0            ? 0
          : given > args.steps ? args.steps
                               : given,
          args.last_h + at * hidden,
          args.last_c ? args.last_c + at * hidden : nullptr,
          args.scratch + at * width,
          args.scratch + samples * width + at * hidden};
}

// The step that a sample takes as number t.
SPARK_HOST_DEVICE inline int64_t step_of(const RecurrentArgs& args, const RecurrentSample& at, int64_t t) {
  const bool backwards = args.reverse || at.direction == 1;
  return backwards && t < at.length ? at.length - 1 - t : t;
}

// x · Wᵀ + bias of a step: [gates · hidden]
SPARK_HOST_DEVICE inline const float* inputs_of(const RecurrentArgs& args, const RecurrentSample& at,
                                                int64_t step) {
  const int64_t width = gate_count(args.cell) * args.hidden;
  return args.gates + ((step * args.batch + at.index) * args.directions + at.direction) * width;
}

SPARK_HOST_DEVICE inline float* result_of(const RecurrentArgs& args, const RecurrentSample& at,
                                          int64_t step) {
  return args.y + ((step * args.directions + at.direction) * args.batch + at.index) * args.hidden;
}

template <typename F>
SPARK_HOST_DEVICE inline F clipped(F x, float clip) {
  x = x < -clip ? f32::splat<F>(-clip) : x;  // a NaN stays
  return x > clip ? f32::splat<F>(clip) : x;
}

// gate[n] is what a function takes of gate n, peephole[n] what c weighs in gates 0, 1 and 2. function(i, x)
// is function i of the layer. Changes c and gives h.
template <typename F, typename Functions>
SPARK_HOST_DEVICE inline F lstm_unit(const Functions& function, float clip, bool couple_gates,
                                     const F (&gate)[4], const F* peephole, F& c) {
  const auto open = [&](int n, F state) {
    return function(0, clipped(peephole ? gate[n] + peephole[n] * state : gate[n], clip));
  };
  const F input = open(0, c);
  const F forget = couple_gates ? 1 - input : open(2, c);
  c = forget * c + input * function(1, clipped(gate[3], clip));
  return open(1, c) * function(2, c);
}

}  // namespace spark
