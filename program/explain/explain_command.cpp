#include <optional>

#include "ringgrad/core/base/file.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"
#include "ringgrad/program/run/run_directory.h"

namespace ringgrad::program {
namespace {

const Topic* const kTopics[] = {&kAutograd, &kRing,   &kBuckets,  &kOverlap,  &kDp,
                                &kMemory,   &kSyncBn, &kSameBits, &kHang,     &kUnused,
                                &kNan,      &kKill,   &kMismatch, &kStraggler};

int list_topics() {
  nlohmann::json listed = nlohmann::json::array();
  for (const Topic* topic : kTopics) {
    result("  {:<10}  {}", topic->name, topic->summary);
    listed.push_back({{"name", topic->name}, {"summary", topic->summary}});
  }
  print_json({{"topics", listed}});
  return kOk;
}

const Topic& topic_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Topic* topic : kTopics) {
    if (topic->name == name) return *topic;
    names.push_back(topic->name);
  }
  throw UsageError("explain: no topic '{}'{}\nThere are {}", name, did_you_mean(name, names),
                   fmt::join(names, ", "));
}

// Throws UsageError if there is no such topic, IoError if the file cannot be written, JobFailed if
// the ranks fail in an unexpected way.
int explain(const ExplainOptions& options) {
  if (options.topic.empty() || options.list) return list_topics();
  const Topic& topic = topic_named(options.topic);
  if (const std::string part = own_part(); !part.empty()) {
    topic.on_rank(part);
    return kOk;
  }
  if (options.named.contains("--ranks") && &topic != &kRing)
    throw UsageError(
        "explain {}: --ranks is for ring alone; the others have the ranks that they need",
        topic.name);
  std::optional<AtomicFile> file;
  // One that cannot be written is an error before the run.
  if (!options.html.empty()) {
    check_output(options.html);
    file.emplace(options.html);
  }
  Page page(topic.name, topic.summary);
  topic.tell(page, options);
  page.facts["topic"] = topic.name;
  print_json(page.facts);
  if (!file) return kOk;
  file->write(page.html());
  file->commit();
  message("wrote {}", options.html);
  return kOk;
}

void add_options(CLI::App* app, ExplainOptions& o) {
  app->add_option("topic", o.topic, "which of them; without one they are listed");
  app->add_flag("--list", o.list, "list the topics");
  app->add_option("--ranks", o.ranks, "ring: ranks, 2 to 8")->capture_default_str();
  app->add_option("--html", o.html, "also write the page, with pictures, to this file");
  app->footer("Example\n  " + program_command("explain ring --html ring.html"));
}

const Command kExplain(90, "explain",
                       "How it works, told with the numbers of a run made then and there", explain,
                       add_options);

}  // namespace
}  // namespace ringgrad::program
