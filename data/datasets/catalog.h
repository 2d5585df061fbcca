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
  // The same file in several places, tried in order.
  std::vector<std::string> urls;
  // Its name on the disk: a .tar.gz of all files, or FILE.gz of one.
  std::string name;
  uint64_t bytes;
  std::string sha256;
  // Members of a .tar.gz; empty: a .gz.
  WantedMembers members = {};
};

struct DatasetInfo {
  // "mnist": what commands call it, and its folder in the data directory.
  std::string name;
  // "MNIST".
  std::string title;
  // One line.
  std::string about;
  enum Format { Idx, Cifar10, Cifar100 } format;
  int64_t train_size;
  int64_t test_size;
  // The images' channels, and pixels on each side.
  int64_t channels;
  int64_t image_size;
  // Per channel, of pixel / 255 over the training images.
  std::vector<float> mean;
  std::vector<float> std;
  std::vector<std::string> classes;
  std::vector<DatasetFile> files;
  // Other places below the data directory where people keep it.
  std::vector<std::string> folders = {};
  // None: drawn by a program.
  std::vector<DatasetDownload> downloads = {};
  // Writes all files; null: downloaded.
  void (*draw)(const std::filesystem::path&) = nullptr;
  // The drawn data set for its networks, to offer when it is missing.
  std::string stand_in = "";
};

// In the order in which `ringgrad data list` shows them.
const std::vector<DatasetInfo>& datasets();

// Throws Error, listing the names there are, when there is no such data set.
const DatasetInfo& dataset_info(const std::string& name);

}  // namespace ringgrad
