#include "ringgrad/program/learn/learners_code.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/program/console/console.h"

namespace ringgrad::program {
namespace {

using std::filesystem::path;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

// The folder whose ringgrad/ has the headers: the one beside an installed program, else the build
// tree's.
std::string include_directory() {
  const path installed =
      std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "include";
  for (const path& folder : {installed, path(RINGGRAD_BUILD_INCLUDE)})
    if (std::filesystem::exists(folder / "ringgrad" / "core" / "tensor.h")) return folder;
  throw IoError("learn: the headers of ringgrad, which exercises include, are not in " +
                installed.string() +
                "; install the library beside the program (the package libringgrad-dev)");
}

ChildProcess start_compiler(const std::vector<std::string>& arguments) {
  const std::string chosen = variable("CXX");
  std::string tried;
  const std::vector<std::string> found = {RINGGRAD_COMPILER, "c++"};
  for (const std::string& compiler : chosen.empty() ? found : std::vector{chosen}) {
    ChildOptions options;
    options.command = words_of(compiler);
    options.command.insert(options.command.end(), arguments.begin(), arguments.end());
    try {
      return start_child(options);
    } catch (const ExecuteError&) {
      tried += (tried.empty() ? "" : ", ") + compiler;
    }
  }
  throw ExecuteError("learn: there is no C++ compiler to check the exercise with (tried " + tried +
                     "); install g++ (apt-get install g++), or name yours in CXX");
}

std::string all_of(const FileDescriptor& pipe) {
  std::string text;
  char piece[4096];
  for (ssize_t n; (n = read(pipe.get(), piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<size_t>(n));
  return text;
}

}  // namespace

void compile(const std::string& file, const std::string& library) {
  const std::string include = include_directory();
  // Its own functions before the engine's of the same name, but the engine's variables, of which
  // the tables of kernels are some. No optimisation, which would take longer than the checks.
  const ChildProcess child = start_compiler(
      {"-std=c++20", "-O0", "-g1", "-fPIC", "-shared", "-Wl,-Bsymbolic-functions", "-Wall", "-I",
       include, "-x", "c++", std::filesystem::absolute(file), "-o", library});
  const std::string said = all_of(child.error);
  int status = 0;
  waitpid(child.pid, &status, 0);
  if (status != 0) throw DoesNotCompile("it does not compile:\n" + said);
  if (!said.empty()) message("{}", said);
}

LearnersCode::LearnersCode(const std::string& library)
    : handle_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr)
    throw DoesNotCompile(std::string("it uses what the engine does not have: ") + dlerror());
}

void* LearnersCode::find(void* engines) const {
  Dl_info symbol{};
  if (dladdr(engines, &symbol) == 0 || symbol.dli_sname == nullptr || symbol.dli_saddr != engines)
    throw Error(
        "learn: this program does not export its engine's functions; link it with -rdynamic");
  void* const learners = dlsym(handle_, symbol.dli_sname);
  if (learners != nullptr && learners != engines) return learners;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol.dli_sname, nullptr, nullptr, &status), std::free);
  throw DoesNotCompile(std::string("the file does not define ") +
                       (name ? name.get() : symbol.dli_sname) +
                       "; keep its name, its arguments and its namespace");
}

}  // namespace ringgrad::program
