#include "ringgrad/models/program/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/models/program/console/exit_code.h"

namespace ringgrad::program {

namespace fs = std::filesystem;
namespace {

constexpr const char* kRuns = "runs";

// Whether it was not there.
bool make_directory(const fs::path& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  CHECK_AS(IoError, !error, "train: cannot make the directory ", path.string(), ": ", error.message(),
           "; choose another with --out");
  return made;
}

// The run of runs/ with the highest number, 0 where there is none.
std::pair<int, fs::path> newest_run() {
  std::pair<int, fs::path> newest;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(kRuns, ignored)) {
    const fs::path name = entry.path().filename();
    newest = std::max(newest, {std::atoi(name.c_str()), name});
  }
  return newest;
}

fs::path next_run(const std::string& name) {
  std::error_code error, ignored;
  for (int number = newest_run().first;;) {  // another process may take the number first
    const fs::path path = fs::path(kRuns) / fmt::format("{:04}-{}", ++number, name);
    if (fs::create_directory(path, error)) return path;
    CHECK_AS(IoError, fs::exists(path, ignored), "train: cannot make the directory ", path.string(), ": ",
             error.message(), "; choose another with --out");
  }
}

void point_latest_at(const fs::path& name) {
  std::error_code ignored;  // a convenience: a file system without links does without
  const fs::path latest = fs::path(kRuns) / "latest", fresh = fs::path(kRuns) / fmt::format(".latest.{}", getpid());
  fs::create_directory_symlink(name, fresh, ignored);
  fs::rename(fresh, latest, ignored);
  fs::remove(fresh, ignored);  // where it could not be renamed
}

}  // namespace

RunDirectory RunDirectory::create(const std::string& path, const std::string& name) {
  const bool named = !path.empty();
  if (!named) make_directory(kRuns);
  const bool made = !named || make_directory(path);
  RunDirectory run(named ? fs::path(path) : next_run(name));
  run.made_ = made;
  run.hold();
  if (fs::exists(run.checkpoint()))
    throw UsageError("train: {0} already holds a run; continue it with --resume {0}, or choose another directory",
                     path);
  run.check_free();
  if (!named) point_latest_at(run.path_.filename());
  return run;
}

std::string find_run(const std::string& name) {
  std::error_code ignored;
  if (name.empty() || name.find('/') != std::string::npos || fs::exists(name, ignored)) return name;
  if (const fs::path run = fs::path(kRuns) / name; fs::exists(run / "config.json", ignored)) return run.string();
  if (name.size() < 9 && name.find_first_not_of("0123456789") == std::string::npos)
    for (const auto& entry : fs::directory_iterator(kRuns, ignored)) {
      const std::string run = entry.path().filename().string();
      if (run.find_first_not_of("0123456789") == run.find('-') && std::atoi(run.c_str()) == std::atoi(name.c_str()))
        return entry.path().string();
    }
  return name;
}

RunDirectory RunDirectory::open(const std::string& called) {
  const std::string path = find_run(called);
  CHECK_AS(DataError, fs::exists(fs::path(path) / "config.json"), "run: ", path,
           " is not a run directory: it has no config.json");
  const fs::path real = fs::canonical(path);  // a link on the way there may lead elsewhere by the next look
  return RunDirectory(real == fs::absolute(path) ? fs::path(path) : real);
}

RunDirectory RunDirectory::resume(const std::string& path) {
  RunDirectory run = open(path);
  run.hold();
  return run;
}

// Files that are no run's are not written over: a run that stopped before its first checkpoint has left a config.json
// with a recipe, and no more.
void RunDirectory::check_free() const {
  const auto refuse = [&](const char* file) {
    throw UsageError("train: {} holds a {} already, which is no unfinished run's; choose another directory",
                     path_.string(), file);
  };
  for (const char* file : {"model.safetensors", "metrics.jsonl"})
    if (fs::exists(path_ / file)) refuse(file);
  if (!fs::exists(path_ / "config.json")) return;
  const auto config = nlohmann::json::parse(std::ifstream(path_ / "config.json"), nullptr, false);
  if (!config.is_object() || !config.contains("recipe")) refuse("config.json");
}

