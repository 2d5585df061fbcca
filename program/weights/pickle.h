// The tensors that a state_dict's pickle describes, without anything being executed: a machine
// with the instructions that such a pickle consists of, and no others.
//
// Pickle is a program for a machine with a stack, which may call any function by its name
// (Python's pickletools.py describes it). This one knows collections.OrderedDict,
// torch._utils._rebuild_tensor_v2 and _rebuild_parameter, and torch's typed storages, as names of
// what to build; none of them is called. Any other name, and any other instruction, is an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ringgrad/core/dtype.h"
#include "ringgrad/core/shape.h"

namespace ringgrad::program {

// A tensor is a view of a storage, whose bytes lie elsewhere.
struct PickledTensor {
  std::string name;
  std::string storage;       // the key under which its bytes lie
  int64_t storage_elements;  // of this dtype
  DType dtype;
  int64_t offset;
  Shape shape;
  Strides strides;  // not negative; all elements lie in the storage
};

// The entries of the dictionary, or with `key` of the one that it has under that key, in their
// order. `file` begins messages. Throws DataError on anything else, naming what it found.
std::vector<PickledTensor> read_state_dict(std::span<const uint8_t> pickle, const std::string& file,
                                           const std::string& key = "");

}  // namespace ringgrad::program
