// launch.h: checked launches of kernels on the current device.
//
//   void cast(const CastArgs& args) {
//     launch("cast", "cast_f32_f16", Grid{ceil_div(args.count, kThreads)}, Threads{kThreads}, 0, args.src,
//            args.dst, args.count);
//   }
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "backend/cuda/runtime/memory.h"

namespace spark::cuda {

struct Grid {
  int64_t x = 1, y = 1, z = 1;
};

struct Threads {
  int x = 1, y = 1, z = 1;
};

inline int64_t ceil_div(int64_t count, int64_t size) { return (count + size - 1) / size; }

// Steps that a thread may take one after another in a launch, a microsecond or so each: a GPU with a display
// ends a kernel after some seconds, which ruins the context.
constexpr int64_t kSerialSteps = int64_t{1} << 17;

// Calls launch_piece(first, end) for pieces of `count` turns of which each takes `steps`; once where there
// are none.
template <typename Launch>
void launch_in_pieces(int64_t count, int64_t steps, const Launch& launch_piece) {
  const int64_t most = std::max<int64_t>(kSerialSteps / std::max<int64_t>(steps, 1), 1);
  int64_t first = 0;
  do {
    launch_piece(first, std::min(first + most, count));
    first += most;
  } while (first < count);
}

// The untyped half of launch(): where the arguments are, and how many bytes each has.
void launch_packed(std::string_view family, std::string_view kernel, Grid grid, Threads threads,
                   unsigned shared_bytes, void** parameters, std::span<const size_t> bytes);

// Without this the padding of a structure carries stale bytes of the stack to the device, addresses among
// them.
template <typename T>
void clear_padding([[maybe_unused]] T& value) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&value);
#endif
}

// Enqueues `kernel` of native/kernels/<family>.cu on the stream of the current device; a grid with a zero
// side is nothing to do. An argument is passed as the type it has here, which must be that of the kernel's
// parameter: their number and sizes are compared (ERR_INTERNAL) where the driver tells them, CUDA 12.4 and
// later. Dynamic shared memory beyond 48 KiB is asked for by itself.
template <typename... Args>
void launch(std::string_view family, std::string_view kernel, Grid grid, Threads threads,
            unsigned shared_bytes, Args... args) {
  static_assert((std::is_trivially_copyable_v<Args> && ...), "kernel arguments are copied byte by byte");
  (clear_padding(args), ...);
  void* parameters[] = {static_cast<void*>(&args)..., nullptr};
  static constexpr size_t bytes[] = {sizeof(Args)..., 0};
  launch_packed(family, kernel, grid, threads, shared_bytes, parameters, {bytes, sizeof...(Args)});
}

}  // namespace spark::cuda
