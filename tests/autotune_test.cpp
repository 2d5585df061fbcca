// Autotune: the faster of two ways is found once, remembered in a file, and not believed from another machine.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "core/autotune.h"
#include "tests/catch.h"

using namespace ringgrad;

namespace {

// A cache directory of its own. The table is read once per process, so there is one for all tests.
std::filesystem::path cache() {
  static const std::filesystem::path directory = [] {
    std::string name = (std::filesystem::temp_directory_path() / "ringgrad-autotune-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    setenv("RINGGRAD_CACHE_DIR", name.c_str(), 1);
    std::ofstream(std::filesystem::path(name) / "autotune.tsv") << "# another processor\nfrom elsewhere\t1\t2\n";
    std::atexit([] { std::filesystem::remove_all(std::getenv("RINGGRAD_CACHE_DIR")); });
    return std::filesystem::path(name);
  }();
  return directory;
}

}  // namespace

TEST_CASE("the faster way is chosen and remembered", "[quick][autotune]") {
  cache();
  int quick = 0, slow = 0;
  const auto run_quick = [&] { ++quick; };
  const auto run_slow = [&] {
    ++slow;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  run_fastest("native is quick", run_quick, run_slow);
  run_fastest("vendor is quick", run_slow, run_quick);
  quick = slow = 0;
  for (int i = 0; i < 3; ++i) {
    run_fastest("native is quick", run_quick, run_slow);
    run_fastest("vendor is quick", run_slow, run_quick);
  }
  CHECK(quick == 6);
  CHECK(slow == 0);

  REQUIRE(autotune_file().parent_path() == cache());
  std::ifstream file(autotune_file());
  std::string text((std::istreambuf_iterator<char>(file)), {});
  CHECK(text.find("native is quick\t") != std::string::npos);
  CHECK(text.find("vendor is quick\t") != std::string::npos);
  CHECK(text.find("from elsewhere") == std::string::npos);
  CHECK(tuned_calls().size() == 2);
}

TEST_CASE("a directory that cannot be written costs only the memory", "[quick][autotune]") {
  cache();
  std::filesystem::permissions(cache(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  int runs = 0;
  run_fastest(
      "not kept", [&] { ++runs; }, [&] { ++runs; });
  std::filesystem::permissions(cache(), std::filesystem::perms::owner_all);
  CHECK(runs >= 3);
}
