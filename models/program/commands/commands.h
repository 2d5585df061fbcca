// The commands of the program. Each prints its result, throws on failure, and returns an exit code (exit_code.h).
#pragma once

#include "ringgrad/models/program/run/options.h"

namespace ringgrad::program {

int train(const TrainOptions& options);
int eval(const EvalOptions& options);
int predict(const PredictOptions& options);
int data(const DataOptions& options);
int inspect(const InspectOptions& options);
int graph(const GraphOptions& options);
int trace(const TraceOptions& options);
int doctor();
int launch_program(const LaunchCommandOptions& options);
int bench_allreduce(const BenchAllReduceOptions& options);
int bench_ops(const BenchOpsOptions& options);
int bench_ddp(const BenchDdpOptions& options);
int bench_train(const BenchTrainOptions& options);

// Parses the command line and runs the command it names.
int run_command_line(int argc, char** argv);

}  // namespace ringgrad::program
