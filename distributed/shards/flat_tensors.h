// Many tensors in one flat array, in which they go from one device to another.
//
// Note [One copy for many tensors]
// A copy between two CUDA devices costs the host some ten calls of the runtime, whatever its size.
// Each stream must wait for the other. A network has a hundred tensors, most of them small. So
// those of one dtype travel in one array. Parameters that lie in an arena (autograd/arena.h) are
// such an array already, and nothing is packed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// The places of tensors of one dtype in an array. What lies between two of them is undefined.
struct FlatLayout {
  DType dtype;
  // Positions in the list of all tensors.
  std::vector<size_t> members;
  std::vector<Shape> shapes;
  // Counted in elements.
  std::vector<int64_t> offsets;
  int64_t numel = 0;
};
struct FlatTensors {
  FlatLayout layout;
  // [numel].
  Tensor array;
};

// Returns these tensors of one device as one array for each dtype. The array is their own memory
// if they are contiguous and lie together in one storage; otherwise it holds copies.
std::vector<FlatTensors> flat_tensors(const std::vector<Tensor>& tensors);

// Copies the members among `tensors`, which are on `device`, into a new array. An undefined member
// becomes -0, because -0 changes no bit of what it is added to.
Tensor packed(const FlatLayout& layout, std::span<const Tensor> tensors, Device device);

// Sets the members among `tensors` to parts of the array. Each part counts its modifications by
// itself, as a tensor with memory of its own does, and keeps the whole array alive.
void unpack(const Tensor& array, const FlatLayout& layout, std::vector<Tensor>& tensors);

// Returns copies on another device of the tensors that were given to flat_tensors().
std::vector<Tensor> copies_on(Device device, const std::vector<FlatTensors>& flat, size_t tensors);

}  // namespace ringgrad
