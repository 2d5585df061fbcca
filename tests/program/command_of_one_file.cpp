// A command that nothing else knows: program_rooms_test.py runs it.
#include <cstdio>

#include "ringgrad/program/command.h"

namespace ringgrad::program {
namespace {

struct TwiceOptions {
  int number = 4;
};

int twice(const TwiceOptions& options) {
  std::printf("%d\n", 2 * options.number);
  return 0;
}

void add_options(CLI::App* app, TwiceOptions& o) {
  app->add_option("--number", o.number, "a number")->capture_default_str();
}

const Command kTwice(35, "twice", "Twice a number", twice, add_options);

}  // namespace
}  // namespace ringgrad::program
