// SavedTensor: what a backward closure keeps of a tensor, an alias without history, and a check that nobody has
// modified it in place since.
#pragma once

#include "ringgrad/core/tensor.h"

namespace ringgrad {

class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(const Tensor& tensor);  // an undefined tensor may be saved

  // The tensor. Throws Error, naming the current operation and both versions, if it was modified in place.
  const Tensor& get() const;
  explicit operator bool() const { return tensor_.defined(); }

 private:
  Tensor tensor_;
  uint32_t version_ = 0;
};

inline SavedTensor save(const Tensor& tensor) { return SavedTensor(tensor); }
// Nothing where only an input that wants no gradient would need it.
inline SavedTensor save_if(bool needed, const Tensor& tensor) { return needed ? SavedTensor(tensor) : SavedTensor(); }

}  // namespace ringgrad
