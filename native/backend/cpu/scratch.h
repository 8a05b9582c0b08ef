// scratch.h: memory for the length of a call.
#pragma once

#include <cstdint>
#include <memory>

namespace spark::cpu {

// Floats that hold anything. A thread keeps two that it gave out, so that the runs of a plan allocate
// nothing; what is asked for in the meantime, or very large, is allocated.
class Scratch {
 public:
  explicit Scratch(int64_t floats);
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch();

  float* data() const { return data_; }

 private:
  std::unique_ptr<float[]> own_;
  float* data_;
};

}  // namespace spark::cpu
