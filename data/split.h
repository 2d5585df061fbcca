// The two parts of a data set.
#pragma once

namespace ringgrad {

enum class Split { Train, Test };
inline const char* name(Split split) { return split == Split::Train ? "train" : "test"; }

}  // namespace ringgrad
