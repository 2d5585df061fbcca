// Ranks that mpirun and srun have started, by the variables that these set. MPI is never linked for
// this.
#include "ringgrad/distributed/starters/other_starters.h"

#include <algorithm>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/distributed/job/rank_environment.h"

namespace ringgrad {

std::string first_host(const std::string& node_list) {
  const size_t bracket = node_list.find('[');
  const size_t comma = node_list.find(',');
  if (bracket == std::string::npos || comma < bracket) return node_list.substr(0, comma);
  const size_t end = node_list.find_first_of(",-]", bracket);
  return node_list.substr(0, bracket) + node_list.substr(bracket + 1, end - bracket - 1);
}

namespace {

constexpr const char* kStepTasks = "SLURM_STEP_NUM_TASKS";
// Open MPI; MPICH and Intel MPI; Slurm. A batch script of Slurm has a SLURM_PROCID, but is no step.
constexpr Starter kStarters[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", kStepTasks, "SLURM_LOCALID", nullptr, true},
};
// Variables whose value all ranks of a job share, and other jobs on the machine do not.
constexpr const char* kJobIds[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID",
                                   "SLURM_JOB_ID"};

// They may be the tasks of a Slurm step (srun --mpi=pmi2 sets PMI_RANK). An mpirun, which starts
// its daemons as tasks of a step, tells itself how many are here.
void place(const Environment& environment, bool find_local_rank, RankEnvironment& r) {
  if (number_in(environment, kStepTasks) != r.size) return;
  const int nodes = std::max(1, number_in(environment, "SLURM_STEP_NUM_NODES").value_or(1));
  if (find_local_rank) r.local_rank = number_in(environment, "SLURM_LOCALID").value_or(r.rank);
  r.local_size = (r.size + nodes - 1) / nodes;
  r.address.host = first_host(text_in(environment, "SLURM_STEP_NODELIST"));
}

std::optional<uint16_t> port(const Environment& environment) {
  for (const char* name : kJobIds) {
    const std::string id = text_in(environment, name);
    uint32_t hash = 2166136261;  // FNV-1a: the same on every machine
    for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    if (!id.empty()) return static_cast<uint16_t>(20'000 + hash % 10'000);
  }
  return {};
}

constinit const OtherStarters others{kStarters, place, port};
BEFORE_MAIN(other_starters, other_starters = &others);

}  // namespace
}  // namespace ringgrad
