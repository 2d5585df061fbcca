// `ringgrad bench`: its commands are in files of their own.
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/command.h"

namespace ringgrad::program {
namespace {

const Command kBench(190, "bench", "Measurements", [] {
  return "Examples\n  " + program_command("bench ddp --model resnet20 --predict 8,64,1024") +
         "\n  " + program_command("bench allreduce --ranks 2");
});

}  // namespace
}  // namespace ringgrad::program
