// Code that oneDNN's kernels share: tensors as its memory, a cache of primitives, and the
// differences between 2.x (Debian 12 has 2.6.3) and 3.x. Private to this folder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>

#include <dnnl.hpp>

#include "ringgrad/core/kernels/call_signature.h"

namespace ringgrad::onednn {

using dnnl::memory;

const dnnl::engine& engine();

// Returns true for tensors that are passed to oneDNN at all: float32 and bfloat16 with elements.
bool supports(const Tensor& x);

memory::data_type data_type(DType dtype);
// Describes a tensor's sizes and layout. Channel-blocked images are nChw16c; everything else has
// strides.
memory::desc description(const Tensor& x);
memory as_memory(const Tensor& x);

// A primitive for one kind of call, and what it needs besides the arguments.
struct Primitive {
  dnnl::primitive run;
  memory::desc scratch;
  memory::desc extra = {};  // filters in its own format, or a mask that it writes
};

// Returns the primitive for a call, which the first call of its kind creates, or nullptr if oneDNN
// has none. Thread-safe. Throws Error that names the call for any other failure of oneDNN.
std::shared_ptr<const Primitive> find(Stream stream, const std::string& call,
                                      const std::function<Primitive()>& make);

using Arguments = std::unordered_map<int, memory>;
// Runs with the threads of the stream and waits for the end, so that the arguments may be freed on
// return. Throws Error if oneDNN fails.
void execute(Stream stream, const Primitive& primitive, Arguments arguments);
void reorder(Stream stream, memory from, memory to);

// Makes the scratch memory come from the caching allocator.
dnnl::primitive_attr attributes();

// Creates the descriptor of a primitive. 3.x takes the arguments directly, 2.x through an operation
// descriptor. `hint` holds the forward pass's descriptor for a backward one.
template <class Operation, class... Hint, class... Parts>
typename Operation::primitive_desc describe(std::tuple<Hint...> hint, const Parts&... parts) {
  return std::apply(
      [&](const auto&... forward) {
#if DNNL_VERSION_MAJOR >= 3
        return typename Operation::primitive_desc(engine(), parts..., forward..., attributes());
#else
        return typename Operation::primitive_desc({parts...}, attributes(), engine(), forward...);
#endif
      },
      hint);
}

}  // namespace ringgrad::onednn
