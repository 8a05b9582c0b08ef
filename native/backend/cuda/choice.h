// choice.h: the faster of two ways to enqueue the same work, measured on the device without waiting for it.
#pragma once

#include <functional>
#include <string>

namespace spark::cuda {

// Enqueues `own` or `other` on the stream of the current device, for work that `key` names. Calls 1 and 2 are
// `own`, 3 and 4 `other`; the second of each is timed with events (the first loads kernels). As soon as both
// times are known, the faster way is kept. `other` returns false where it cannot, and is not asked again.
void enqueue_faster(const std::string& key, const std::function<void()>& own,
                    const std::function<bool()>& other);

}  // namespace spark::cuda
