// A whole data set of images in memory, as bytes: batches are gathered from it, augmented and normalised in one pass
// (data/transform.h), which is cheaper than keeping four times as many bytes of floats.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

enum class Split { Train, Test };
const char* name(Split split);  // "train"

struct ImageDataset {
  std::string name;                  // "mnist"
  Tensor images;                     // uint8 [N, C, H, W], contiguous, on the CPU
  Tensor labels;                     // int64 [N], each in [0, classes.size())
  std::vector<std::string> classes;  // what each label means

  int64_t size() const { return images.defined() ? images.size(0) : 0; }
};

// Throws ShapeError or DTypeError unless the tensors are what the comments above say, and IndexError on a label
// without a class. The loader calls it, so that a data set built by hand cannot make it read past an end.
void check_dataset_invariants(const ImageDataset& dataset);

}  // namespace ringgrad
