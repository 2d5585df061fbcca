// The options of the commands about one checkpoint.
#pragma once

#include "ringgrad/program/command.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad::program {

struct CheckpointOptions {
  std::string checkpoint;  // a run directory or a .safetensors file
  // "" : as the checkpoint says
  std::string model;
  std::string data;
  std::string data_dir;
  std::string device = "cpu";
};

// Without --data-dir and --device, of those that compute something.
inline void add_checkpoint_options(CLI::App* app, CheckpointOptions& o) {
  app->add_option("checkpoint", o.checkpoint, "a run directory or a .safetensors file")->required();
  app->add_option("--model", o.model, "needed where the file does not say");
  app->add_option("--data", o.data, recipe_field("data").help);
}

}  // namespace ringgrad::program
