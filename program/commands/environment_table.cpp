#include "ringgrad/program/commands/environment_table.h"

#include <sstream>

namespace ringgrad::program {
namespace {

// A line is a variable; its fields are those of EnvironmentVariable.
constexpr const char* kTable = R"(
RINGGRAD_DATA_DIR | user | a folder | the checkout's data/files if there is something in it, else $XDG_DATA_HOME/ringgrad, else ~/.local/share/ringgrad | where data sets lie | data/datasets/data_place.cpp
RINGGRAD_CACHE_DIR | user | a folder | $XDG_CACHE_HOME/ringgrad, else ~/.cache/ringgrad | where measured times of kernels are kept | core/kernels/autotune.cpp
RINGGRAD_THREADS | user | 1 to 1024 | the cores, divided among the ranks of a machine | threads of a process | core/device.cpp
RINGGRAD_CPU_DEVICES | user | 1 to 64 | 1 | logical CPU devices, for DataParallel | core/cpu/cpu_backend.cpp
RINGGRAD_ISA | user | v2, v3, v4, v4_bf16 or amx, as far as doctor lists them | the best of this machine | for which instructions the kernels in use are compiled | core/cpu/isa.cpp
RINGGRAD_CUDA_GRAPHS | user | 0 | captured where possible | steps are never captured | core/device/captured_step.cpp
RINGGRAD_TIMEOUT | user | seconds | 60 | how long a rank may keep the others waiting (ten times as long while rank 0 saves), or take to end after a signal | distributed/job/rank_environment.cpp
RINGGRAD_RENDEZVOUS_TIMEOUT | user | seconds | RINGGRAD_TIMEOUT | the same until all ranks have come, where machines start one after the other | distributed/job/rank_environment.cpp
RINGGRAD_ADDRESS | user | an address | an address of this machine | where other machines reach this one, behind a NAT | distributed/job/rank_environment.cpp
RINGGRAD_TRANSPORT | user | as train --transport | auto | how ranks are connected | distributed/init_process_group.cpp
RINGGRAD_BACKEND | user | as train --backend | ring on CPUs, nccl on GPUs | what connects the ranks | distributed/init_process_group.cpp
RINGGRAD_CHECKSUMS | user | on, off or auto | auto: over a network | whether messages between ranks carry checksums | distributed/init_process_group.cpp
RINGGRAD_SECRET | user | 16 characters or more, or none | on one machine a new one for each job | what ranks on several machines must share to meet | distributed/starters/secret.cpp
RINGGRAD_SECRET_FILE | user | a file that its owner alone can read | RINGGRAD_SECRET | the same, in a file's first line | distributed/starters/secret.cpp
RINGGRAD_LINT | user | a folder that exists | nothing is written | where ranks write what lint --from judges | distributed/lint/observations.cpp
RINGGRAD_DEBUG | user | 1 | an exit code | errors end in a core dump or the debugger | program/main.cpp
RINGGRAD_CALLED_AS | user | a name | as it was called | how hints name the program; ./go sets it | data/datasets/program_command.cpp
CXX | user | a compiler | the one that built the program, else c++ | what learn check compiles with | program/learn/learners_code.cpp
NO_COLOR | user | 1 | colours, on a terminal | no colours | program/console/console.cpp
RINGGRAD_CUDA_DEVICES | tests | 0 to 64 | 0 | where a build emulates CUDA on the CPU: how many devices | cuda_kernels/emulator/config.cpp
RINGGRAD_EMU_MEMORY_MB | tests | 1 to 1048576 | 1024 | the memory of an emulated device | cuda_kernels/emulator/config.cpp
RINGGRAD_EMU_SCHEDULE | tests | forward, reversed or random:SEED | forward | which warp and lane the emulator runs first | cuda_kernels/emulator/config.cpp
RINGGRAD_EMU_STREAMS | tests | eager, lazy or random:SEED | eager | when the emulator runs what is queued | cuda_kernels/emulator/config.cpp
RINGGRAD_EMU_STACK_KB | tests | kilobytes | 64 | the stack of an emulated thread that waits | cuda_kernels/emulator/config.cpp
RINGGRAD_EMU_CHECK | tests | 0 | checked | the emulator does not look for races and accesses out of bounds | cuda_kernels/emulator/check/observer.cpp
RINGGRAD_EMU_PROFILE | tests | 1 | not counted | the emulator counts sectors and bank conflicts | cuda_kernels/emulator/check/observer.cpp
RINGGRAD_SLOW | tests | PART:MS or RANK:PART:MS | no trouble | makes every step's data, forward, backward, optimizer or rest so many ms late | program/train/step_clock.cpp
RINGGRAD_RUN | ringgrad | a folder | this process makes the run's | the run of the launcher's ranks | program/run/run_directory.h
RINGGRAD_DOCUMENT | ringgrad | a path | its own stdout | where ranks hand over what --json prints | program/console/document.cpp
RINGGRAD_BENCH_FILE | ringgrad | a path | nothing is written | where a rank of bench writes what it measured | program/bench/bench.h
RINGGRAD_EXPLAIN_PART | ringgrad | a word | the topic is told | what a rank of explain does | program/explain/ranks.cpp
RINGGRAD_EXPLAIN_FILE | ringgrad | a path | nothing is written | where rank 0 of explain writes what all answer | program/explain/ranks.cpp
RINGGRAD_EARLIER_LAUNCHES | ringgrad | exit codes | it was not started by launch() | what the calls of launch() before this one returned | distributed/launcher/supervisor.h
RINGGRAD_RANK_PROCESS | ringgrad | a process | it is no rank's environment | whose RANK this is, so that what a rank starts is no rank | distributed/job/rank_environment.h
RINGGRAD_STATUS_FD | ringgrad | a descriptor | private memory | where a rank tells its launcher what it is doing | distributed/job/job_status.cpp
RINGGRAD_LIFELINE_FD | ringgrad | a descriptor | no launcher | a rank ends when its launcher does | distributed/os/child_process.cpp
RINGGRAD_LAUNCHER_PID | ringgrad | a process | no launcher | the launcher of a rank | distributed/job/job_status.cpp
RINGGRAD_MEMBERSHIP_FD | ringgrad | a descriptor | the job is not elastic | shared memory that lists the members of an elastic job | distributed/job/job_members.h
RANK | a launcher | from 0 on | this is no rank | torchrun's rank | distributed/job/rank_environment.cpp
WORLD_SIZE | a launcher | from 1 on | needed with RANK | torchrun's number of ranks | distributed/job/rank_environment.cpp
LOCAL_RANK | a launcher | from 0 on | RANK | the rank on this machine | distributed/job/rank_environment.cpp
LOCAL_WORLD_SIZE | a launcher | from 1 on | WORLD_SIZE | the ranks of this machine | distributed/job/rank_environment.cpp
MASTER_ADDR | a launcher | an address | 127.0.0.1 on one machine | where rank 0 is | distributed/job/rank_environment.cpp
MASTER_PORT | a launcher | 1 to 65534 | by the job's number, else 29500 | where rank 0 listens | distributed/job/rank_environment.cpp
TORCHELASTIC_USE_AGENT_STORE | a launcher | True | MASTER_PORT is free | torchrun's store takes MASTER_PORT, and ranks meet at the next one | distributed/job/rank_environment.cpp
OMPI_COMM_WORLD_RANK | a launcher | from 0 on | this is no rank | Open MPI's rank | distributed/starters/other_starters.cpp
OMPI_COMM_WORLD_SIZE | a launcher | from 1 on | needed with the rank | its number of ranks | distributed/starters/other_starters.cpp
OMPI_COMM_WORLD_LOCAL_RANK | a launcher | from 0 on | the rank | the rank on this machine | distributed/starters/other_starters.cpp
OMPI_COMM_WORLD_LOCAL_SIZE | a launcher | from 1 on | all ranks | the ranks of this machine | distributed/starters/other_starters.cpp
PMI_RANK | a launcher | from 0 on | this is no rank | MPICH's rank | distributed/starters/other_starters.cpp
PMI_SIZE | a launcher | from 1 on | needed with PMI_RANK | its number of ranks | distributed/starters/other_starters.cpp
MPI_LOCALRANKID | a launcher | from 0 on | PMI_RANK | the rank on this machine | distributed/starters/other_starters.cpp
MPI_LOCALNRANKS | a launcher | from 1 on | PMI_SIZE | the ranks of this machine | distributed/starters/other_starters.cpp
SLURM_PROCID | a launcher | from 0 on | this is no rank | Slurm's rank in a step | distributed/starters/other_starters.cpp
SLURM_STEP_NUM_TASKS | a launcher | from 1 on | this is no step | its number of ranks | distributed/starters/other_starters.cpp
SLURM_STEP_NUM_NODES | a launcher | from 1 on | 1 | machines of the step | distributed/starters/other_starters.cpp
SLURM_STEP_NODELIST | a launcher | names | MASTER_ADDR is needed | whose first is where rank 0 is | distributed/starters/other_starters.cpp
SLURM_LOCALID | a launcher | from 0 on | SLURM_PROCID | the rank on this machine | distributed/starters/other_starters.cpp
PMIX_NAMESPACE | a launcher | a word | the next of these | what tells jobs apart, for MASTER_PORT | distributed/starters/other_starters.cpp
OMPI_MCA_ess_base_jobid | a launcher | a word | the next of these | what tells jobs apart, for MASTER_PORT | distributed/starters/other_starters.cpp
PMI_JOBID | a launcher | a word | the next of these | what tells jobs apart, for MASTER_PORT | distributed/starters/other_starters.cpp
SLURM_JOB_ID | a launcher | a number | port 29500 | what tells jobs apart, for MASTER_PORT | distributed/starters/other_starters.cpp
OMP_NUM_THREADS | a launcher | a number | a share of the cores | set for ranks unless it is set; other libraries read it | distributed/launcher/supervisor.cpp
HOME | system | a folder | the current folder | where ~ is | data/datasets/data_place.cpp
XDG_DATA_HOME | system | a folder | ~/.local/share | see RINGGRAD_DATA_DIR | data/datasets/data_place.cpp
XDG_CACHE_HOME | system | a folder | ~/.cache | see RINGGRAD_CACHE_DIR | core/kernels/autotune.cpp
TERM | system | a name | no bar and no colours with dumb | the terminal | program/console/console.cpp
TERM_PROGRAM | system | a name | no progress in the terminal's window | the terminal | program/console/console.cpp
WT_SESSION | system | a word | no progress in the terminal's window | Windows Terminal | program/console/console.cpp
ConEmuPID | system | a process | no progress in the terminal's window | ConEmu | program/console/console.cpp
)";

}  // namespace

std::vector<EnvironmentVariable> environment_table() {
  std::vector<EnvironmentVariable> all;
  std::istringstream lines(kTable + 1);
  for (std::string line; std::getline(lines, line);) {
    std::string fields[6];
    for (size_t begin = 0; std::string & field : fields) {
      const size_t end = std::min(line.find(" | ", begin), line.size());
      field = line.substr(begin, end - begin);
      begin = std::min(end + 3, line.size());
    }
    all.push_back({fields[0], fields[1], fields[2], fields[3], fields[4], fields[5]});
  }
  return all;
}

}  // namespace ringgrad::program
