// The images of a run, and the facts about them for its network.
#pragma once

#include "ringgrad/program/run/own_data.h"
#include "ringgrad/program/run/run_directory.h"

namespace ringgrad::program {

struct Data {
  ImageDataset train_set;
  ImageDataset test_set;
  // The training images that --validation holds out; train_set lacks them.
  ImageDataset validation_set = {};
  std::vector<std::string> notes = {};  // only for own pictures, like test_files: as in OwnData
  std::vector<std::string> test_files = {};
};

// Reads the training and test data of the run. For own pictures it stores in config.facts what the
// network must know about them. They are normalised like the weights of `init`, or by the training
// set if it is empty. Throws DataError if they differ from those with which a resumed run began.
// `keep` says whether own pictures may be written to the data directory's cache.
Data read_data(RunConfig& config, const std::string& init, bool keep);

// Returns "cifar10", or the folder's name in a form that can be part of a file's name.
std::string name_for_directory(const DataFacts& facts);

}  // namespace ringgrad::program
