// Autotune chooses between a kernel's two providers. It takes the vendor's if that was more than 3
// % faster when this kind of device first saw such a call. The kernel table asks here when
// Provider::Fastest is chosen.
//
// A text file for each processor and card keeps the measurements, one line per call. It is readable
// and may be deleted: autotune-NAME.tsv in $RINGGRAD_CACHE_DIR, by default in ringgrad/ below
// $XDG_CACHE_HOME or ~/.cache. The rounding of a sum then depends on a measurement. Two runs may
// differ in the last bit if one of them started without the file and the two providers differ by
// nearly 3 %. Provider::Native (--provider native) gives equal bits without the file. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/core/device.h"

namespace ringgrad {

// Returns true if vendor() is known to be more than 3 % faster than native() for a call with this
// signature (core/kernels/call_signature.h) on the stream's device. The first such call runs and
// times both on a stream of their own. The device's clock times them without the host's time for
// queueing; on CUDA they run as a graph. Nothing is timed while the stream is being captured, so a
// call without a measurement then uses native(). vendor() returns false if its library has no
// kernel for the call. If it throws an Error although the device still works, native() is used,
// too. A file that cannot be written is not an error. REQUIRES: both overwrite the same outputs
// without reading them, so that they may run several times; once they have run, they can be
// captured.
bool vendor_is_faster(Stream stream, const std::string& call,
                      const std::function<void(Stream)>& native,
                      const std::function<bool(Stream)>& vendor);

// Does the same for a library that offers several plans for a call and leaves the choice to its
// user. Returns the first plan that took at most 3 % longer than the fastest, or nullopt if no plan
// runs. While the stream is being captured, a call without a measurement gets the first plan.
// `call` names the library and its version besides the arguments. A vendor() above may call this
// function.
std::optional<size_t> fastest_plan(Stream stream, const std::string& call,
                                   const std::vector<std::function<bool(Stream)>>& plans);

struct TunedCall {
  std::string call;
  // Infinity if there is no kernel for the call, or if it fails; this is not stored in the file.
  double native_us;
  double vendor_us;
};
// Returns the calls in sorted order, without the choices among a vendor's plans.
std::vector<TunedCall> tuned_calls(Device device);
std::string autotune_file(Device device);

}  // namespace ringgrad
