// job_memory.h: the memory of operands while work on them runs off the JavaScript thread. JavaScript takes an
// ArrayBuffer's memory away by transfer(), postMessage() or structuredClone(), and nothing in Node-API stops
// it, so work uses in place only blocks, SharedArrayBuffers and buffers that are held; of others it gets
// copies.
#pragma once

#include <napi.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/runtime/staging.h"
#include "core/footprint.h"

namespace spark::napi {

using cuda::Access;

// Makes sure that the memory of `buffer` can no longer be transferred: for good, since Node cannot take it
// back. Blocks need no holding: whoever uses them keeps them alive.
void hold(Napi::ArrayBuffer buffer);

bool is_held(const Napi::ArrayBuffer& buffer);

// Copies of the operands of one job, but of those that stay where they are. Lives and dies on the JavaScript
// thread.
class Copies {
 public:
  // Where a job finds the elements of `array` at `data`, of which it reads or writes the bytes `touched`. An
  // output is copied, too: what an operation leaves alone stays as it is.
  void* add(const char* name, const Napi::TypedArray& array, void* data, const Footprint& touched,
            Access access);

  // Copies what the job has written into the arrays. Throws ERR_DISPOSED, when all others are written, for
  // one whose memory was taken away meanwhile.
  void write_back() const;

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  struct Output {
    std::string name;
    Napi::ObjectReference array;
    const std::byte* source;
    Footprint written;
  };

  std::vector<std::unique_ptr<std::byte, Free>> memory_;
  std::vector<Output> outputs_;
};

}  // namespace spark::napi
