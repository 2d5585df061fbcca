// One directory per training run: config.json (what was asked for), metrics.jsonl (a line per epoch),
// checkpoint.safetensors (to continue from) and model.safetensors (the result, which loads in PyTorch). runs/latest
// points at the newest.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

class RunDirectory {
 public:
  // Makes `path`, or runs/NNNN-name with the next free number where `path` is empty. Throws IoError.
  static RunDirectory create(const std::string& path, const std::string& name);
  // An existing run; throws DataError where it has no config.json.
  static RunDirectory open(const std::string& path);

  // Removes a directory that holds nothing but what write_config() has written.
  void discard() const;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoint() const { return path_ / "checkpoint.safetensors"; }
  std::filesystem::path model() const { return path_ / "model.safetensors"; }

  void write_config(const nlohmann::json& config) const;
  nlohmann::json read_config() const;
  void append_metrics(const nlohmann::json& line) const;

 private:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace ringgrad::program
