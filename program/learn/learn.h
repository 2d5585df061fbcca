// `ringgrad learn`: exercises with the real engine. The body of a function is taken out of one of
// its source files. The learner writes it. The program compiles that file alone, runs the function
// in the engine, and grades what it does.
//
// The solution is the engine's own file, so an exercise always matches the engine.
#pragma once

#include <string>
#include <vector>

namespace ringgrad::program {

class Grading;
class LearnersCode;

struct Exercise {
  // "ring reduce-scatter".
  const char* name;
  // The engine's file: "distributed/other_collectives/ring_reduce_scatter.cpp".
  const char* source;
  // Beginnings of the functions whose bodies are taken out, each at a line's beginning.
  std::vector<const char*> blanks;
  // The task, and what counts: paragraphs, with empty lines between them.
  const char* task;
  void (*grade)(Grading&, const LearnersCode&);
};

namespace exercises {
extern const Exercise kRingReduceScatter, kRingAllGather, kBucketPlan, kHook, kBackward, kSampler,
    kWeighting, kDeadRank, kSyncBatchNorm, kOverlap;
}  // namespace exercises

}  // namespace ringgrad::program
