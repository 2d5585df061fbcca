// A trained model in a file, and what the file says about it: which model, for which data.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ringgrad/nn/module.h"
#include "ringgrad/program/run/data_facts.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad::program {

// Gives a network the weights of a run directory or .safetensors file to begin with: the last layer
// keeps its own where the file has another number of classes, which is said. Throws DataError where
// others do not fit, or cannot be weights: not finite, negative variances.
void load_weights(nn::Module& module, const std::string& path);
// How images were normalised for such weights: as their file says, else as ImageNet's are for
// torchvision's. Mean and std are empty where that is for another number of channels.
ImageTransform normalization_of_weights(const std::string& path, int64_t channels);

// The name of the last layer, which tells the classes apart: "fc". All else is the backbone.
std::string head_of(const nn::Module& module);

// A new network for such images. Throws UsageError on an unknown name.
std::shared_ptr<nn::Module> make_model_for(const std::string& model, const DataFacts& facts);

// SHA-256 of a module's parameters and buffers, in hexadecimal digits: of each one's name, a zero
// byte, and its elements in row-major order as they lie in memory, one tensor after the other, as
// state_dict() lists them.
std::string sha256_of_state(const nn::Module& module);

// Weights as PyTorch and torchvision name them. The metadata say what they are for: model, data,
// and what to_metadata() has, so that nobody else needs our catalogue. Atomic. Throws IoError.
void save_model(const std::filesystem::path& path, const nn::Module& model, const Recipe& recipe,
                const DataFacts& facts);

struct SavedModel {
  std::shared_ptr<nn::Module> module;
  std::string model;
  std::string data;
  std::string data_dir;  // where the run had its data; empty where a file does not say
  std::string file;      // the .safetensors file that was read
  DataFacts facts;       // of the images that it is for
  bool skip_broken;      // as the run did, where there is one
};

// `path`: a run directory, or a .safetensors file: of weights, or a checkpoint. `model` and `data`
// override what the file says; a file from elsewhere says nothing. With pictures of one's own as
// data the classes are those of the file. Throws DataError, and UsageError where the model is not
// known.
SavedModel load_model(const std::string& path, const std::string& model, const std::string& data);

}  // namespace ringgrad::program
