// The catalog of data sets: their files, sources and hashes, and how to normalise their images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ringgrad/data/datasets/download.h"

namespace ringgrad {

struct DatasetFile {
  std::string name;
  uint64_t bytes;
  std::string sha256;  // as published; for digits and shapes, as every machine draws them
};

struct DatasetDownload {
  // Several sources of the same file, tried in order.
  std::vector<std::string> urls;
  // The name on disk: a .tar.gz of all files, or FILE.gz of one.
  std::string name;
  uint64_t bytes;
  std::string sha256;
  // The members of a .tar.gz; empty for a .gz.
  WantedMembers members = {};
};

struct DatasetInfo {
  // The name that commands use, such as "mnist". It is also the folder in the data directory.
  std::string name;
  // The title, such as "MNIST".
  std::string title;
  // A description in one line.
  std::string about;
  enum Format { Idx, Cifar10, Cifar100 } format;
  int64_t train_size;
  int64_t test_size;
  // The number of the images' channels, and of pixels on each side.
  int64_t channels;
  int64_t image_size;
  // For each channel, over pixel / 255 of the training images.
  std::vector<float> mean;
  std::vector<float> std;
  std::vector<std::string> classes;
  std::vector<DatasetFile> files;
  // Other places below the data directory where users keep it.
  std::vector<std::string> folders = {};
  // Empty if a program draws the data set.
  std::vector<DatasetDownload> downloads = {};
  // Writes all files; null if they are downloaded.
  void (*draw)(const std::filesystem::path&) = nullptr;
  // The name of a drawn data set that suits the same networks, to suggest when this one is missing.
  std::string stand_in = "";
};

// Returns all data sets in the order in which `ringgrad data list` shows them.
const std::vector<DatasetInfo>& datasets();

// Throws Error that lists the existing names if there is no such data set.
const DatasetInfo& dataset_info(std::string_view name);

}  // namespace ringgrad
