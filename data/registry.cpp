#include "ringgrad/data/registry.h"

#include "ringgrad/data/datasets/data_place.h"
#include "ringgrad/data/datasets/dataset_files.h"

namespace ringgrad {

std::string data_directory(const std::string& given) { return data_place(given).directory; }

ImageDataset load_dataset(const std::string& name, Split split, const std::string& directory) {
  return read_dataset(dataset_info(name), split, directory);
}

}  // namespace ringgrad
