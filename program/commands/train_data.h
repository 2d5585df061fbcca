// The images of a run, and what its network is told of them.
#pragma once

#include "ringgrad/program/run/own_data.h"
#include "ringgrad/program/run/run_directory.h"

namespace ringgrad::program {

struct Data {
  ImageDataset train_set;
  ImageDataset test_set;
  // Of the training images, what --validation holds out: then they are not in train_set.
  ImageDataset validation_set = {};
  std::vector<std::string> notes = {};  // of one's own pictures: as in OwnData, as are these
  std::vector<std::string> test_files = {};
};

// What the run is to be trained and tested on. Says in config.facts what its network must know of
// pictures of one's own: they are normalised as the weights of `init` were, by the training set
// where it is empty. Throws DataError where they are not those that a run which goes on was begun
// with. `keep`: pictures of one's own may be written to the data directory's cache.
Data read_data(RunConfig& config, const std::string& init, bool keep);

// "cifar10", or the folder's name as it can be part of a file's.
std::string name_for_directory(const DataFacts& facts);

}  // namespace ringgrad::program
