// `ringgrad explain TOPIC`: how something works, told with the numbers of a run that the real
// engine makes then and there.
#pragma once

#include <set>
#include <string>

namespace ringgrad::program {

class Page;

struct ExplainOptions {
  std::string topic;  // "" : list them
  bool list = false;
  int ranks = 4;                // only for `ring`
  std::string html;             // also write the page to this file
  std::set<std::string> named;  // the options that were given
};

// A topic. tell() writes the page, and runs the example that it describes. A topic that needs ranks
// starts them (ranks.h), and each rank calls on_rank() with the name of its part.
struct Topic {
  const char* name;
  const char* summary;
  void (*tell)(Page& page, const ExplainOptions& options);
  void (*on_rank)(const std::string& part) = nullptr;
};

extern const Topic kAutograd, kRing, kBuckets, kOverlap, kDp, kMemory, kSyncBn, kSameBits;
// The gallery of failures: two ranks make a mistake.
extern const Topic kHang, kUnused, kNan, kKill, kMismatch, kStraggler;

}  // namespace ringgrad::program
