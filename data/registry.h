// Data sets by name, below a data directory: mnist, fashion-mnist, cifar10, cifar100, and digits
// and shapes, which are drawn.
//
// A data set lies in DIRECTORY/NAME, or where other programs put it (data/datasets/catalog.h lists
// those places).
#pragma once

#include <string>

#include "ringgrad/data/image_dataset.h"

namespace ringgrad {

// Where data sets lie: what is given, else RINGGRAD_DATA_DIR, else data/files of the checkout that
// the program lies in, if something is there, else $XDG_DATA_HOME/ringgrad
// (data/datasets/data_place.h).
std::string data_directory(const std::string& given = "");

// One split. digits and shapes are drawn into DIRECTORY/NAME when they are missing; nothing is ever
// downloaded. Throws Error when there is no data set of that name; DataError, saying how to get it,
// when a file is missing; and what read_idx_dataset and read_cifar throw.
ImageDataset load_dataset(const std::string& name, Split split,
                          const std::string& directory = data_directory());

}  // namespace ringgrad
