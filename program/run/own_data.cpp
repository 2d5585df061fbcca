#include "ringgrad/program/run/own_data.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/nn/safetensors.h"
#include "ringgrad/program/console/console.h"

namespace ringgrad::program {
namespace fs = std::filesystem;
namespace {

using Pictures = std::vector<LabelledPictures::Picture>;
constexpr int64_t kAtOnce = 64;  // pictures between two steps of the bar

// Returns a text that identifies the cache's contents: the same text means the same images. The
// number in front changes when reading changes.
std::string fingerprint(const OwnPictures& own, const OwnDataOptions& options) {
  std::string text = fmt::format("2 {} {} {}\n", options.channels, options.image_size,
                                 fmt::join(own.classes, "\n"));
  for (const Pictures* part : {&own.train, &own.test})
    for (const auto& [file, label] : *part) {
      std::error_code none;
      text +=
          fmt::format("{} {} {} {} {}\n", part == &own.test, label, fs::file_size(file, none),
                      fs::last_write_time(file, none).time_since_epoch().count(), file.string());
    }
  return sha256_hex(text);
}

struct Broken {
  int64_t count = 0;
  std::string first;         // the reason for the first of them
  std::set<fs::path> files;  // which
};

// Reads and resizes, on all threads. Those that cannot be read are counted, and left out.
ImageDataset read_all(const Pictures& pictures, const OwnDataOptions& options, Progress& progress,
                      int64_t done_before, Broken& broken) {
  const auto count = static_cast<int64_t>(pictures.size());
  const int64_t bytes = options.channels * options.image_size * options.image_size;
  const Tensor images = empty({count, options.channels, options.image_size, options.image_size},
                              {.dtype = DType::UInt8});
  std::vector<std::string> wrong(pictures.size());
  const auto read_one = [&](int64_t i) {
    try {
      const Tensor fitted =
          read_fitted_image(pictures[i].file.string(), options.channels, options.image_size);
      std::transform(fitted.data<float>(), fitted.data<float>() + bytes,
                     images.data<uint8_t>() + i * bytes,
                     [](float value) { return static_cast<uint8_t>(std::lround(value)); });
    } catch (const DataError& error) {
      wrong[i] = error.what();
    }
  };
  for (int64_t begin = 0; begin < count; begin += kAtOnce) {
    const int64_t now = std::min(kAtOnce, count - begin);
    parallel_for(current_stream(Device()), now, 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) read_one(begin + i);
    });
    progress.update(done_before + begin + now, [] { return "pictures read and resized"; });
  }
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    if (!wrong[i].empty()) {
      if (broken.count++ == 0) broken.first = wrong[i];
      broken.files.insert(pictures[i].file);
      continue;
    }
    const auto place = static_cast<int64_t>(labels.size());
    std::copy_n(images.data<uint8_t>() + i * bytes, place == i ? 0 : bytes,
                images.data<uint8_t>() + place * bytes);
    labels.push_back(pictures[i].label);
  }
  const Shape shape{static_cast<int64_t>(labels.size()), images.size(1), images.size(2),
                    images.size(3)};
  return {"", images.as_strided(shape, contiguous_strides(shape), 0), tensor(labels), {}};
}

fs::path cache_of(const std::string& path, const OwnDataOptions& options,
                  const std::string& directory) {
  const uint64_t place = hash_of(path.data(), path.size());
  return fs::path(directory) / "cache" /
         fmt::format("{}-{:016x}-{}x{}.safetensors", fs::path(path).stem().string(), place,
                     options.image_size, options.channels);
}

struct Cached {
  ImageDataset train;
  ImageDataset test;
  Broken broken;
};

// Returns nothing if there is no cache, or it is damaged or belongs to other files.
std::optional<Cached> read_cache(const fs::path& file, const std::string& made_of) {
  std::error_code none;
  if (!fs::exists(file, none)) return {};
  try {
    const nn::SafetensorsFile saved = nn::load_safetensors(file);
    if (saved.metadata.at("made_of") != made_of) return {};
    std::map<std::string, Tensor> tensors(saved.tensors.begin(), saved.tensors.end());
    return Cached{{"", tensors.at("train.images"), tensors.at("train.labels"), {}},
                  {"", tensors.at("test.images"), tensors.at("test.labels"), {}},
                  {}};
  } catch (const std::exception&) {  // it is made anew
    return {};
  }
}

void write_cache(const fs::path& file, const std::string& made_of, const Cached& cached) {
  try {
    std::error_code none;
    fs::create_directories(file.parent_path(), none);
    nn::save_safetensors(file,
                         {{"train.images", cached.train.images},
                          {"train.labels", cached.train.labels},
                          {"test.images", cached.test.images},
                          {"test.labels", cached.test.labels}},
                         {{"made_of", made_of}});
  } catch (const IoError& error) {
    message("note    the pictures are read anew each time: {}", error.what());
  }
}

Cached read_or_cached(const std::string& path, const OwnPictures& own,
                      const OwnDataOptions& options, const std::string& directory) {
  const fs::path file = cache_of(path, options, directory);
  const std::string made_of = fingerprint(own, options);
  if (std::optional<Cached> cached = read_cache(file, made_of)) return std::move(*cached);
  Cached fresh;
  const auto train = static_cast<int64_t>(own.train.size());
  const auto test = static_cast<int64_t>(own.test.size());
  Progress progress("data", train + test);
  fresh.train = read_all(own.train, options, progress, 0, fresh.broken);
  fresh.test = read_all(own.test, options, progress, train, fresh.broken);
  // The cause that a picture cannot be read may go away, so such a result is not cached.
  if (options.keep && fresh.broken.count == 0) write_cache(file, made_of, fresh);
  return fresh;
}

