// recording.cc: capture and replay of CUDA graphs.
#include "backend/cuda/runtime/recording.h"

#include "backend/cuda/runtime/device.h"
#include "core/error.h"

namespace spark::cuda {
namespace {

constexpr int kRelaxed = 2;           // CU_STREAM_CAPTURE_MODE_RELAXED: other threads may do as they like
constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

}  // namespace

Recording::Recording(Stream& stream, bool graphs)
    : stream_(stream),
      device_(stream.device()),
      graphs_(graphs),
      scratch_(stream, MemoryKind::kDevice, Pool::kKeepAll) {}

Recording::~Recording() {
  try {
    DeviceScope scope(device_);
    if (graph_) device_.driver.cuGraphExecDestroy(graph_);
    scratch_.trim_when_passed();
  } catch (const Error&) {  // on a ruined context, whose memory is gone
  }
}

void Recording::capture(const std::function<void()>& work) {
  const Driver& driver = device_.driver;
  if (!driver.cuStreamBeginCapture || !driver.cuStreamEndCapture || !driver.cuGraphInstantiate ||
      !driver.cuGraphLaunch || !driver.cuGraphDestroy || !driver.cuGraphExecDestroy) {
    problem_ = "the NVIDIA driver has no CUDA graphs";
    return;
  }
  // A stream of its own: other threads enqueue on that of the plan meanwhile.
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUresult result = driver.cuStreamCreate(&stream, kNonBlocking);
  if (result == kSuccess) result = driver.cuStreamBeginCapture(stream, kRelaxed);
  if (result == kSuccess) {
    try {
      const Redirection redirection(stream_, stream, scratch_);
      work();
    } catch (const Error& error) {
      problem_ = error.what();
    }
    result = driver.cuStreamEndCapture(stream, &graph);
  }
  if (result == kSuccess && problem_.empty()) result = driver.cuGraphInstantiate(&graph_, graph, 0);
  if (result != kSuccess) {
    graph_ = nullptr;
    if (problem_.empty()) problem_ = driver.error_text(result);
  }
  if (graph) driver.cuGraphDestroy(graph);
  if (stream) driver.cuStreamDestroy(stream);
}

void Recording::run(const std::function<void()>& work) {
  if (graphs_ && has_run_ && !graph_ && problem_.empty()) capture(work);
  if (graph_) {
    device_.check(device_.driver.cuGraphLaunch(graph_, stream_.handle()), "launching a plan");
  } else {
    const Redirection redirection(stream_, scratch_);
    work();
  }
  has_run_ = true;
}

}  // namespace spark::cuda
