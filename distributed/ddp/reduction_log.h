// What the averaging of gradients cost, and when each bucket was ready, launched and complete on this rank.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ringgrad {

// Times are seconds since this rank's backward began. `ready` minus the same of another rank tells slow computation;
// `completed` minus the last rank's `launched` tells a slow network.
struct BucketLog {
  int64_t bytes = 0;
  std::shared_ptr<const std::string> parameters;  // "conv2.weight conv1.weight"
  double ready = 0;                               // its last gradient was complete
  double launched = 0;                            // its all-reduce was issued
  double completed = 0;                           // and done
};

struct ReductionLog {
  int64_t step = -1;
  std::vector<BucketLog> buckets;                         // in the order of launching
  double computed = 0;                                    // when the last gradient of this rank was complete
  double finished = 0;                                    // when the gradients were averaged
  double exposed() const { return finished - computed; }  // what overlap did not hide
};

// Over all steps so far.
struct ReductionTotals {
  int64_t steps = 0;
  int64_t bytes = 0;  // of gradients averaged
  double exposed_seconds = 0;
  int64_t plans = 0;  // 2 where the observed order differed from the expected one
};

}  // namespace ringgrad
