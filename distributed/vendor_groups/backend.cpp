#include "ringgrad/distributed/vendor_groups/backend.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"

namespace ringgrad {
namespace {

// Recursive: a module registers its backend while it is being loaded.
struct Registry {
  std::recursive_mutex mutex;
  std::map<std::string, GroupBackend> backends;
};
Registry& registry() {  // made at first use, which is before main
  static Registry& registry = *new Registry;
  return registry;
}

// The module lies beside the program, or in the library folder of an installation; the program has
// the path to search (RUNPATH). It stays loaded. Returns "" on success.
std::string load_mpi() {
  if (dlopen("libringgrad_mpi.so", RTLD_NOW | RTLD_GLOBAL)) return {};
  const std::string error = dlerror();
  return "this build has no backend mpi (" + error +
         "); install an MPI library (Debian: libopenmpi-dev openmpi-bin) and build again";
}

}  // namespace

void register_group_backend(const std::string& name, GroupBackend backend) {
  std::lock_guard lock(registry().mutex);
  registry().backends[name] = backend;
}

const GroupBackend* find_group_backend(const std::string& name, std::string* why) {
  std::lock_guard lock(registry().mutex);
  auto& backends = registry().backends;
  std::string reason;
  if (name == "mpi" && !backends.contains(name))
    reason = load_mpi();
  else if (!backends.contains(name))
    reason = str("this build has no backend ", name,
                 "; configure with -DRINGGRAD_CUDA=toolkit where NCCL is installed");
  const auto found = backends.find(name);
  if (found != backends.end()) return &found->second;
  if (why) *why = reason;
  return nullptr;
}

std::vector<std::string> available_backends() {
  std::vector<std::string> available = {"ring"};
  for (const char* name : {"mpi", "nccl", "nccl-ring"}) {
    const GroupBackend* backend = find_group_backend(name);
    if (backend && backend->between_processes) available.emplace_back(name);
  }
  return available;
}

namespace {

std::shared_ptr<ProcessGroup> make_registered(const GroupRequest& request) {
  const std::string& name = request.backend;
  CHECK_AS(EnvironmentError, name == "mpi" || name == "nccl" || name == "nccl-ring",
           "init_process_group: no backend '", name, "'; ring, mpi, nccl or nccl-ring");
  std::string why;
  const GroupBackend* backend = find_group_backend(name, &why);
  CHECK_AS(NotImplementedError, backend != nullptr, "init_process_group: ", why);
  return backend->make(request);
}

BEFORE_MAIN(vendor_groups, make_other_group = make_registered);

}  // namespace
}  // namespace ringgrad
