#include "models/program/run_directory.h"

#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/check.h"

namespace ringgrad::program {
namespace fs = std::filesystem;
namespace {

constexpr const char* kRuns = "runs";

void make_directory(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  CHECK_AS(IoError, !error, "train: cannot make the directory ", path.string(), ": ", error.message(),
           "; choose another with --out");
}

fs::path next_run(const std::string& name) {
  int number = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(kRuns, ignored))
    number = std::max(number, std::atoi(entry.path().filename().c_str()));
  for (;;) {  // somebody else may take the number first
    const fs::path path = fs::path(kRuns) / fmt::format("{:04}-{}", ++number, name);
    if (fs::create_directory(path, ignored)) return path;
    CHECK_AS(IoError, fs::exists(path), "train: cannot make the directory ", path.string(),
             "; choose another with --out");
  }
}

void point_latest_at(const fs::path& run) {
  std::error_code ignored;  // a convenience: a file system without links does without
  const fs::path latest = fs::path(kRuns) / "latest", fresh = fs::path(kRuns) / fmt::format(".latest.{}", getpid());
  fs::create_directory_symlink(run.filename(), fresh, ignored);
  fs::rename(fresh, latest, ignored);
}

}  // namespace

RunDirectory RunDirectory::create(const std::string& path, const std::string& name) {
  if (!path.empty()) {
    CHECK_AS(IoError, !fs::exists(fs::path(path) / "config.json"), "train: ", path,
             " already holds a run; continue it with --resume ", path, ", or choose another directory");
    make_directory(path);
    return RunDirectory(path);
  }
  make_directory(kRuns);
  RunDirectory run(next_run(name));
  point_latest_at(run.path_);
  return run;
}

RunDirectory RunDirectory::open(const std::string& path) {
  CHECK_AS(DataError, fs::exists(fs::path(path) / "config.json"), "run: ", path,
           " is not a run directory: it has no config.json");
  return RunDirectory(fs::is_symlink(path) ? fs::canonical(path) : fs::path(path));
}

void RunDirectory::discard() const {
  std::error_code ignored;
  if (std::distance(fs::directory_iterator(path_, ignored), fs::directory_iterator()) > 1) return;
  fs::remove(path_ / "config.json", ignored);
  fs::remove(path_, ignored);
  const fs::path latest = fs::path(kRuns) / "latest";
  if (fs::is_symlink(latest) && !fs::exists(latest)) fs::remove(latest, ignored);
}

void RunDirectory::write_config(const nlohmann::json& config) const {
  const std::string text = config.dump(2) + '\n';
  AtomicFile out(path_ / "config.json");
  out.write(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  out.commit();
}

nlohmann::json RunDirectory::read_config() const {
  const fs::path file = path_ / "config.json";
  try {
    return nlohmann::json::parse(std::ifstream(file));
  } catch (const nlohmann::json::exception& error) {
    throw DataError(str("run: ", file.string(), " is damaged: ", error.what()));
  }
}

void RunDirectory::append_metrics(const nlohmann::json& line) const {
  const fs::path file = path_ / "metrics.jsonl";
  std::ofstream out(file, std::ios::app);
  out << line.dump() << '\n';
  out.close();
  CHECK_AS(IoError, out.good(), "train: cannot write ", file.string(), "; is the disk full?");
}

}  // namespace ringgrad::program
