// Data sets by name, below a data directory: mnist, fashion-mnist, cifar10, cifar100, and the drawn
// ones, digits and shapes.
//
// A data set is in DIRECTORY/NAME, or where other programs put it (data/datasets/catalog.h lists
// those places).
#pragma once

#include <string>

#include "ringgrad/data/image_dataset.h"
#include "ringgrad/data/split.h"

namespace ringgrad {

// Returns the directory of the data sets: `given`, else RINGGRAD_DATA_DIR, else data/files of the
// checkout that contains the program if it is not empty, else $XDG_DATA_HOME/ringgrad
// (data/datasets/data_place.h).
std::string data_directory(const std::string& given = "");

// Loads one split. digits and shapes are drawn into DIRECTORY/NAME if they are missing; nothing is
// ever downloaded. Throws Error if there is no data set of that name, DataError that says how to
// get it if a file is missing, and what read_idx_dataset and read_cifar throw.
ImageDataset load_dataset(const std::string& name, Split split,
                          const std::string& directory = data_directory());

}  // namespace ringgrad
