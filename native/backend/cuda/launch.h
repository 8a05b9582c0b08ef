// launch.h: how a backend entry starts a kernel on the current device.
//
//   void cast(const CastArgs& args) {
//     launch("cast", "cast_f32_f16", Grid{ceil_div(args.count, kThreads)}, Threads{kThreads}, 0, args.src,
//            args.dst, args.count);
//   }
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "backend/cuda/memory.h"

namespace spark::cuda {

struct Grid {
  int64_t x = 1, y = 1, z = 1;
};

struct Threads {
  int x = 1, y = 1, z = 1;
};

inline int64_t ceil_div(int64_t count, int64_t size) { return (count + size - 1) / size; }

// The untyped half of launch().
void launch_packed(std::string_view family, std::string_view kernel, Grid grid, Threads threads,
                   unsigned shared_bytes, void** parameters);

// Enqueues `kernel` of native/kernels/<family>.cu on the stream of the current device; a grid with a zero
// side is nothing to do. An argument is passed as the type it has here: it must be the kernel's parameter
// type, since nothing can check it. Dynamic shared memory beyond 48 KiB is asked for by itself.
template <typename... Args>
void launch(std::string_view family, std::string_view kernel, Grid grid, Threads threads,
            unsigned shared_bytes, const Args&... args) {
  static_assert((std::is_trivially_copyable_v<Args> && ...), "kernel arguments are copied byte by byte");
  void* parameters[] = {const_cast<void*>(static_cast<const void*>(&args))..., nullptr};
  launch_packed(family, kernel, grid, threads, shared_bytes, parameters);
}

}  // namespace spark::cuda
