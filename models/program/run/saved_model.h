// A trained model in a file, and what the file says about it: which model, for which data.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "ringgrad/models/program/run/recipe.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::program {

// Gives a network the weights of a run directory or .safetensors file. Throws DataError where they do not fit, or
// cannot be weights: not finite, negative variances.
void load_weights(nn::Module& module, const std::string& path);

// A new network for the images and classes of a data set. Throws UsageError on an unknown name.
std::shared_ptr<nn::Module> make_model_for(const std::string& model, const std::string& data);

// SHA-256 of a module's parameters and buffers, in hexadecimal digits: of each one's name, a zero byte, and its
// elements in row-major order as they lie in memory, one tensor after the other, as state_dict() lists them.
std::string sha256_of_state(const nn::Module& module);

// Weights as PyTorch and torchvision name them. The metadata say what they are for: model, data, and in JSON input_size
// [C, H, W], mean, std and classes, so that nobody else needs our catalogue. Atomic. Throws IoError.
void save_model(const std::filesystem::path& path, const nn::Module& model, const Recipe& recipe);

struct SavedModel {
  std::shared_ptr<nn::Module> module;
  std::string model, data;
  std::string data_dir;  // where the run had its data; empty where a file does not say
  std::string file;      // the .safetensors file that was read
};

// `path`: a run directory, or a .safetensors file: of weights, or a checkpoint. `model` and `data` override what the
// file says; a file from elsewhere says nothing. Throws DataError, and UsageError where the model is not known.
SavedModel load_model(const std::string& path, const std::string& model, const std::string& data);

}  // namespace ringgrad::program
