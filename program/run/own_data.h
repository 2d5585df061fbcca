// A folder of pictures, or a .csv of them, as a data set: read and resized once, and kept below the
// data directory.
#pragma once

#include "ringgrad/data/image_dataset.h"
#include "ringgrad/data/split.h"
#include "ringgrad/program/run/data_facts.h"
#include "ringgrad/program/run/own_pictures.h"

namespace ringgrad::program {

// Returns the directory of a run's data: --data-dir if it is `given`, else the one in the run's
// config.json. That file may come from another user, so no data are drawn where it says: if digits
// or shapes are missing there, returns the usual directory.
std::string directory_of_data(const std::string& data, const std::string& given,
                              const std::string& of_run);

struct OwnDataOptions {
  int64_t channels = 3;
  int64_t image_size = 64;
  bool skip_broken = false;  // leave unreadable pictures out; otherwise they are an error
  bool keep = true;          // for the next time; false: the directory is only read
};

struct OwnData {
  // Normalised by the training images' mean and deviation.
  DataFacts facts;
  ImageDataset train;
  ImageDataset test;
  std::vector<std::string> test_files;  // the test images' names, below the folder
  // Words about the classes, the division, and what was left out.
  std::vector<std::string> notes;
};

// Reads pictures, or their cache DIRECTORY/cache/NAME-….safetensors, which has the resized
// pictures: whole or not at all, one file for each path and size. The cache is made again if a file
// was added, removed or changed (its size or time), or if the cache is damaged. Throws DataError,
// which names the first unreadable picture and their number. Throws DataError if a class has no
// picture left, and as find_own_pictures() does.
OwnData load_own_data(const std::string& path, const OwnDataOptions& options,
                      const std::string& directory);

// Returns one split of either kind of data set, for a network that knows these classes: own
// pictures are labelled with the network's numbers. Throws DataError if there is a picture of
// another class, and as load_own_data() does. The cache is only read, as directory_of_data() says.
// `files` takes the names of own test images.
ImageDataset load_images(const std::string& data, Split split, const DataFacts& known,
                         bool skip_broken, const std::string& directory,
                         std::vector<std::string>* files = nullptr);

}  // namespace ringgrad::program
