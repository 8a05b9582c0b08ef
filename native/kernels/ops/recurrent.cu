// recurrent.cu: RNN, GRU or LSTM as ONNX defines them. A block takes a sample of a direction through steps
// [begin, end), its threads share the units; the state lies in last_h and last_c meanwhile. Sums over h begin
// with the bias and rise with k, as on the CPU. Reference: native/backend/cpu/ops/recurrent.cc
#include "backend/recurrent_units.h"
#include "backend/unary_functions.h"

namespace spark {
namespace {

// Calls body(j) for j < count, shared among the threads of the block, and waits for all.
template <typename Body>
__device__ void for_units(int64_t count, const Body& body) {
  for (int64_t j = threadIdx.x; j < count; j += blockDim.x) body(j);
  __syncthreads();
}

// bias + Σ_k h[k] · Rᵀ[k, column]
__device__ float with_state(const RecurrentArgs& args, const RecurrentSample& at, const float* h,
                            int64_t column) {
  const int64_t width = gate_count(args.cell) * args.hidden;
  const float* weight = args.recurrence + at.direction * args.hidden * width + column;
  float sum = args.bias ? args.bias[at.direction * width + column] : 0;
  for (int64_t k = 0; k < args.hidden; ++k) sum += h[k] * weight[k * width];
  return sum;
}

// The functions of a direction, one copy of them for all callers.
struct Functions {
  const Function* functions;

  SPARK_HOST_DEVICE __noinline__ float operator()(int i, float x) const {
    const Function& function = functions[i];
    return unary_value<float>(function.fn, x, static_cast<float>(function.alpha),
                              static_cast<float>(function.beta));
  }
};

// What a block computes in a step.
struct Step {
  const RecurrentArgs& args;
  const RecurrentSample& at;
  Functions function;
  float clip;
  const float* x;

  // x + bias + h · Rᵀ of one gate of one unit
  __device__ float gate(int64_t column) const { return x[column] + with_state(args, at, at.h, column); }
  __device__ float activated(int i, float sum) const { return function(i, clipped(sum, clip)); }
};

__device__ void rnn_step(const Step& step) {
  const RecurrentSample& at = step.at;
  for_units(step.args.hidden, [&](int64_t j) { at.gates[j] = step.activated(0, step.gate(j)); });
  for_units(step.args.hidden, [&](int64_t j) { at.h[j] = at.gates[j]; });
}

__device__ void gru_step(const Step& step) {
  const RecurrentArgs& args = step.args;
  const RecurrentSample& at = step.at;
  const int64_t hidden = args.hidden;
  const float *z = at.gates, *r = z + hidden;
  for_units(2 * hidden, [&](int64_t j) { at.gates[j] = step.activated(0, step.gate(j)); });
  for_units(hidden, [&](int64_t j) { at.reset[j] = args.linear_before_reset ? at.h[j] : r[j] * at.h[j]; });
  for_units(hidden, [&](int64_t j) {
    const int64_t column = 2 * hidden + j;
    const float state = with_state(args, at, at.reset, column);
    const float sum = step.x[column] + (args.linear_before_reset ? r[j] * state : state);
    at.h[j] = (1 - z[j]) * step.activated(1, sum) + z[j] * at.h[j];
  });
}

__device__ void lstm_step(const Step& step) {
  const RecurrentArgs& args = step.args;
  const RecurrentSample& at = step.at;
  const int64_t hidden = args.hidden;
  const float* weights = args.peepholes ? args.peepholes + at.direction * 3 * hidden : nullptr;
  for_units(4 * hidden, [&](int64_t j) { at.gates[j] = step.gate(j); });
  for_units(hidden, [&](int64_t j) {
    float gate[4], peephole[3];
    for (int n = 0; n < 4; ++n) gate[n] = at.gates[n * hidden + j];
    for (int n = 0; n < 3; ++n) peephole[n] = weights ? weights[n * hidden + j] : 0;
    at.h[j] =
        lstm_unit(step.function, step.clip, args.couple_gates, gate, weights ? peephole : nullptr, at.c[j]);
  });
}

__device__ void take_step(const Step& step) {
  switch (step.args.cell) {
    case RecurrentCell::kRnn:
      return rnn_step(step);
    case RecurrentCell::kGru:
      return gru_step(step);
    case RecurrentCell::kLstm:
      return lstm_step(step);
  }
}

__device__ void recurrent(const RecurrentArgs& args, int64_t begin, int64_t end) {
  const int64_t hidden = args.hidden, sample = blockIdx.x;
  const RecurrentSample at = sample_of(args, sample / args.batch, sample % args.batch);
  for_units(begin == 0 ? hidden : 0, [&](int64_t j) {
    at.h[j] = args.initial_h ? args.initial_h[sample * hidden + j] : 0;
    if (at.c) at.c[j] = args.initial_c ? args.initial_c[sample * hidden + j] : 0;
  });
  const Functions functions{args.functions + at.direction * function_count(args.cell)};
  for (int64_t t = begin; t < end; ++t) {
    const bool inside = t < at.length;
    const int64_t step = step_of(args, at, t);
    if (inside) {
      take_step({args, at, functions, static_cast<float>(args.clip), inputs_of(args, at, step)});
    }
    if (!args.y) continue;
    float* y = result_of(args, at, step);
    for_units(hidden, [&](int64_t j) { y[j] = inside ? at.h[j] : 0; });
  }
}

}  // namespace
}  // namespace spark

extern "C" __global__ void recurrent_f32(spark::RecurrentArgs args, int64_t begin, int64_t end) {
  spark::recurrent(args, begin, end);
}
