// Autotune: of a kernel's two providers, the vendor's where that was more than 3 % faster when this kind of device
// first saw such a call. The kernel table asks here when Provider::Fastest is chosen.
//
// What was measured is kept in a text file for each processor and card, one line per call, that people can read and
// delete: autotune-NAME.tsv in $RINGGRAD_CACHE_DIR, by default below $XDG_CACHE_HOME or ~/.cache in ringgrad/. How a
// sum is rounded then depends on a measurement: two runs may differ in the last bit where the file was new in one of
// them and the two providers' times are near those 3 %. Equal bits without the file: Provider::Native, which is
// --provider native. Thread-safe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/core/device.h"

namespace ringgrad {

// Whether vendor() is known to be faster than native(), by more than 3 %, for a call with this signature
// (core/kernels/call_signature.h) on the stream's device. The first time both are run and timed, on a stream that they
// are given, by the device's clock and without what the host takes to queue them: on CUDA as a graph. Not while the
// stream is being captured, where native() is the answer for what nobody has timed. vendor() returns false where its
// library has no kernel for the call; where it throws an Error although the device still works, native() is the answer,
// too. A file that cannot be written is not an error. REQUIRES: both overwrite the same outputs and read nothing of
// them, so that they may run several times, and having run once they can be captured.
bool vendor_is_faster(Stream stream, const std::string& call, const std::function<void(Stream)>& native,
                      const std::function<bool(Stream)>& vendor);

// The same among a vendor's own plans for a call, for a library that names several and leaves the choice to its user:
// the first of those that took at most 3 % longer than the fastest, nullopt where none of them runs. While the stream
// is being captured, what nobody has timed is left to the first. `call` names the library with its version besides the
// arguments. May be called by a vendor() above.
std::optional<size_t> fastest_plan(Stream stream, const std::string& call,
                                   const std::vector<std::function<bool(Stream)>>& plans);

struct TunedCall {
  std::string call;
  double native_us, vendor_us;  // infinity: no kernel for it, or one that fails; not in the file
};
std::vector<TunedCall> tuned_calls(Device device);  // in order of calls, without the choices among a vendor's plans
std::string autotune_file(Device device);

}  // namespace ringgrad
