// dora_args.h: the operations of DoRA layers. Part of the contract in backend.h.
#pragma once

#include <cstdint>

#include "backend/weight.h"

namespace spark {

// out[r] = Σ_c W[r, c]². The constant part of the DoRA norm.
struct WeightNorm2Args {
  Weight weight;
  float* out;  // [rows]
};

// The low-rank part of a DoRA layer: V = W + scale · B·A.
struct LowRank {
  int64_t rank;
  float scale;
  const float* a;  // [R, I]
  const float* b;  // [O, R]
};

// A row without length has gain magnitude / 1e-12 instead of a division by zero.
constexpr float kSmallestNorm = 1e-12f;
// Below this share of its positive parts a factored norm² has lost too many digits.
constexpr float kCancelledShare = 1e-2f;
// Outside of this range squares themselves underflow or overflow in f32.
constexpr float kSmallestSquare = 1e-30f, kLargestSquare = 1e30f;

// norm[o] = ‖V[o, :]‖₂ and gain[o] = magnitude[o] / max(norm[o], 1e-12), without forming V:
// norm² = ‖W‖² + 2s·rowsum((W·Aᵀ) ∘ B) + s²·rowsum((B·(A·Aᵀ)) ∘ B). A row whose norm² is below 1e-2 of the
// sum of its positive parts has cancelled and is recomputed densely, as is one whose squares are so large or
// so small (beyond 1e±30) that f32 cannot hold them.
struct DoraNormArgs {
  Weight weight;
  LowRank low_rank;
  const float* weight_norm2;  // [O] from weight_norm2
  const float* magnitude;     // [O]
  float* norm;                // [O]
  float* gain;                // [O]
};

// With d = x, or mask ∘ x when there is a dropout mask:
//   y = x·Wᵀ + bias + (gain − 1) ∘ (d·Wᵀ) + gain ∘ scale · (d·Aᵀ)·Bᵀ      which is gain ∘ (x·Vᵀ) + bias
//   without a mask
struct DoraForwardArgs {
  Weight weight;
  LowRank low_rank;
  int64_t tokens;
  const float* x;     // [T, I]
  const float* gain;  // [O]
  const float* bias;  // [O]; null: no bias
  const float* mask;  // [T, I], 0 or 1/(1-p); null: no dropout
  float* xa;          // [T, R] = d·Aᵀ, kept for the backward pass
  float* z;           // [T, O] = d·Vᵀ before the gain, kept for the backward pass; null: inference
  float* y;           // [T, O]
  Compute compute;  // nvfp4: x is rounded for x·Wᵀ alone, the other products are as in bf16; without a mask
};

// One of the adapters of a mixed batch.
struct DoraMixedAdapter {
  LowRank low_rank;
  const float* gain;  // [O]
};

constexpr int64_t kMaxMixedAdapters = 64;  // they are a kernel parameter, of which there are 4 KiB

// A batch whose rows go through different adapters: row t of y is that of dora_forward (without a mask) with
// adapters[index[t]], or that of linear where index[t] is -1; on the CPU bit for bit. The weight is read as
// for a single adapter.
struct DoraMixedArgs {
  Weight weight;
  int64_t tokens;
  int64_t count;  // of adapters
  DoraMixedAdapter adapters[kMaxMixedAdapters];
  const float* x;        // [T, I]
  const int32_t* index;  // [T], in [-1, count)
  const float* bias;     // [O]; null: no bias
  float* y;              // [T, O]
};

// Gradients of a loss given dy, with dz = dy ∘ gain and q = dz·B:
//   dmagnitude[o] = Σ_t dy z / max(norm, 1e-12)    dbias = Σ_t dy    db = s · dzᵀ·xa    da = s · qᵀ·d
//   dx = dz·W + s·q·A without a mask, else dy·W + mask ∘ ((dy ∘ (gain − 1))·W + s·q·A)
// exact_norm also differentiates the norm: with c[o] = magnitude·dmagnitude / norm²,
//   db −= s · c ∘ (W·Aᵀ + s·B·(A·Aᵀ))    da −= s · ((c ∘ B)ᵀ·W + s·(Bᵀ·(c ∘ B))·A)
struct DoraBackwardArgs {
  Weight weight;
  LowRank low_rank;
  int64_t tokens;
  bool exact_norm;
  const float* x;          // [T, I]
  const float* mask;       // [T, I]; null: no dropout
  const float* dy;         // [T, O]
  const float* xa;         // [T, R] from the forward pass
  const float* z;          // [T, O] from the forward pass
  const float* norm;       // [O]
  const float* gain;       // [O]
  const float* magnitude;  // [O]
  float* dx;               // [T, I]; null: not wanted
  float* da;               // [R, I]
  float* db;               // [O, R]
  float* dmagnitude;       // [O]
  float* dbias;            // [O]; null: not wanted
  Compute compute;         // of the products with dy, x and W
};

// merged[o, i] = gain[o] · (W[o, i] + scale · (B·A)[o, i])
struct DoraMergeArgs {
  Weight weight;
  LowRank low_rank;
  const float* gain;  // [O]
  float* merged;      // [O, I]
};

// Gradients of dora_merge given dmerged and the norm and gain of dora_norm:
//   dmagnitude[o] = Σ_i dmerged V / max(norm, 1e-12)    dv = gain ∘ dmerged    db = s · dv·Aᵀ    da = s ·
//   Bᵀ·dv
// exact_norm also differentiates the norm: dv = gain ∘ (dmerged − V ∘ dmagnitude / max(norm, 1e-12)).
struct DoraMergeBackwardArgs {
  Weight weight;
  LowRank low_rank;
  bool exact_norm;
  const float* dmerged;  // [O, I]
  const float* norm;     // [O]
  const float* gain;     // [O]
  float* dv;             // [O, I]
  float* da;             // [R, I]
  float* db;             // [O, R]
  float* dmagnitude;     // [O]
};

// restored[o, i] = merged[o, i] / gain[o] − scale · (B·A)[o, i]. No gain is 0. May run in place.
struct DoraUnmergeArgs {
  int64_t rows, cols;
  LowRank low_rank;
  const float* merged;  // [O, I]
  const float* gain;    // [O]
  float* restored;      // [O, I]
};

}  // namespace spark
