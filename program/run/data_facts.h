// DataFacts: what a network must know about its images, from a data set of the catalog or a folder
// of own pictures. The facts are stored with the weights, so using them needs neither the catalog
// nor the folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/data/image_dataset.h"

namespace ringgrad::program {

struct DataFacts {
  std::string name;  // "cifar10", or the folder's
  int64_t channels = 0;
  int64_t image_size = 0;
  std::vector<float> mean;
  std::vector<float> std;
  std::vector<std::string> classes;
  // The digest of one's own images, as they are trained on; "" : of a data set of the catalog.
  std::string digest = "";

  bool operator==(const DataFacts&) const = default;
};

// Returns true if --data names own pictures (an existing folder, a path, or a .csv) and no data
// set.
bool is_own_data(const std::string& data);
// Returns facts from the catalog. Throws Error if there are none.
DataFacts facts_of_dataset(const std::string& name);
ImageTransform normalization_of(const DataFacts& facts);
// Returns a hash of the images and one of the labels, one after the other.
std::string hash_of_data(const ImageDataset& set);

// The facts as metadata of a weights file, in JSON: input_size [C, H, W], mean, std and classes.
using Metadata = std::map<std::string, std::string>;
Metadata to_metadata(const DataFacts& facts);
bool tells_facts(const Metadata& metadata);  // there is all of that
// Throws DataError if a field is missing or impossible.
DataFacts facts_from_metadata(const Metadata& metadata, const std::string& name);

nlohmann::json to_json(const DataFacts& facts);
DataFacts facts_from_json(const nlohmann::json& json);  // with the same error

}  // namespace ringgrad::program
