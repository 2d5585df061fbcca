#include "ringgrad/program/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"

namespace ringgrad::program {

namespace fs = std::filesystem;
namespace {

// The files of runs of all kinds, but for those whose names have numbers.
constexpr std::string_view kFiles[] = {
    "config.json",  "metrics.jsonl", "summary.json",      "checkpoint.safetensors",
    "report.html",  "trace.json",    "model.safetensors", "best.safetensors",
    "timeline.svg", "worst.png",     "measurements.json", "results.json"};

// Makes a directory. Returns true if it did not exist.
bool make_directory(const fs::path& path) {
  std::error_code error;
  const bool made = fs::create_directories(path, error);
  CHECK_AS(IoError, !error, "run: cannot make the directory ", path.string(), ": ", error.message(),
           "; choose another with --out");
  return made;
}

// Returns the entry of runs/ with the highest number, or only of those that hold a run; 0 if there
// is none.
std::pair<int, fs::path> newest_run(bool to_read = false) {
  std::pair<int, fs::path> newest;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(kRuns, ignored)) {
    const fs::path name = entry.path().filename();
    if (to_read && !fs::exists(entry.path() / "config.json", ignored)) continue;
    if (const auto number = number_of_run(name)) newest = std::max(newest, {*number, name});
  }
  return newest;
}

fs::path next_run(const std::string& name) {
  std::error_code error;
  std::error_code ignored;
  for (int number = newest_run().first;;) {  // another process may take the number first
    const fs::path path = fs::path(kRuns) / fmt::format("{:04}-{}", ++number, name);
    if (fs::create_directory(path, error)) return path;
    CHECK_AS(IoError, fs::exists(path, ignored), "run: cannot make the directory ", path.string(),
             ": ", error.message(), "; choose another with --out");
  }
}

void point_latest_at(const fs::path& name) {
  std::error_code ignored;  // a convenience: a file system without links does without
  const fs::path latest = fs::path(kRuns) / "latest";
  const fs::path fresh = fs::path(kRuns) / fmt::format(".latest.{}", getpid());
  fs::create_directory_symlink(name, fresh, ignored);
  fs::rename(fresh, latest, ignored);
  fs::remove(fresh, ignored);  // in case it could not be renamed
}

}  // namespace

RunDirectory RunDirectory::create(const std::string& path, const std::string& name,
                                  const nlohmann::json& config) {
  const bool named = !path.empty();
  if (!named) make_directory(kRuns);
  const bool made = !named || make_directory(path);
  RunDirectory run(named ? fs::path(path) : next_run(name));
  run.made_ = made;
  run.hold();
  if (fs::exists(run.checkpoint()))
    throw UsageError(
        "run: {0} already holds a run; continue it with --resume {0}, "
        "or choose another directory",
        path);
  run.check_free();
  if (!named) point_latest_at(run.path_.filename());
  try {
    run.write_config(config);
  } catch (...) {  // the disk is full
    run.discard();
    throw;
  }
  return run;
}

fs::path make_result_directory(const std::string& path, const std::string& name) {
  make_directory(path.empty() ? fs::path(kRuns) : fs::path(path));
  return path.empty() ? next_run(name) : fs::path(path);
}

void check_links(const fs::path& directory) {
  std::error_code error;
  const fs::path home = fs::canonical(directory, error);
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (!entry.is_symlink(error) || entry.is_directory(error)) continue;
    const fs::path real = fs::canonical(entry.path(), error);  // "" of one that leads nowhere
    if (std::mismatch(home.begin(), home.end(), real.begin(), real.end()).first != home.end())
      throw DataError(fmt::format(
          "run: {} is a link to {}, out of the run's directory; put the file itself there, "
          "or remove the link",
          entry.path().string(), fs::read_symlink(entry.path(), error).string()));
  }
}

void check_output(const fs::path& out, const fs::path& in) {
  std::error_code error;
  const fs::path kind = out.extension();
  const bool of_run = (kind == ".json" || kind == ".jsonl" || kind == ".safetensors") &&
                      fs::exists(out.parent_path() / "config.json", error);
  if (fs::equivalent(out, in, error) || (of_run && fs::exists(out, error)))
    throw UsageError("{} is {}, which would be lost; choose another file to write", out.string(),
                     of_run ? "a run's" : "what is read");
}

