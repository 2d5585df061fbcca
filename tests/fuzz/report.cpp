// The files of a run from another user, and the page about it. The bytes are cut at two empty
// lines: config.json, metrics.jsonl and summary.json.
#include <fstream>
#include <string>

#include "ringgrad/program/report/other_run.h"
#include "ringgrad/program/report/report.h"
#include "ringgrad/program/report/verdict.h"
#include "ringgrad/program/run/run_kind.h"
#include "ringgrad/tests/fuzz/fuzz.h"

using namespace ringgrad;
using namespace ringgrad::program;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static char directory[] = "/dev/shm/fuzz-report-XXXXXX";
  static const bool made = mkdtemp(directory) != nullptr &&
                           std::atexit([] { std::filesystem::remove_all(directory); }) == 0;
  if (!made) std::abort();
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  size_t begin = 0;
  for (const char* file : {"config.json", "metrics.jsonl", "summary.json"}) {
    const size_t end = std::min(text.find("\n\n\n", begin), text.size());
    std::ofstream(std::string(directory) + '/' + file) << text.substr(begin, end - begin);
    begin = std::min(end + 3, text.size());
  }
  return reads_or_refuses([&] {
    const RunKind kind = kind_of(directory);
    if (kind != kTrainingRun) {
      (void)read_other_run(directory, kind).summary();
      return;
    }
    const RunRecord run = read_run(directory);
    (void)judge(run);
    write_report({run}, std::string(directory) + "/report.html",
                 [](const RunRecord&) { return nullptr; });
  });
}
