#include "ringgrad/program/commands/train_data.h"

#include <algorithm>
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/letters.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/saved_model.h"

namespace ringgrad::program {

namespace {

ImageDataset taken_of(const ImageDataset& all, const std::vector<int64_t>& indices) {
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t bytes = all.images.numel() / all.size();
  const Tensor images = empty({count, all.images.size(1), all.images.size(2), all.images.size(3)},
                              {.dtype = DType::UInt8});
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(all.images.data<uint8_t>() + indices[i] * bytes, bytes,
                images.data<uint8_t>() + i * bytes);
    labels.push_back(all.labels.data<int64_t>()[indices[i]]);
  }
  return {all.name, images, tensor(labels), all.classes};
}

// Holds out a part of the training images, by the seed, whatever ranks there are.
void hold_out(Data& data, const Recipe& recipe, uint64_t seed) {
  if (recipe.validation == 0) return;
  const int64_t all = data.train_set.size();
  const int64_t held = std::llround(recipe.validation * static_cast<double>(all));
  if (held < 1 || held >= all)
    throw UsageError("--validation {} of {} training images are {}, expected 1 to {}",
                     recipe.validation, all, held, all - 1);
  std::vector<std::pair<uint64_t, int64_t>> order;
  for (int64_t i = 0; i < all; ++i) {
    const uint64_t number[] = {seed, static_cast<uint64_t>(i)};
    order.emplace_back(ringgrad::hash_of(number, sizeof number), i);
  }
  std::sort(order.begin(), order.end());
  std::vector<int64_t> out;
  std::vector<int64_t> in;
  for (int64_t i = 0; i < all; ++i) (i < held ? out : in).push_back(order[i].second);
  std::sort(in.begin(), in.end());
  std::sort(out.begin(), out.end());
  data.validation_set = taken_of(data.train_set, out);
  data.train_set = taken_of(data.train_set, in);
  data.notes.push_back(
      fmt::format("{} of the training images are held out for validation", with_commas(held)));
}

Data read_whole(RunConfig& config, const std::string& init, bool keep) {
  const Recipe& recipe = config.recipe;
  if (!is_own_data(recipe.data))
    return {load_dataset(recipe.data, Split::Train, config.data_dir),
            load_dataset(recipe.data, Split::Test, config.data_dir)};
  OwnData own = load_own_data(
      recipe.data,
      {.image_size = recipe.image_size, .skip_broken = recipe.skip_broken, .keep = keep},
      config.data_dir);
  const bool goes_on = !config.facts.digest.empty();
  CHECK_AS(DataError,
           !goes_on || (config.facts.digest == own.facts.digest &&
                        config.facts.classes == own.facts.classes),
           "train: the pictures of ", recipe.data,
           " are not those that the run began with: files or classes were added, removed, renamed "
           "or changed; bring them back, or begin anew with --init");
  if (!goes_on) {
    config.facts = own.facts;
    const ImageTransform of_init =
        init.empty() ? ImageTransform() : normalization_of_weights(init, config.facts.channels);
    if (!of_init.mean.empty()) {
      config.facts.mean = of_init.mean;
      config.facts.std = of_init.std;
    }
  }
  return {std::move(own.train), std::move(own.test), {}, own.notes, own.test_files};
}

}  // namespace

Data read_data(RunConfig& config, const std::string& init, bool keep) {
  Data data = read_whole(config, init, keep);
  hold_out(data, config.recipe, config.seed);
  return data;
}

std::string name_for_directory(const DataFacts& facts) {
  std::string name = facts.name;
  for (char& c : name)
    if (!is_letter(c) && !is_digit(c) && c != '-' && c != '.') c = '_';
  return name;
}

}  // namespace ringgrad::program
