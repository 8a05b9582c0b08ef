// recurrent.cu: one direction of an RNN, GRU or LSTM as ONNX defines them. A block takes a sample through all
// steps, its threads share the units; the state lies in last_h and last_c meanwhile. Sums over h rise with k,
// as on the CPU.
// Reference: native/backend/cpu/recurrent.cc
#include "backend/unary_functions.h"

namespace spark {
namespace {

// The state of a sample between two steps, and room for its gates.
struct Sample {
  float* h;
  float* c;        // LSTM
  float* gates;    // [gates · hidden]
  float* product;  // [hidden]
};

// Calls body(j) for j < count, shared among the threads of the block, and waits for all.
template <typename Body>
__device__ void for_units(int64_t count, const Body& body) {
  for (int64_t j = threadIdx.x; j < count; j += blockDim.x) body(j);
  __syncthreads();
}

// sum + Σ_k h[k] · recurrence[k, column]
__device__ float with_state(const RecurrentArgs& args, const float* h, int64_t column, float sum) {
  const int64_t width = gate_count(args.cell) * args.hidden;
  for (int64_t k = 0; k < args.hidden; ++k) sum += h[k] * args.recurrence[k * width + column];
  return sum;
}

// One copy of the functions for all callers.
__device__ __noinline__ float function_value(const Function& function, float x) {
  return unary_value<float>(function.fn, x, static_cast<float>(function.alpha),
                            static_cast<float>(function.beta));
}

__device__ float activated(const RecurrentArgs& args, int function, float x) {
  const float clip = static_cast<float>(args.clip);
  if (x < -clip) x = -clip;
  if (x > clip) x = clip;
  return function_value(args.functions[function], x);
}

__device__ float bias(const RecurrentArgs& args, int64_t column) { return args.bias ? args.bias[column] : 0; }

// x + bias + h · Rᵀ of one gate of one unit
__device__ float gate(const RecurrentArgs& args, const Sample& at, const float* x, int64_t column) {
  return with_state(args, at.h, column, x[column] + bias(args, column));
}

__device__ void rnn_step(const RecurrentArgs& args, const Sample& at, const float* x) {
  for_units(args.hidden, [&](int64_t j) { at.gates[j] = activated(args, 0, gate(args, at, x, j)); });
  for_units(args.hidden, [&](int64_t j) { at.h[j] = at.gates[j]; });
}

__device__ void gru_step(const RecurrentArgs& args, const Sample& at, const float* x) {
  const int64_t hidden = args.hidden;
  const float *z = at.gates, *r = at.gates + hidden;
  for_units(2 * hidden, [&](int64_t j) { at.gates[j] = activated(args, 0, gate(args, at, x, j)); });
  for_units(hidden, [&](int64_t j) { at.product[j] = args.linear_before_reset ? at.h[j] : r[j] * at.h[j]; });
  for_units(hidden, [&](int64_t j) {
    const int64_t column = 2 * hidden + j;
    const float state = with_state(args, at.product, column, bias(args, column));
    const float sum = x[column] + (args.linear_before_reset ? r[j] * state : state);
    at.h[j] = (1 - z[j]) * activated(args, 1, sum) + z[j] * at.h[j];
  });
}

__device__ float with_peephole(const RecurrentArgs& args, int64_t n, int64_t j, float gate, float c) {
  return args.peepholes ? gate + args.peepholes[n * args.hidden + j] * c : gate;
}

__device__ void lstm_step(const RecurrentArgs& args, const Sample& at, const float* x) {
  const int64_t hidden = args.hidden;
  for_units(4 * hidden, [&](int64_t j) { at.gates[j] = gate(args, at, x, j); });
  for_units(hidden, [&](int64_t j) {
    const float old = at.c[j];
    const float input = activated(args, 0, with_peephole(args, 0, j, at.gates[j], old));
    const float forget = activated(args, 0, with_peephole(args, 2, j, at.gates[2 * hidden + j], old));
    const float candidate = activated(args, 1, at.gates[3 * hidden + j]);
    const float c = (args.couple_gates ? 1 - input : forget) * old + input * candidate;
    const float output = activated(args, 0, with_peephole(args, 1, j, at.gates[hidden + j], c));
    at.c[j] = c;
    at.h[j] = output * function_value(args.functions[2], c);
  });
}

__device__ void step(const RecurrentArgs& args, const Sample& at, const float* x) {
  switch (args.cell) {
    case RecurrentCell::kRnn:
      return rnn_step(args, at, x);
    case RecurrentCell::kGru:
      return gru_step(args, at, x);
    case RecurrentCell::kLstm:
      return lstm_step(args, at, x);
  }
}

__device__ void recurrent(const RecurrentArgs& args) {
  const int64_t n = blockIdx.x, hidden = args.hidden, width = gate_count(args.cell) * hidden;
  float* scratch = args.scratch + n * (width + hidden);
  const Sample at{args.last_h + n * hidden, args.last_c ? args.last_c + n * hidden : nullptr, scratch,
                  scratch + width};
  for_units(hidden, [&](int64_t j) {
    at.h[j] = args.initial_h ? args.initial_h[n * hidden + j] : 0;
    if (at.c) at.c[j] = args.initial_c ? args.initial_c[n * hidden + j] : 0;
  });
  const int64_t given = args.lengths ? args.lengths[n] : args.steps;
  const int64_t length = given < 0 ? 0 : given > args.steps ? args.steps : given;
  for (int64_t t = 0; t < args.steps; ++t) {
    const bool inside = t < length;
    const int64_t place = args.reverse && inside ? length - 1 - t : t;
    if (inside) step(args, at, args.gates + (place * args.batch + n) * width);
    if (!args.y) continue;
    float* y = args.y + place * args.y_step + n * hidden;
    for_units(hidden, [&](int64_t j) { y[j] = inside ? at.h[j] : 0; });
  }
}

}  // namespace
}  // namespace spark

extern "C" __global__ void recurrent_f32(spark::RecurrentArgs args) { spark::recurrent(args); }
