// scatter_args.h: the loops of scatter over its indices; read by scatter.cu, filled by its launcher.
#pragma once

#include "backend/backend.h"

namespace spark {

// Some axes of an Indexing, and how far along them the target, its indices and the updates move.
struct ScatterAxes {
  Axes axes;
  Strides target, indices, updates;
};

// Targets of different lanes never meet, those of one may: its turns are taken in order.
struct ScatterLoops {
  ScatterAxes lanes, turns;
};

}  // namespace spark