std::string classes_in_words(const std::vector<std::string>& classes) {
  constexpr size_t kMost = 12;
  const size_t shown = std::min(classes.size(), kMost);
  const std::string rest =
      shown < classes.size() ? fmt::format(" … and {} more", classes.size() - shown) : "";
  return fmt::format(
      "{} classes: {}{}", classes.size(),
      fmt::join(classes.begin(), classes.begin() + static_cast<ptrdiff_t>(shown), ", "), rest);
}

// Returns words about the pictures that were left out, "" if all could be read. Throws if they must
// not be left out.
std::string left_out(const Broken& broken, const std::string& path, const OwnPictures& own,
                     bool skip) {
  if (broken.count == 0) return "";
  const std::string some =
      fmt::format("{} of {} pictures cannot be read, the first of them: {}", broken.count,
                  own.train.size() + own.test.size(), broken.first);
  if (skip) return "left out: " + some;
  throw DataError(
      fmt::format("data: {}\n  see all    {}\n  go on      --skip-broken leaves them out", some,
                  program_command("data check " + shell_word(path))));
}

// With four digits, as they are published of others.
void measure(const ImageDataset& set, DataFacts& facts) {
  const int64_t pixels = set.images.size(2) * set.images.size(3);
  const auto rounded = [](double x) { return static_cast<float>(std::round(x * 1e4) / 1e4); };
  for (int64_t c = 0; c < facts.channels; ++c) {
    int64_t sum = 0;
    int64_t squares = 0;
    for (int64_t n = 0; n < set.size(); ++n) {
      const uint8_t* in = set.images.data<uint8_t>() + (n * facts.channels + c) * pixels;
      for (int64_t i = 0; i < pixels; ++i) {
        sum += in[i];
        squares += int64_t{in[i]} * in[i];
      }
    }
    const double count = static_cast<double>(set.size() * pixels);
    const double mean = static_cast<double>(sum) / count / 255;
    const double variance = static_cast<double>(squares) / count / 255 / 255 - mean * mean;
    facts.mean.push_back(rounded(mean));
    facts.std.push_back(variance < 1e-6 ? 1 : rounded(std::sqrt(variance)));
  }
}

void check_classes(const ImageDataset& train, const std::string& path) {
  std::vector<int64_t> counts(train.classes.size());
  for (const int64_t label : to_vector<int64_t>(train.labels)) ++counts[label];
  for (size_t i = 0; i < counts.size(); ++i)
    CHECK_AS(DataError, counts[i] > 0, "data: ", path, ": no picture of '", train.classes[i],
             "' for training can be read");
}

}  // namespace

std::string directory_of_data(const std::string& data, const std::string& given,
                              const std::string& of_run) {
  if (!given.empty() || of_run.empty()) return data_directory(given);
  if (is_own_data(data)) return of_run;
  const DatasetInfo& info = dataset_info(data);
  const bool drawn_anew =
      info.draw && std::ranges::any_of(info.files, [&](const auto& file) {
        std::error_code error;  // a folder that is closed to us is not missing
        return !fs::exists(fs::path(of_run) / info.name / file.name, error) && !error;
      });
  if (!drawn_anew || of_run == fs::absolute(data_directory("")).lexically_normal()) return of_run;
  message("note    {} lacks {}, which {} has or gets", of_run, data, data_directory(""));
  return data_directory("");
}

OwnData load_own_data(const std::string& path, const OwnDataOptions& options,
                      const std::string& directory) {
  const OwnPictures own = find_own_pictures(path);
  Cached cached = read_or_cached(path, own, options, directory);
  const std::string without = left_out(cached.broken, path, own, options.skip_broken);
  OwnData data{
      {fs::path(path).stem().string(), options.channels, options.image_size, {}, {}, own.classes},
      std::move(cached.train),
      std::move(cached.test),
      {},
      {classes_in_words(own.classes), own.split}};
  const fs::path base = fs::absolute(path).lexically_normal();
  for (const auto& [file, label] : own.test)
    if (!cached.broken.files.contains(file))
      data.test_files.push_back(
          file.lexically_relative(base.extension() == ".csv" ? base.parent_path() : base).string());
  for (const std::string& words : {in_words(own.left_out), without})
    if (!words.empty()) data.notes.push_back(words);
  for (ImageDataset* set : {&data.train, &data.test}) {
    set->name = data.facts.name;
    set->classes = own.classes;
    check_dataset_invariants(*set);
    data.facts.digest += hash_of_data(*set);
  }
  check_classes(data.train, path);
  CHECK_AS(DataError, data.test.size() > 0, "data: ", path,
           ": no picture for the test can be read");
  measure(data.train, data.facts);
  return data;
}

ImageDataset load_images(const std::string& data, Split split, const DataFacts& known,
                         bool skip_broken, const std::string& directory,
                         std::vector<std::string>* files) {
  if (!is_own_data(data)) return load_dataset(data, split, directory);
  OwnData own = load_own_data(data, {known.channels, known.image_size, skip_broken, /*keep=*/false},
                              directory);
  if (files) *files = own.test_files;
  ImageDataset set = split == Split::Train ? own.train : own.test;
  for (int64_t i = 0; i < set.size(); ++i) {
    int64_t& label = set.labels.data<int64_t>()[i];
    const std::string& name = set.classes[label];
    const auto found = std::find(known.classes.begin(), known.classes.end(), name);
    CHECK_AS(DataError, found != known.classes.end(), "data: ", data, " has a picture of '", name,
             "', of which this network knows nothing: its classes are ",
             fmt::format("{}", fmt::join(known.classes, ", ")));
    label = found - known.classes.begin();
  }
  set.classes = known.classes;
  return set;
}

}  // namespace ringgrad::program
