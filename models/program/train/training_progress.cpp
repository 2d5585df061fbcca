#include "ringgrad/models/program/train/training_progress.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"

namespace ringgrad::program {
namespace {

// All of it but the sums follows from the number of steps.
void check_consistent(const TrainingProgress& p, int64_t train_size) {
  const int64_t steps_per_epoch = (train_size + p.recipe.batch - 1) / p.recipe.batch;
  CHECK_AS(DataError, p.step >= 1 && p.step <= p.recipe.epochs * steps_per_epoch, "stands at step ", p.step,
           ", expected 1 to ", p.recipe.epochs * steps_per_epoch);
  const int64_t epoch = p.step / steps_per_epoch, position = p.step % steps_per_epoch * p.recipe.batch;
  CHECK_AS(DataError, p.sampler.epoch == epoch && p.sampler.position == position, "goes on at image ",
           p.sampler.position, " of epoch ", p.sampler.epoch, ", expected image ", position, " of epoch ", epoch,
           " after step ", p.step);
  const int64_t images = position > 0 ? position : train_size;
  CHECK_AS(DataError, p.images == images, "has used ", p.images, " images of its epoch, expected ", images,
           " after step ", p.step);
  CHECK_AS(DataError, !p.loss_sums.empty(), "has no sum of losses, expected one for each rank");
}

}  // namespace

std::string to_text(const TrainingProgress& p) {
  const nlohmann::json json = {{"step", p.step},
                               {"images", p.images},
                               {"loss_sums", p.loss_sums},
                               {"used_images", {p.used_images.low, p.used_images.high}},
                               {"sampler", {p.sampler.seed, p.sampler.epoch, p.sampler.position}},
                               {"ready_order", p.ready_order},
                               {"recipe", to_json(p.recipe)}};
  return json.dump();
}

TrainingProgress progress_from(const std::string& text, const Recipe& recipe, int64_t train_size) {
  TrainingProgress p;
  try {
    const auto json = nlohmann::json::parse(text);
    const nlohmann::json wanted = to_json(recipe), found = to_json(recipe_from_json(json.at("recipe")));
    for (const auto& [key, value] : found.items())
      CHECK_AS(DataError, value == wanted[key], "belongs to another recipe: its ", key, " is ", value.dump(),
               ", the run's is ", wanted[key].dump());
    p.recipe = recipe;
    json.at("step").get_to(p.step);
    json.at("images").get_to(p.images);
    json.at("loss_sums").get_to(p.loss_sums);
    p.used_images = {json.at("used_images").at(0), json.at("used_images").at(1)};
    const auto& sampler = json.at("sampler");
    p.sampler = {sampler.at(0), sampler.at(1), sampler.at(2)};
    json.at("ready_order").get_to(p.ready_order);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(str("lacks what continuing needs: ", error.what()));
  }
  check_consistent(p, train_size);
  return p;
}

}  // namespace ringgrad::program
