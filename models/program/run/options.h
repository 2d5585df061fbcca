// What each command can be told. Values that a recipe decides are optional here; see recipe.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ringgrad::program {

struct TrainOptions {
  std::string model;  // "" : the data set's default
  std::string data;   // "" : digits
  std::string data_dir;
  std::string device;  // "" : cpu
  std::string out;     // the run directory; "" : runs/NNNN-data-model
  std::string resume;  // a run directory to continue
  std::string init;    // a run directory or file whose weights to begin with; "" : random ones
  std::optional<uint64_t> seed;
  int workers = 1;        // data loader threads
  std::string parallel;   // none, dp or ddp; "" : ddp where there are two cores
  int ranks = 0;          // 0: two where there are two cores; dp: replicas
  std::string backend;    // between ranks: ring, mpi, nccl, nccl-ring; "" : RINGGRAD_BACKEND, else as the device is
  std::string transport;  // between ranks: auto, shm or tcp; "" : RINGGRAD_TRANSPORT, else the fastest
  std::optional<bool> sync_bn;
  int64_t max_steps = 0;   // stop after so many steps of this call; 0: never
  int64_t save_every = 0;  // checkpoint every so many steps, besides every epoch; 0: never
  // Decided by the recipe unless set
  std::optional<int64_t> epochs, batch;
  std::optional<double> lr, momentum, weight_decay, label_smoothing, warmup, clip_norm;
  std::optional<std::string> optimizer, schedule, dtype, amp, conv, provider;
  std::optional<int64_t> crop, cutout;
  std::optional<bool> flip, nesterov;
};

struct EvalOptions {
  std::string checkpoint;  // a run directory or a .safetensors file
  std::string model, data, data_dir, device = "cpu", provider = "auto";
  bool confusion = false;
};

struct PredictOptions {
  std::string checkpoint;
  std::string image;  // a PNG, PGM or PPM file, or an index into the test set
  std::string model, data, data_dir, device = "cpu";
};

struct DataOptions {
  std::string action;  // list, make, get, check
  std::string name;
  std::string data_dir;
};

struct InspectOptions {
  std::string path;
  std::string npy;     // write this tensor …
  std::string output;  // … to this .npy file
};

struct GraphOptions {
  std::string model = "cnn";
  bool dot = false;
};

struct LaunchCommandOptions {
  int processes = 1;  // on this machine
  int machines = 1, machine_rank = 0;
  std::string master_address;  // "" : loopback, on one machine
  int master_port = 0;         // 0: any free one, on one machine
  double timeout_seconds = 0;  // 0: as RINGGRAD_TIMEOUT says
  std::string transport;       // shm, tcp; "" : as RINGGRAD_TRANSPORT says
  std::string log_directory;   // "" : no logs
  std::vector<std::string> command;
};

struct BenchAllReduceOptions {
  int ranks = 2;
  std::string device = "cpu", backend;                     // as TrainOptions
  std::string transport = "auto";                          // shm, tcp
  std::string algorithm = "auto";                          // gather, exchange, ring, segmented, shared
  uint64_t min_bytes = 0, max_bytes = uint64_t{64} << 20;  // min 0: the sizes 1 KiB, 64 KiB, 1, 4, 25 and 64 MiB
  int factor = 2;
  double seconds = 0.5;  // for each size
  int iterations = 0;    // 0: as many as `seconds` allow
  int warmup = 5;
  bool bound = false;  // also what the sums alone cost, with threads of one process
};

struct BenchOpsOptions {
  int repetitions = 300;
};

struct BenchTrainOptions {
  std::string model = "cnn", dtype = "fp32", conv = "auto", provider = "auto", device = "cpu";
  int64_t batch = 100;
  int threads = 0;  // 0: one per core
  int steps = 20, warm_up = 3;
  bool profile = false;
};

// Training on noise that is divided over ranks.
struct WorkloadOptions {
  std::string model = "resnet20";
  std::string device = "cpu", backend;  // as TrainOptions
  int64_t batch = 128;                  // of all ranks together
  int ranks = 2;
  double bucket_mb = 0;  // 0: the default caps
};

struct BenchDdpOptions : WorkloadOptions {
  double seconds = 3;  // a row and round
  int rounds = 3;
  bool force = false;
  std::string row;  // measure this row in this process, as one of its ranks; "" : all of them
};

struct TraceOptions : WorkloadOptions {
  TraceOptions() { bucket_mb = 0.25; }  // a small network, too, has several then
  int steps = 10;                       // the last one is shown
};

}  // namespace ringgrad::program
