// adamw_step.h: the constants of one AdamW step, the same on every backend.
#pragma once

#include <cmath>

#include "backend/backend.h"
#include "core/float_formats.h"

namespace spark {

// m += (g − m)·rest1; v = v·beta2 + g²·rest2; param = param·decay − rate · m / (√v / correction + eps).
struct AdamwStep {
  SPARK_HOST_DEVICE explicit AdamwStep(const AdamwArgs& args)
      : decay(static_cast<float>(1 - args.lr.get() * args.weight_decay)),
        rest1(static_cast<float>(1 - args.beta1)),
        beta2(static_cast<float>(args.beta2)),
        rest2(static_cast<float>(1 - args.beta2)),
        rate(static_cast<float>(args.lr.get() / (1 - std::pow(args.beta1, args.step.get())))),
        correction(static_cast<float>(std::sqrt(1 - std::pow(args.beta2, args.step.get())))),
        eps(static_cast<float>(args.eps)) {}

  float decay, rest1, beta2, rest2, rate, correction, eps;
};

}  // namespace spark
