// A folder of pictures, or a .csv of them, as a data set: read and resized once, and kept below the
// data directory.
#pragma once

#include "ringgrad/data/image_dataset.h"
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

// Pictures lie in DIRECTORY/cache/NAME-….safetensors as they are after resizing: whole or not at
// all, one file for each path and size. A file that was added, removed or changed (its size or
// time) makes it anew, as does a damaged cache. Throws DataError, naming the first picture that
// cannot be read and their number, also where a class has none left, and what find_own_pictures()
// throws.
OwnData load_own_data(const std::string& path, const OwnDataOptions& options,
                      const std::string& directory);

// One split of either kind of data set, for a network that knows these classes: pictures of one's
// own are labelled with their numbers there. Throws DataError if there is a picture of another
// class, and the above. The cache is only read, as directory_of_data() says. `files` takes the
// names of test images that are one's own.
ImageDataset load_images(const std::string& data, Split split, const DataFacts& known,
                         bool skip_broken, const std::string& directory,
                         std::vector<std::string>* files = nullptr);

}  // namespace ringgrad::program
