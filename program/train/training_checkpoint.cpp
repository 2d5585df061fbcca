// The contents of a checkpoint of training: the tensors, and the progress in words.
#include <algorithm>
#include <cstring>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/random_state.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/train/training.h"

namespace ringgrad::program {
namespace {

struct TrainingProgress {
  int64_t step = 0;    // over all epochs
  int64_t images = 0;  // counted in the epoch under way, or in the one that has just ended
  std::vector<double> loss_sums;  // over those images, one for each rank
  ShardDigest used_images;        // the same images, of all ranks together
  SamplerState sampler;
  // The order of gradients; see DistributedDataParallel::ready_order().
  std::vector<std::string> ready_order;
  std::optional<BucketCaps> caps;  // only if a planner has chosen them
  // The seed and offset of each rank's generator; empty in files of older versions.
  std::vector<int64_t> generators;
  std::string data;  // a hash of the training images and labels; "" in files of older versions
  Recipe recipe;
};

// All of it but the sums follows from the number of steps.
void check_consistent(const TrainingProgress& p, int64_t train_size) {
  const int64_t batch = p.recipe.step_batch();
  const int64_t steps_per_epoch = (train_size + batch - 1) / batch;
  CHECK_AS(DataError, p.step >= 1 && p.step <= p.recipe.epochs * steps_per_epoch, "stands at step ",
           p.step, ", expected 1 to ", p.recipe.epochs * steps_per_epoch);
  const int64_t epoch = p.step / steps_per_epoch;
  const int64_t position = p.step % steps_per_epoch * batch;
  CHECK_AS(DataError, p.sampler.epoch == epoch && p.sampler.position == position,
           "goes on at image ", p.sampler.position, " of epoch ", p.sampler.epoch,
           ", expected image ", position, " of epoch ", epoch, " after step ", p.step);
  const int64_t images = position > 0 ? position : train_size;
  CHECK_AS(DataError, p.images == images, "has used ", p.images, " images of its epoch, expected ",
           images, " after step ", p.step);
  CHECK_AS(DataError, !p.loss_sums.empty(), "has no sum of losses, expected one for each rank");
  CHECK_AS(DataError, !p.caps || std::min(p.caps->first_bytes, p.caps->bytes) > 0,
           "has buckets of ", p.caps->first_bytes, " and ", p.caps->bytes,
           " bytes, expected at least 1");
  CHECK_AS(DataError, p.generators.empty() || p.generators.size() == 2 * p.loss_sums.size(), "has ",
           p.generators.size(), " numbers of generators, expected 2 for each of ",
           p.loss_sums.size(), " ranks");
}

std::string to_text(const TrainingProgress& p) {
  nlohmann::json json = {{"step", p.step},
                         {"images", p.images},
                         {"loss_sums", p.loss_sums},
                         {"used_images", {p.used_images.low, p.used_images.high}},
                         {"sampler", {p.sampler.seed, p.sampler.epoch, p.sampler.position}},
                         {"ready_order", p.ready_order},
                         {"generators", p.generators},
                         {"data", p.data},
                         {"recipe", to_json(p.recipe)}};
  if (p.caps) json["bucket_caps"] = {p.caps->first_bytes, p.caps->bytes};
  return json.dump();
}

// Throws DataError if something is missing, if a run of this recipe over so many images cannot be
// at that point, or if the recipe or the data are others. The message is written to follow a file's
// name.
TrainingProgress progress_from(const std::string& text, const Recipe& recipe, int64_t train_size,
                               const std::string& data) {
  TrainingProgress p;
  try {
    const auto json = json_from(text);
    OtherVersion other;  // that of config.json, which has been told of
    const nlohmann::json wanted = to_json(recipe);
    const nlohmann::json found = to_json(recipe_from_json(json.at("recipe"), other));
    CHECK_AS(DataError, other.unknown.empty(), "has what this version does not know: ",
             fmt::format("{}", fmt::join(other.unknown, ", ")));
    for (const auto& [key, value] : found.items())
      if (key != "epochs" || value > wanted[key])  // the run may have been given more since
        CHECK_AS(DataError, value == wanted[key], "belongs to another recipe: its ", key, " is ",
                 value.dump(), ", the run's is ", wanted[key].dump());
    p.recipe = recipe;
    p.data = json.value("data", "");
    CHECK_AS(DataError, p.data.empty() || p.data == data,
             "was made with other images or labels than there are of ", recipe.data,
             " now; bring them back, name their folder by --data-dir, or begin anew with --init");
    json.at("step").get_to(p.step);
    json.at("images").get_to(p.images);
    json.at("loss_sums").get_to(p.loss_sums);
    p.used_images = {json.at("used_images").at(0), json.at("used_images").at(1)};
    const auto& sampler = json.at("sampler");
    p.sampler = {sampler.at(0), sampler.at(1), sampler.at(2)};
    json.at("ready_order").get_to(p.ready_order);
    if (json.contains("bucket_caps"))
      p.caps = {json["bucket_caps"].at(0), json["bucket_caps"].at(1)};
    if (json.contains("generators")) json.at("generators").get_to(p.generators);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(fmt::format(
        "lacks what continuing needs: {}; if an older version wrote it, --init begins a run with "
        "its weights",
        without_number(error)));
  } catch (const UsageError& error) {
    throw DataError(error.what());
  }
  check_consistent(p, train_size);
  return p;
}

}  // namespace

// The loss of the last step is older than the parameters that this step has made.
void Training::check_state() const {
  for (const auto& [name, tensor] : model_->state_dict())
    if (is_floating(tensor.dtype()) &&
        !std::isfinite(sum(to(tensor, DType::Float64)).item<double>()))
      diverged(name + " is not finite");
}

void Training::save(const std::filesystem::path& path) {
  clock_.pause();
  check_loss();
  (void)check_identical();  // ranks that disagree must not go on from a checkpoint
  const auto sums = loss_sums();
  const ShardDigest used = used_images();
  const auto generator = to_vector<int64_t>(default_generator(device_).state());
  auto generators = group_ ? all_gather_values(*group_, generator) : generator;
  if (virtual_) generators.clear();  // seed, step and shard name the random numbers
  nn::NamedTensors stepping = stepping_state();
  set_phase(Phase::Checkpoint);
  // A slow disk is no reason to give up: for rank 0 the others wait ten times as long as for a
  // step.
  if (group_ && !group_->is_main_process())
    return group_->barrier({.timeout = 10 * default_timeout()}).wait();
  check_state();
  nn::save_checkpoint(path, checkpoint(sums, used, std::move(generators), std::move(stepping)));
  if (group_) group_->barrier().wait();
}

nn::Checkpoint Training::checkpoint(const std::vector<double>& sums, const ShardDigest& used,
                                    std::vector<int64_t> generators, nn::NamedTensors stepping) {
  const TrainingProgress progress{
      .step = step_,
      .images = images_,
      .loss_sums = sums,
      .used_images = used,
      .sampler = {seed_, epoch(), step_ % steps_per_epoch_ * recipe_.step_batch()},
      .ready_order = ddp_ ? ddp_->ready_order() : std::vector<std::string>(),
      .caps = plans_buckets_ ? std::optional(ddp_->bucket_caps()) : std::nullopt,
      .generators = std::move(generators),
      .data = data_hash_,
      .recipe = recipe_};
  Metadata about = to_metadata(facts_);
  about["progress"] = to_text(progress);
  return {.model = model_->state_dict(),
          .optimizer = std::move(stepping),
          .random = nn::random_state({device_}),
          .progress = about};
}

namespace {

constexpr const char* kModel = "model.";
constexpr const char* kAverage = "average.";

}  // namespace

// The learning rate is that of the step to come, whether or not it has begun.
TrainingState Training::state() {
  optimizer_->set_lr(learning_rate_(recipe_.lr, step_));
  nn::Checkpoint all = checkpoint({loss_sum_.item<double>()}, digest_, {}, stepping_state());
  TrainingState state{step_, {}, std::move(all.progress["progress"])};
  for (const auto& [name, tensor] : all.model) state.tensors.emplace_back(kModel + name, tensor);
  for (const auto& entry : all.optimizer) state.tensors.push_back(entry);
  return state;
}

void Training::load(const TrainingState& state) {
  if (state.step == 0) return;  // as every rank begins
  nn::Checkpoint all{
      .model = {}, .optimizer = {}, .random = nn::random_state({device_}), .progress = {}};
  all.progress["progress"] = state.words;
  for (const auto& [name, tensor] : state.tensors) {
    if (name.starts_with(kModel))
      all.model.emplace_back(name.substr(std::strlen(kModel)), tensor);
    else
      all.optimizer.emplace_back(name, tensor);
  }
  load(all, "what the other ranks have handed over");
}

std::vector<std::string> Training::lines_of_state() {
  std::vector<std::string> lines{fmt::format("step {}", step_)};
  for (const nn::NamedTensors& state : {model_->state_dict(), stepping_state()})
    for (std::string& line : lines_of_values(state)) lines.push_back(std::move(line));
  return lines;
}

// Returns the state of the optimizer, of the mixed precision and of the average of the weights.
nn::NamedTensors Training::stepping_state() {
  nn::NamedTensors state = optimizer_->state_dict();
  for (auto& entry : precision_->state_dict()) state.push_back(std::move(entry));
  if (average_)
    for (const auto& [name, tensor] : average_->state_dict())
      state.emplace_back(kAverage + name, tensor);
  return state;
}

void Training::load(const std::filesystem::path& path) {
  CHECK_AS(DataError, std::filesystem::exists(path), "train: there is no ", path.string(),
           ": the run stopped before its first checkpoint, or the file was removed; start it anew");
  load(nn::load_checkpoint(path), path.string());
}

void Training::load(const nn::Checkpoint& checkpoint, const std::string& called) {
  const auto said = checkpoint.progress.find("progress");
  CHECK_AS(DataError, said != checkpoint.progress.end(), "train: ", called,
           " is no checkpoint of a training run");
  TrainingProgress progress;
  try {  // everything is read and checked before anything is changed
    progress = progress_from(said->second, recipe_, train_size_, data_hash_);
    nn::check_by_name("model", model_->state_dict(), checkpoint.model, true);
    nn::check_by_name("optimizer", stepping_state(), checkpoint.optimizer, true);
    nn::check_random_state(checkpoint.random);
  } catch (const Error& error) {
    throw DataError(fmt::format("train: {}: {}", called, error.what()));
  }

  model_->load_state_dict(checkpoint.model);
  nn::NamedTensors stepping = precision_->load(checkpoint.optimizer);
  if (average_) average_->load_state_dict(nn::without_prefix(stepping, kAverage), progress.step);
  show_average();
  std::erase_if(stepping, [](const auto& entry) { return entry.first.starts_with(kAverage); });
  optimizer_->load_state_dict(stepping);
  if (ddp_)
    ddp_->set_ready_order(progress.ready_order, plans_buckets_ ? progress.caps : std::nullopt);
  const size_t ranks = group_ ? group_->size() : 1;
  const size_t rank = group_ ? group_->rank() : 0;
  if (rank == 0) nn::set_random_state(checkpoint.random, device_);
  if (const auto& all = progress.generators; rank > 0 && all.size() == 2 * ranks)
    default_generator(device_).set_state(static_cast<uint64_t>(all[2 * rank]),
                                         static_cast<uint64_t>(all[2 * rank + 1]));
  batches_->load_state(progress.sampler);
  step_ = progress.step;
  images_ = progress.images;
  digest_ = rank == 0 || elastic_ ? progress.used_images : ShardDigest();
  // As many ranks as before: each goes on with its own sum. Else the first one takes them all, and
  // all the images.
  const std::vector<double>& sums = progress.loss_sums;
  const bool as_before = sums.size() == ranks;
  const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
  if (virtual_) {  // the sum is that of all ranks
    own_images_ = images_;
    fill_(loss_sum_, all);
    return;
  }
  own_images_ = as_before ? images_ / static_cast<int64_t>(ranks) : rank == 0 ? images_ : 0;
  fill_(loss_sum_, as_before ? sums[rank] : rank == 0 ? all : 0);
}

}  // namespace ringgrad::program
