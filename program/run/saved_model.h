// A trained model in a file, and the file's facts about it: its name and its data.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ringgrad/nn/module.h"
#include "ringgrad/program/run/data_facts.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad::program {

// In a checkpoint the names of averaged weights, which --ema has, begin with this.
inline constexpr const char* kAverageInFile = "optim.average.";

// Loads the initial weights of a network from a run directory or a .safetensors file. If the file
// has another number of classes, the last layer keeps its own weights, and a message says so.
// Throws DataError if other weights do not fit, or are impossible: not finite, or negative
// variances.
void load_weights(nn::Module& module, const std::string& path);
// Returns the normalisation of images for such weights: the one that their file records, else
// ImageNet's if they are torchvision's. Mean and std are empty if it is for another number of
// channels.
ImageTransform normalization_of_weights(const std::string& path, int64_t channels);

// ImageNet's, as torchvision's weights want it.
ImageTransform imagenet_normalization();
// The network that has parameters and buffers of just these names; "" where none is known. Takes a
// second, as networks are made to ask them.
std::string fitting_model(const nn::NamedTensors& weights);

// The name of the last layer, which tells the classes apart: "fc". All else is the backbone.
std::string head_of(const nn::Module& module);

// A new network for such images. Throws UsageError on an unknown name.
std::shared_ptr<nn::Module> make_model_for(const std::string& model, const DataFacts& facts);

// Returns the SHA-256 of a module's parameters and buffers, in hexadecimal digits. The hash covers
// one tensor after the other, in the order of state_dict(). For each it covers the name, a zero
// byte, and the elements in row-major order as they lie in memory.
std::string sha256_of_state(const nn::Module& module);

// Writes weights with the names of PyTorch and torchvision. The metadata say what they are for: the
// model, the data, and the fields of to_metadata(). So a reader does not need our catalogue.
// Atomic. Throws IoError.
void save_model(const std::filesystem::path& path, const nn::Module& model, const Recipe& recipe,
                const DataFacts& facts);

struct SavedModel {
  std::shared_ptr<nn::Module> module;
  std::string model;
  std::string data;
  std::string data_dir;  // the run's data directory; empty if the file does not say
  std::string file;      // the .safetensors file that was read
  DataFacts facts;       // the facts of its images
  bool skip_broken;      // as the run did, if there is one
};

// `path`: a run directory, or a .safetensors file: of weights, or a checkpoint. `model` and `data`
// override what the file says; a file from elsewhere says nothing. With pictures of one's own as
// data the classes are those of the file. Throws DataError, and UsageError if the model is not
// known.
SavedModel load_model(const std::string& path, const std::string& model, const std::string& data);

}  // namespace ringgrad::program
