// What oneDNN's kernels share: tensors as its memory, primitives kept for calls of their kind, and
// the difference between its 2.x (Debian 12 has 2.6.3) and 3.x. Private to this folder.
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

// Where oneDNN is asked for anything at all: float32 and bfloat16 with elements.
bool supports(const Tensor& x);

memory::data_type data_type(DType dtype);
// A tensor's sizes and how it lies: channel-blocked images are nChw16c, everything else has
// strides.
memory::desc description(const Tensor& x);
memory as_memory(const Tensor& x);

// A primitive for one kind of call, and what it wants besides the arguments.
struct Primitive {
  dnnl::primitive run;
  memory::desc scratch;
  memory::desc extra = {};  // filters as it wants to have them, or a mask that it writes
};

// The primitive for a call, made at the first of its kind; nullptr where oneDNN has none for it.
// Thread-safe. Throws Error, naming the call, on any other complaint of oneDNN's.
std::shared_ptr<const Primitive> find(Stream stream, const std::string& call,
                                      const std::function<Primitive()>& make);

using Arguments = std::unordered_map<int, memory>;
// With the threads of the stream, and to the end: the arguments may be freed then. Throws Error
// where oneDNN complains.
void execute(Stream stream, const Primitive& primitive, Arguments arguments);
void reorder(Stream stream, memory from, memory to);

// Scratch memory is ours, from the caching allocator.
dnnl::primitive_attr attributes();

// The descriptor of a primitive: 3.x takes the arguments directly, 2.x by way of an operation
// descriptor. `hint` holds the descriptor of the forward pass for a backward one.
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
