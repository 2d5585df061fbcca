// What is known about each data set: its files, where they come from, their hashes, and how to
// normalise its images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ringgrad/data/datasets/download.h"

namespace ringgrad {

struct DatasetFile {
  std::string name;
  uint64_t bytes;
  std::string sha256;  // as published; of digits and shapes, as every machine draws them
};

struct DatasetDownload {
  std::vector<std::string> urls;  // the same file in several places, tried in order
  // What to call it on the disk: a .tar.gz of all files, or FILE.gz of one.
  std::string name;
  uint64_t bytes;
  std::string sha256;
  WantedMembers members = {};  // of a .tar.gz; empty: a .gz
};

struct DatasetInfo {
  std::string name;   // "mnist": what commands call it, and its folder in the data directory
  std::string title;  // "MNIST"
  std::string about;  // one line
  enum Format { Idx, Cifar10, Cifar100 } format;
  int64_t train_size, test_size;
  int64_t channels, image_size;  // pixels on each side
  std::vector<float> mean, std;  // per channel, of pixel / 255 over the training images
  std::vector<std::string> classes;
  std::vector<DatasetFile> files;
  // Other places below the data directory where people keep it.
  std::vector<std::string> folders = {};
  std::vector<DatasetDownload> downloads = {};           // none: drawn by a program
  void (*draw)(const std::filesystem::path&) = nullptr;  // writes all files; null: downloaded
  std::string stand_in = "";  // the drawn data set for its networks, to offer when it is missing
};

// In the order in which `ringgrad data list` shows them.
const std::vector<DatasetInfo>& datasets();

// Throws Error, listing the names there are, when there is no such data set.
const DatasetInfo& dataset_info(const std::string& name);

}  // namespace ringgrad