void RunDirectory::hold() {
  held_ = std::make_shared<FileDescriptor>(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  check_opened<IoError>(static_cast<bool>(*held_), "train: cannot read the directory ", path_.string());
  if (flock(held_->get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw UsageError("train: another process is training in {}; wait for it, or choose another --out", path_.string());
}

void RunDirectory::discard() const {
  std::error_code ignored;
  fs::remove(path_ / "config.json", ignored);
  if (!made_ || !fs::remove(path_, ignored)) return;
  const fs::path latest = fs::path(kRuns) / "latest";
  if (!fs::is_symlink(latest) || fs::exists(latest)) return;
  const auto [number, name] = newest_run();
  if (number > 0)
    point_latest_at(name);
  else
    fs::remove(latest, ignored);
}

void RunDirectory::write_config(const nlohmann::json& config) const {
  const std::string text = config.dump(2) + '\n';
  AtomicFile out(path_ / "config.json");
  out.write(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
  out.commit();
}

std::string RunDirectory::metrics() const {
  const fs::path file = path_ / "metrics.jsonl";
  std::error_code none;
  const uintmax_t size = fs::file_size(file, none);
  if (none) return "";
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  CHECK_AS(IoError, text.size() == size, "train: cannot read ", file.string());  // so nothing is cut off it
  text.resize(text.rfind('\n') + 1);
  return text;
}

int64_t RunDirectory::last_epoch() const {
  const std::string text = metrics();
  if (text.empty()) return 0;
  const size_t before = text.rfind('\n', text.size() - 2);
  const auto line = nlohmann::json::parse(text.substr(before + 1), nullptr, false);
  const auto epoch = line.is_object() ? line.find("epoch") : line.end();
  return epoch != line.end() && epoch->is_number_integer() ? epoch->get<int64_t>() : 0;
}

// A line is there whole or not at all: half of one would spoil the next.
void RunDirectory::append_metrics(const nlohmann::json& line) const {
  const fs::path file = path_ / "metrics.jsonl";
  const size_t whole = metrics().size();
  std::error_code ignored;
  fs::resize_file(file, whole, ignored);
  errno = 0;
  std::ofstream out(file, std::ios::app);
  out << line.dump() << '\n';
  out.close();
  const int reason = errno;
  if (out.good()) return;
  fs::resize_file(file, whole, ignored);
  throw IoError(fmt::format("train: cannot write {}: {}", file.string(), std::strerror(reason)));
}

namespace {

// As the file has it: what is no whole number would be rounded, or become one.
template <class T>
T whole(const nlohmann::json& json, const char* key, uint64_t low, uint64_t high) {
  const nlohmann::json& value = json.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() < low || value.get<uint64_t>() > high)
    throw UsageError("{} is {}, expected a whole number from {} to {}", key, value.dump(), low, high);
  return value.get<T>();
}

}  // namespace

nlohmann::json to_json(const RunConfig& config) {
  nlohmann::json json = {{"version", RINGGRAD_VERSION},
                         {"recipe", to_json(config.recipe)},
                         {"data_dir", config.data_dir},
                         {"seed", config.seed}};
  if (const auto& d = config.division)
    json["division"] = {{"parallel", d->parallel},   {"ranks", d->ranks},         {"sync_bn", *d->sync_bn},
                        {"device", d->device},       {"transport", d->transport}, {"backend", d->backend},
                        {"bucket_mb", d->bucket_mb}, {"shards", d->shards},       {"elastic", d->elastic}};
  return json;
}

RunConfig read_config(const RunDirectory& run) {
  const auto damaged = [&](const char* how, const std::exception& error) {
    return DataError(fmt::format("run: {}/config.json {}{}", run.path().string(), how, error.what()));
  };
  try {
    const auto json = nlohmann::json::parse(std::ifstream(run.path() / "config.json"));
    RunConfig config{recipe_from_json(json.at("recipe")),
                     json.at("data_dir"),
                     whole<uint64_t>(json, "seed", 0, std::numeric_limits<uint64_t>::max()),
                     {}};
    check_recipe(config.recipe);
    std::error_code error;  // one that is not there is told where it is needed
    if (config.data_dir.empty() ||
        std::filesystem::status(config.data_dir, error).type() == std::filesystem::file_type::none)
      throw UsageError("data_dir is no folder: " + (error ? error.message() : "it is empty"));
    if (json.contains("division")) {
      const nlohmann::json& d = json["division"];
      config.division = Division{d.at("parallel"),
                                 whole<int>(d, "ranks", 1, kMaxRanks),
                                 d.at("sync_bn").get<bool>(),
                                 d.at("device"),
                                 d.value("transport", std::string()),
                                 d.value("backend", std::string()),
                                 d.value("bucket_mb", 0.0),
                                 d.contains("shards") ? whole<int>(d, "shards", 0, kMaxShards) : 0,
                                 d.value("elastic", std::string())};
      check_division(*config.division);
      Device(config.division->device);
    }
    return config;
  } catch (const nlohmann::json::parse_error& error) {
    throw damaged("is damaged: ", error);
  } catch (const nlohmann::json::exception& error) {
    throw damaged("lacks what a run needs: ", error);
  } catch (const UsageError& error) {
    throw damaged("cannot be: ", error);
  } catch (const DeviceError& error) {
    throw damaged("cannot be: ", error);
  }
}

}  // namespace ringgrad::program
