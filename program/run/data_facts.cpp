#include "ringgrad/program/run/data_facts.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/run/other_version.h"

namespace ringgrad::program {
namespace {

constexpr const char* kKeys[] = {"input_size", "mean", "std", "classes"};
constexpr int64_t kMaxSide = 4096;
constexpr size_t kMaxClasses = 100'000;

// The facts may come from a file of any origin.
void check_facts(const DataFacts& f) {
  CHECK_AS(DataError, f.channels == 1 || f.channels == 3, "images have ", f.channels,
           " channels, expected 1 or 3");
  CHECK_AS(DataError, f.image_size >= 1 && f.image_size <= kMaxSide, "images have ", f.image_size,
           " pixels a side, expected 1 to ", kMaxSide);
  CHECK_AS(DataError, !f.classes.empty() && f.classes.size() <= kMaxClasses, "there are ",
           f.classes.size(), " classes, expected 1 to ", kMaxClasses);
  const auto fits = [&](const std::vector<float>& values) {
    return values.size() == static_cast<size_t>(f.channels) &&
           std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  };
  CHECK_AS(DataError,
           fits(f.mean) && fits(f.std) && *std::min_element(f.std.begin(), f.std.end()) > 0,
           "mean and std are not a number for each channel");
  CHECK_AS(DataError,
           std::set<std::string>(f.classes.begin(), f.classes.end()).size() == f.classes.size(),
           "a class is named twice");
}

// Written as people would write them: 0.5, not 0.50000001.
std::string listed(const std::vector<float>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

}  // namespace

bool is_own_data(const std::string& data) {
  for (const DatasetInfo& info : datasets())
    if (info.name == data) return false;
  std::error_code none;
  return data.find('/') != std::string::npos || data.ends_with(".csv") ||
         std::filesystem::is_directory(data, none);
}

DataFacts facts_of_dataset(const std::string& name) {
  const DatasetInfo& info = dataset_info(name);
  return {info.name, info.channels, info.image_size, info.mean, info.std, info.classes};
}

ImageTransform normalization_of(const DataFacts& facts) {
  return {.mean = facts.mean, .std = facts.std};
}

std::string hash_of_data(const ImageDataset& set) {
  std::string text;
  for (const Tensor& part : {set.images, set.labels})
    text += fmt::format("{:016x}", ringgrad::hash_of(part.raw_data(), part.nbytes()));
  return text;
}

Metadata to_metadata(const DataFacts& facts) {
  return {{"input_size", fmt::format("[{0}, {1}, {1}]", facts.channels, facts.image_size)},
          {"mean", listed(facts.mean)},
          {"std", listed(facts.std)},
          {"classes", nlohmann::json(facts.classes).dump()}};
}

bool tells_facts(const Metadata& metadata) {
  return std::all_of(std::begin(kKeys), std::end(kKeys),
                     [&](const char* key) { return metadata.contains(key); });
}

DataFacts facts_from_metadata(const Metadata& metadata, const std::string& name) {
  nlohmann::json json = {{"name", name}};
  for (const char* key : kKeys) {
    const auto found = metadata.find(key);
    CHECK_AS(DataError, found != metadata.end(), "the metadata has no ", key);
    json[key] = json_if_whole(found->second);
  }
  return facts_from_json(json);
}

nlohmann::json to_json(const DataFacts& f) {
  nlohmann::json json = {{"name", f.name}, {"classes", f.classes}, {"digest", f.digest}};
  json["input_size"] = {f.channels, f.image_size, f.image_size};
  json["mean"] = json_from(listed(f.mean));
  json["std"] = json_from(listed(f.std));
  return json;
}

DataFacts facts_from_json(const nlohmann::json& json) {
  DataFacts facts;
  try {
    json.at("name").get_to(facts.name);
    const auto& size = json.at("input_size");
    facts.channels = size.at(0);
    facts.image_size = size.at(2);
    json.at("mean").get_to(facts.mean);
    json.at("std").get_to(facts.std);
    json.at("classes").get_to(facts.classes);
    facts.digest = json.value("digest", "");
  } catch (const nlohmann::json::exception& error) {
    throw DataError(
        fmt::format("the description of the images cannot be read: {}", without_number(error)));
  }
  check_facts(facts);
  return facts;
}

}  // namespace ringgrad::program