RunDirectory RunDirectory::open(const std::string& called, const RunKind& kind) {
  const std::string path = find_run(called, kind);
  check_kind(path, kind);
  // A link on the way there may lead elsewhere by the next look.
  const fs::path real = fs::canonical(path);
  return RunDirectory(real == fs::absolute(path) ? fs::path(path) : real);
}

RunDirectory RunDirectory::resume(const std::string& path, const RunKind& kind) {
  RunDirectory run = open(path, kind);
  check_links(run.path_);
  run.hold();
  return run;
}

// Refuses to overwrite files that belong to no unfinished run. A run that stopped before its first
// checkpoint has left a config.json with a recipe, and its measurements; these may be replaced.
void RunDirectory::check_free() const {
  const auto refuse = [&](std::string_view file) {
    throw UsageError(
        "run: {} holds a {} already, which is no unfinished run's; choose another directory",
        path_.string(), file);
  };
  if (fs::exists(path_ / "model.safetensors")) refuse("model.safetensors");
  if (fs::exists(path_ / "config.json")) {
    const auto config = json_if_whole(text_of(path_ / "config.json"));
    if (!config.is_object() || !config.contains("recipe")) refuse("config.json");
  } else {
    for (const std::string_view file : kFiles)
      if (fs::is_regular_file(path_ / file)) refuse(file);
  }
  if (last_epoch() > 0) refuse("metrics.jsonl");
  std::error_code ignored;
  for (const char* file : {"metrics.jsonl", "summary.json"})
    if (fs::is_regular_file(path_ / file, ignored)) fs::remove(path_ / file, ignored);
}

