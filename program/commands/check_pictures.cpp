#include "ringgrad/program/commands/check_pictures.h"

#include <algorithm>
#include <array>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/core/device/parallel.h"
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/own_pictures.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kAtOnce = 64;    // pictures between two steps of the bar
constexpr size_t kMostNames = 20;  // names shown of broken pictures, and of classes

struct Seen {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::string wrong;  // "" : nothing
};

Seen look_at(const std::filesystem::path& file) {
  try {
    const Tensor image = read_image(file.string());
    return {image.size(1), image.size(2), image.size(0), ""};
  } catch (const DataError& error) {
    return {0, 0, 0, error.what()};
  }
}

std::vector<Seen> look_at(const std::vector<LabelledPictures::Picture>& pictures) {
  const auto count = static_cast<int64_t>(pictures.size());
  std::vector<Seen> seen(pictures.size());
  Progress progress("check", count);
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t now = std::min(kAtOnce, count - first);
    parallel_for(current_stream(Device()), now, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = first + begin; i < first + end; ++i) seen[i] = look_at(pictures[i].file);
    });
    progress.update(first + now, [] { return "pictures read"; });
  }
  return seen;
}

nlohmann::json show_sizes(const std::vector<Seen>& seen) {
  std::vector<std::pair<int64_t, int64_t>> sizes;
  int64_t gray = 0;
  for (const Seen& s : seen) {
    if (s.wrong.empty()) sizes.emplace_back(s.width, s.height);
    gray += s.channels == 1;
  }
  if (sizes.empty()) return {};
  std::sort(sizes.begin(), sizes.end(),
            [](auto a, auto b) { return a.first * a.second < b.first * b.second; });
  const auto words = [](auto size) { return fmt::format("{}×{}", size.first, size.second); };
  const std::string smallest = words(sizes.front());
  const std::string median = words(sizes[sizes.size() / 2]);
  const std::string largest = words(sizes.back());
  result("sizes   {} to {}, median {}; {} of {} gray", smallest, largest, median, with_commas(gray),
         with_commas(static_cast<int64_t>(sizes.size())));
  return {{"smallest", smallest}, {"median", median}, {"largest", largest}, {"gray", gray}};
}

}  // namespace

int check_pictures(const std::string& path) {
  const OwnPictures own = find_own_pictures(path);
  std::vector<LabelledPictures::Picture> all = own.train;
  all.insert(all.end(), own.test.begin(), own.test.end());
  const std::vector<Seen> seen = look_at(all);

  std::vector<std::array<int64_t, 2>> counts(own.classes.size());
  nlohmann::json classes = nlohmann::json::array();
  nlohmann::json broken = nlohmann::json::array();
  for (size_t i = 0; i < all.size(); ++i) {
    if (seen[i].wrong.empty())
      ++counts[all[i].label][i >= own.train.size()];
    else if (broken.push_back({{"file", all[i].file.string()}, {"error", seen[i].wrong}});
             broken.size() <= kMostNames)
      result("broken  {}", seen[i].wrong);
  }
  if (broken.size() > kMostNames)
    result("broken  … and {} more; --json has all", broken.size() - kMostNames);
  const auto train = static_cast<int64_t>(own.train.size());
  const auto test = static_cast<int64_t>(own.test.size());
  for (size_t label = 0; label < own.classes.size(); ++label) {
    const auto [of_train, of_test] = counts[label];
    if (label < kMostNames)
      result("class   {:<40}{:>9} train{:>9} test", own.classes[label].substr(0, 39),
             with_commas(of_train), with_commas(of_test));
    classes.push_back({{"name", own.classes[label]}, {"train", of_train}, {"test", of_test}});
  }
  if (own.classes.size() > kMostNames)
    result("class   … {} in all; --json has them", own.classes.size());
  const nlohmann::json sizes = show_sizes(seen);
  result("split   {}", own.split);
  nlohmann::json left_out = nlohmann::json::array();
  for (const auto& [kind, count, first] : own.left_out) {
    result("without {:<40}{:>9} {}{}", kind, with_commas(count), count > 1 ? "the first is " : "",
           first.string());
    left_out.push_back({{"kind", kind}, {"count", count}, {"first", first.string()}});
  }
  result("{} of {}, {} of them broken", counted(train + test, "picture"),
         counted(static_cast<int64_t>(own.classes.size()), "class"), broken.size());
  print_json({{"path", path},
              {"classes", classes},
              {"train", train},
              {"test", test},
              {"division", own.split},
              {"sizes", sizes},
              {"broken", broken},
              {"left_out", left_out}});
  return broken.empty() ? kOk : kBadData;
}

}  // namespace ringgrad::program