void RunDirectory::hold() {
  held_ =
      std::make_shared<FileDescriptor>(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  check_opened<IoError>(*held_, "run: cannot read the directory ", path_.string());
  int tries = 5;  // in_use() holds it for some microseconds
  while (flock(held_->get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK && --tries > 0)
    usleep(10'000);
  if (tries == 0)
    throw UsageError("run: another process is training in {}; wait for it, or choose another --out",
                     path_.string());
}

bool RunDirectory::in_use() const {
  const FileDescriptor look(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return look && flock(look.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

namespace {

// If runs/latest leads to a run that has gone, makes it lead to the newest that is left.
void repair_latest() {
  std::error_code ignored;
  const fs::path latest = fs::path(kRuns) / "latest";
  if (!fs::is_symlink(latest, ignored) || fs::exists(latest, ignored)) return;
  const auto [number, name] = newest_run(/*to_read=*/true);
  if (number > 0)
    point_latest_at(name);
  else
    fs::remove(latest, ignored);
}

bool is_of_a_run(const std::string& name) {
  return std::ranges::find(kFiles, name) != std::end(kFiles) || name.ends_with(".part") ||
         name.starts_with("events.out.tfevents.") ||
         (name.starts_with("samples-") && name.ends_with(".png"));
}

}  // namespace

void RunDirectory::discard() const {
  if (has_measured()) return;
  std::error_code ignored;
  fs::remove(path_ / "config.json", ignored);
  if (made_ && fs::remove(path_, ignored)) repair_latest();
}

int64_t RunDirectory::remove() const {
  int64_t left = 0;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const bool ours = is_of_a_run(entry.path().filename().string()) && !entry.is_directory();
    if (ours)
      files.push_back(entry.path());
    else
      ++left;
  }
  std::error_code error;
  for (const fs::path& file : files) {
    fs::remove(file, error);
    CHECK_AS(IoError, !error, "run: cannot remove ", file.string(), ": ", error.message());
  }
  if (left == 0) fs::remove(path_, error);
  repair_latest();
  return left;
}

void RunDirectory::write_config(const nlohmann::json& config) const {
  const nlohmann::json settings = config.flatten();
  for (const auto& [name, value] : settings.items())
    if (value.is_string()) check_utf8("run: " + name.substr(1), value.get<std::string>());
  write_text(path_ / "config.json", config.dump(2) + '\n');
}

namespace {

// The bytes of a file that are whole lines: all but half of one, which a process that was killed
// has left.
uintmax_t bytes_of_lines(const fs::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return 0;
  auto end = static_cast<std::streamoff>(in.tellg());
  while (end > 0) {
    const std::streamoff begin = std::max<std::streamoff>(0, end - 4096);
    std::string block(static_cast<size_t>(end - begin), '\0');
    in.seekg(begin).read(block.data(), end - begin);
    CHECK_AS(IoError, in.good(), "run: cannot read ", file.string());  // so nothing is cut off it
    if (const size_t line = block.rfind('\n'); line != std::string::npos) return begin + line + 1;
    end = begin;
  }
  return 0;
}

// Calls look(line) with every whole line that is a JSON object.
void for_each_line(const fs::path& file, const auto& look) {
  if (!fs::exists(file)) return;
  std::istringstream in(text_of(file));
  for (std::string text; std::getline(in, text) && !in.eof();)
    if (const auto line = json_if_whole(text); line.is_object()) look(line);
}

}  // namespace

bool RunDirectory::has_all(int64_t epochs) const {
  return last_epoch() >= epochs && fs::exists(model());
}

bool RunDirectory::has_measured() const {
  return fs::exists(path_ / "metrics.jsonl") || fs::exists(path_ / "summary.json");
}

std::vector<nlohmann::json> RunDirectory::epochs() const {
  std::vector<nlohmann::json> lines;
  for_each_line(path_ / "metrics.jsonl", [&](const nlohmann::json& line) {
    if (line.contains("epoch") && line["epoch"].is_number_integer()) lines.push_back(line);
  });
  return lines;
}

int64_t RunDirectory::last_epoch() const {
  const std::vector<nlohmann::json> lines = epochs();
  return lines.empty() ? 0 : lines.back()["epoch"].get<int64_t>();
}

void RunDirectory::note_failure(const std::string& why) const {
  try {
    // Without measurements or a checkpoint the run left nothing to ask about.
    bool noted = !has_measured() && !fs::exists(checkpoint());
    for_each_line(path_ / "metrics.jsonl",
                  [&](const nlohmann::json& line) { noted = line.contains("failed"); });
    if (!noted) append_metrics({{"failed", why}});
  } catch (const std::exception&) {  // the failure itself is more important
  }
}

// A line is there whole or not at all: half of one would spoil the next.
void RunDirectory::append_metrics(const nlohmann::json& line) const {
  const fs::path file = path_ / "metrics.jsonl";
  const uintmax_t whole = bytes_of_lines(file);
  std::error_code ignored;
  if (fs::file_size(file, ignored) != whole) fs::resize_file(file, whole, ignored);
  errno = 0;
  std::ofstream out(file, std::ios::app);
  out << json_text(line) << '\n';
  out.close();
  const int reason = errno;
  if (out.good()) return;
  fs::resize_file(file, whole, ignored);
  throw IoError(fmt::format("run: cannot write {}: {}", file.string(), std::strerror(reason)));
}

namespace {

nlohmann::json as_json(const auto& value) { return value; }
nlohmann::json as_json(const std::optional<bool>& flag) { return *flag; }
nlohmann::json as_json(double mb) {
  return mb == kPlannedBuckets ? nlohmann::json(bucket_words(mb)) : nlohmann::json(mb);
}

ParallelConfig parallel_config_from(const nlohmann::json& d, OtherVersion& other) {
  OtherVersion unreported;
  ParallelConfig parallel_config{
      .parallel = "none", .ranks = 1, .device = "cpu"};  // without a word
  if (const auto ranks = d.find("ranks"); ranks != d.end() && ranks->is_number() && *ranks > 1)
    parallel_config.parallel = "ddp";
  for (const ParallelConfigField& field : parallel_config_fields()) {
    const auto found = d.find(field.name);
    OtherVersion& notes = field.traits & ParallelConfigField::kLater ? unreported : other;
    const auto read = [&]<class T>(T ParallelConfig::*member) {
      T& value = parallel_config.*member;
      if constexpr (std::is_same_v<T, int>)
        if (found != d.end() &&
            (!found->is_number_integer() || *found < value || *found > kMaxRanks))
          throw UsageError("{} is {}, expected a whole number from {} to {}", field.name,
                           found->dump(), value, kMaxRanks);
      if constexpr (std::is_same_v<T, std::optional<bool>>)
        value = read_setting(d, field.name, false, notes);
      else if constexpr (!std::is_same_v<T, double>)
        value = read_setting(d, field.name, value, notes);
      else if (found != d.end())
        value = found->is_number() ? found->get<T>()
                                   : bucket_mb_from(found->is_string() ? found->get<std::string>()
                                                                       : found->dump());
    };
    std::visit(read, field.member);
  }
  check_parallel_config(parallel_config);
  Device(parallel_config.device);
  return parallel_config;
}

uint64_t seed_of(const nlohmann::json& json, OtherVersion& other) {
  if (json.contains("seed") && !json["seed"].is_number_unsigned())
    throw UsageError("seed is {}, expected a whole number from 0 to {}", json["seed"].dump(),
                     std::numeric_limits<uint64_t>::max());
  return read_setting<uint64_t>(json, "seed", 1, other);
}

RunConfig config_from(const nlohmann::json& json) {
  RunConfig config;
  OtherVersion& other = config.other;
  config.recipe = recipe_from_json(group_of(json, "recipe"), other);
  check_recipe(config.recipe);
  config.data_dir = read_setting(json, "data_dir", data_directory(""), other);
  if (config.data_dir.empty()) throw UsageError("data_dir is empty, expected a folder");
  config.seed = seed_of(json, other);
  OtherVersion optional;
  config.init = read_setting<std::string>(json, "init", "", optional);
  config.preset = read_setting<std::string>(json, "preset", "", optional);
  config.extended = read_setting<std::string>(json, "extended", "", optional);
  config.facts = is_own_data(config.recipe.data) ? facts_from_json(group_of(json, "images"))
                                                 : facts_of_dataset(config.recipe.data);
  if (json.contains("division"))
    config.parallel_config = parallel_config_from(group_of(json, "division"), other);

  nlohmann::json known = to_json(config);
  for (const char* key : {"images", "division", "init", "preset", "extended"})
    known.emplace(key, nlohmann::json::object());
  note_unknown(json, known, "", other);
  if (json.contains("division"))
    note_unknown(json["division"], known["division"], "division.", other);
  if (is_own_data(config.recipe.data))
    note_unknown(json["images"], known["images"], "images.", other);
  return config;
}

}  // namespace

nlohmann::json to_json(const RunConfig& config) {
  nlohmann::json json = {{"version", RINGGRAD_VERSION},
                         {"recipe", to_json(config.recipe)},
                         {"data_dir", config.data_dir},
                         {"seed", config.seed}};
  if (is_own_data(config.recipe.data)) json["images"] = to_json(config.facts);
  if (!config.init.empty()) json["init"] = config.init;
  if (!config.preset.empty()) json["preset"] = config.preset;
  if (!config.extended.empty()) json["extended"] = config.extended;
  if (config.parallel_config)
    for (const ParallelConfigField& field : parallel_config_fields())
      std::visit(
          [&](auto member) {
            json["division"][field.name] = as_json((*config.parallel_config).*member);
          },
          field.member);
  return json;
}

RunConfig read_config(const RunDirectory& run) {
  const auto damaged = [&](const char* how, const std::string& why) {
    return DataError(fmt::format("run: {}/config.json {}{}", run.path().string(), how, why));
  };
  try {
    return config_from(json_from(text_of(run.path() / "config.json")));
  } catch (const nlohmann::json::parse_error& error) {
    throw damaged("is damaged: ", without_number(error));
  } catch (const nlohmann::json::exception& error) {
    throw damaged("is not valid: ", without_number(error));
  } catch (const UsageError& error) {
    throw damaged("is not valid: ", error.what());
  } catch (const DeviceError& error) {
    throw damaged("is not valid: ", error.what());
  } catch (const DataError& error) {
    throw damaged("is not valid: ", error.what());
  }
}

void note_resumption(const RunDirectory& run, const RunConfig& config) {
  const fs::path metrics = run.path() / "metrics.jsonl";
  const std::string text = fs::exists(metrics) ? text_of(metrics) : "";
  if (const size_t end = text.rfind('\n'); end != std::string::npos) {
    const size_t begin = text.substr(0, end).rfind('\n') + 1;  // 0 of the first line
    const auto line = json_if_whole(text.substr(begin, end - begin));
    std::error_code ignored;
    if (line.is_object() && line.contains("failed")) fs::resize_file(metrics, begin, ignored);
  }
  RunConfig kept = read_config(run);
  if (kept.extended == config.extended) return;
  kept.recipe.epochs = config.recipe.epochs;
  kept.extended = config.extended;
  const fs::path file = run.path() / "config.json";
  const auto begun = fs::last_write_time(file);
  run.write_config(to_json(kept));
  fs::last_write_time(file, begun);  // `runs` and reports have it from there
}

}  // namespace ringgrad::program
